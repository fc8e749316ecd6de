"""ChainSVM: sequence tagging by a linear chain, with a proven gap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from distdual.data.in_memory import MemoryDataset
from distdual.data.shard import Block
from distdual.data.sources.sequences import Ragged, ragged
from distdual.data.validate import label_name
from distdual.errors import InputError
from distdual.estimators.inputs import SINGLE, Data, Given, features_of, is_path, weights_of
from distdual.estimators.structured_base import StructuredEstimator
from distdual.kernels.rows import Features, Floats
from distdual.problems.chain.problem import Chain


@dataclass(eq=False, repr=False, kw_only=True)
class ChainSVM(StructuredEstimator):
    """Sequence tagging by a linear chain, with a proven gap.

    X is a list with an array (n_tokens, n_features) per sequence and y a list with the tags of each; or X and y have
    one row and one tag per token, and `lengths` the number of tokens of each sequence; or X is the path or URL of a
    data set. `sample_weight` has one entry per sequence. Parameters in addition to those of DualEstimator:

    - `transitions`: learn a weight for each pair of neighbouring tags
    - `order`: 2 learns a weight for each three tags in a row as well
    - `edge_features`: learn a weight for each pair of neighbouring tags with each of the first so many features
    - `forbidden`: pairs of neighbouring tags that no tagging has, such as "O I-NP"; "iob2" for all of that scheme
    - `boundaries`: learn a weight for each tag at the start, and at the end, of a sequence
    - `tag_cost`: loss of a token with a wrong tag, by its true tag; 1 for tags not listed
    - `rescaling`: "margin" or "slack"

    Attributes after `fit`: `classes_` (the tags), `coef_` (n_tags, n_features), `transitions_` (n_tags, n_tags; from,
    to), `edge_coef_` (edge_features, n_tags, n_tags), `triples_` (n_tags, n_tags, n_tags; as they follow
    each other), `start_` and `end_` (n_tags,), and those of DualEstimator.
    """

    transitions: bool = True
    order: int = 1
    edge_features: int = 0
    forbidden: Sequence[str] = ()
    boundaries: bool = True
    tag_cost: Mapping[Any, float] | None = None
    rescaling: str = "margin"

    def fit(self, X: Any, y: Any = None, lengths: Any = None, sample_weight: Any = None) -> Self:
        """Train on sequences, or on the data set at the path or URL X."""
        return self._fit(X, Given(y, sample_weight, lengths=lengths))

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, lengths: Any = None, sample_weight: Any = None
    ) -> Self:
        """Train on these sequences and those of all earlier calls, see SVC.partial_fit."""
        return self._partial_fit(X, Given(y, sample_weight, classes, lengths))

    def predict(self, X: Any, lengths: Any = None) -> Any:
        """The tags: a flat array with `lengths`, else a list with an array per sequence."""
        check_is_fitted(self)
        data = self._open(X, Given(lengths=lengths)) if is_path(X) else self._untagged(X, lengths)
        parts = self._predict_shards(data)
        tags = self.classes_[np.concatenate([part.predicted for part in parts])]
        if lengths is not None:
            return tags
        ends = np.cumsum(np.concatenate([part.lengths for part in parts if part.lengths is not None]))
        return np.split(tags, ends[:-1])

    def predict_top(self, X: Any, k: int, lengths: Any = None) -> list[list[tuple[float, Any]]]:
        """The k best taggings of each sequence as pairs (score, tags), the best first; fewer if there are."""
        check_is_fitted(self)
        if not (isinstance(k, int) and k >= 1):
            raise InputError(f"k must be a whole number from 1, got {k!r}")
        data = self._open(X, Given(lengths=lengths)) if is_path(X) else self._untagged(X, lengths)
        found = []
        for part in self._predict_shards(data, scored=False, top=k):
            assert part.best is not None
            assert part.lengths is not None
            ends = np.cumsum(part.lengths)[:-1]
            for codes, scores in zip(*(np.split(each, ends) for each in part.best), strict=True):
                there = np.flatnonzero(scores[0] > -np.inf)
                found.append([(float(scores[0, j]), self.classes_[codes[:, j]]) for j in there])
        return found

    def score(self, X: Any, y: Any = None, lengths: Any = None) -> float:
        """The accuracy over tokens."""
        check_is_fitted(self)
        if is_path(X):
            return self._mean(self._open(X, Given(y, lengths=lengths)), "accuracy")
        right, found = sequences(X, y, lengths).y, self.predict(X, lengths)
        return float(np.mean(right == (found if lengths is not None else np.concatenate(found))))

    def _block(self, X: Any, given: Given, *, first: bool, keep: bool) -> Block:
        made = sequences(X, given.y, given.lengths)
        x = self._features(made.x, reset=first, copy=keep)
        weights = weights_of(given.sample_weight, len(made.tokens) - 1)
        return Block(x, self._codes(made.y, given.classes, first=first), weights, None, made.tokens)

    def _untagged(self, X: Any, lengths: Any) -> MemoryDataset:
        """Sequences to predict, with the first tag as a placeholder."""
        made = sequences(X, first_tags(X, lengths), lengths)
        return self._dataset(Block(self._features(made.x, reset=False), made.y, None, None, made.tokens))

    def _features(self, x: Any, *, reset: bool, copy: bool = False) -> Features:
        return features_of(validate_data(self, x, reset=reset, copy=copy, **SINGLE))

    def _problem_for(self, data: Data) -> Chain:
        cost = {label_name(tag): float(value) for tag, value in (self.tag_cost or {}).items()}
        return Chain(
            n_features=data.n_features,
            classes=data.classes,
            transitions=bool(self.transitions),
            order=self.order,
            edge_features=self.edge_features,
            forbidden=list(self.forbidden),
            boundaries=bool(self.boundaries),
            tag_cost=cost,
            rescaling=self.rescaling,
        )

    def __sklearn_tags__(self) -> Any:
        """Input is a list of matrices: a matrix alone does not say where sequences end."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags

    def _set_weights(self, w: Floats, problem: Any) -> None:
        parts, n_tags = problem.split(w), len(self.classes_)
        self.coef_ = parts.emission.T.copy()
        self.transitions_ = parts.pairs.copy() if len(parts.pairs) else np.zeros((n_tags, n_tags))
        self.edge_coef_ = parts.observed.reshape(-1, n_tags, n_tags).copy()
        self.triples_ = np.swapaxes(parts.triples, 0, 1).copy()
        self.start_, self.end_ = parts.start.copy(), parts.end.copy()


def sequences(X: Any, y: Any, lengths: Any) -> Ragged:
    """Tokens stacked in rows, after checks of X, y and `lengths`."""
    if y is None:
        raise InputError("ChainSVM requires y to be passed, but the target y is None")
    if lengths is None and not isinstance(X, Sequence):
        raise InputError("X is not a list: pass lengths, the number of tokens of each sequence, or a list of arrays")
    if lengths is None and any(len(np.shape(part)) != 2 for part in X):
        raise InputError("X is a list: expected an array (n_tokens, n_features) per sequence")
    return ragged(X, y, lengths)


def first_tags(X: Any, lengths: Any) -> Any:
    """The first tag for each token, in the form of X."""
    if lengths is not None:
        return np.zeros(np.shape(X)[0], dtype=np.int32)
    return [np.zeros(np.shape(part)[0], dtype=np.int32) for part in X]
