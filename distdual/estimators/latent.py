"""LatentSVM: classification of bags by their best candidate, with a proven gap of its last convex problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from distdual.cluster.open_executor import open_executor
from distdual.config import ClusterConfig
from distdual.coordinator.latent_loop import train_latent
from distdual.coordinator.result_model import summarise
from distdual.coordinator.run_inputs import check_unused_columns
from distdual.coordinator.trainer import Trainer
from distdual.data.dataset import Dataset
from distdual.data.shard import Block
from distdual.data.sources.sequences import Ragged, ragged
from distdual.data.validate import label_name
from distdual.errors import InputError
from distdual.estimators.base import LastFit, python_scalar
from distdual.estimators.classifier import class_costs
from distdual.estimators.evaluation import check_patience, to_all
from distdual.estimators.inputs import SINGLE, Data, Given, features_of, is_path, matrix_of, weights_of
from distdual.estimators.linear import Decided, LinearEstimator, linear_scores, split_weights
from distdual.kernels.rows import Floats, Ints
from distdual.problems.latent.bags import Latent, labels_of
from distdual.problems.latent.base import StartWeights
from distdual.report.notebook import progress


@dataclass(eq=False, repr=False, kw_only=True)
class LatentSVM(ClassifierMixin, LinearEstimator):
    """A linear classifier of bags: a bag is positive if one of its candidates is (multiple-instance learning).

        P(w) = 1/2 ||w||² + C Σ_i weight_i · max(0, 1 − y_i max_c ⟨w, x_ic⟩),     y_i = ±1

    P(w) is not convex. Training alternates between imputing the best candidate of each positive bag and solving the
    convex problem that remains. `certificate_` has the bounds of the last one and, under "latent", the objectives.

    X is a list with an array (n_candidates, n_features) per bag; or X has one row per candidate and `lengths` the
    number of candidates of each bag; or X is the path or URL of a data set. y and `sample_weight` have one entry per
    bag. Parameters in addition to those of LinearEstimator and DualEstimator:

    - `class_weight`: see SVC
    - `rounds`: largest number of convex problems to solve
    - `restarts`: number of runs from different initial candidates; the lowest objective is kept
    - `init`: "guess", candidates far along the direction from the negative to the positive mean, or "random"
    - `warm_start`: start from the weights of the previous fit; P(w) then ends no higher than theirs on the new data

    Attributes after `fit`: `classes_` (the negative and the positive label), `coef_` (1, n_features), `intercept_`,
    `witness_` (n,) (index of the imputed candidate; 0 for negative bags) and those of DualEstimator. There is no
    `partial_fit`.
    """

    class_weight: Mapping[Any, float] | str | None = None
    rounds: int = 50
    restarts: int = 1
    init: str = "guess"

    def fit(self, X: Any, y: Any = None, lengths: Any = None, sample_weight: Any = None) -> Self:
        """Train on bags, or on the data set at the path or URL X."""
        return self._fit(X, Given(y, sample_weight, lengths=lengths))

    def decision_function(self, X: Any, lengths: Any = None) -> Floats:
        """(n,) the score of each bag's best candidate, above 0 for the second class."""
        check_is_fitted(self)
        if is_path(X):
            return self._decide_stored(X, Given(lengths=lengths)).scores
        made = bags(X, None, lengths)
        x = validate_data(self, made.x, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32])
        return best_candidates(self._scores(x), made.tokens)

    def predict(self, X: Any, lengths: Any = None) -> NDArray[Any]:
        """A label for each bag."""
        return self._labels(self.decision_function(X, lengths))

    def score(self, X: Any, y: Any = None, lengths: Any = None, sample_weight: Any = None) -> float:
        """The accuracy over bags; X may be the path or URL of a data set."""
        if not is_path(X):
            right = self.predict(X, lengths) == np.asarray(y)
            return float(np.average(right, weights=weights_of(sample_weight, len(right))))
        check_is_fitted(self)
        found = self._decide_stored(X, Given(y, sample_weight, lengths=lengths), scored=True)
        return float(np.mean([label_name(label) for label in self._labels(found.scores).tolist()] == found.y))

    def __sklearn_tags__(self) -> Any:
        """Input is a list of matrices: a matrix alone does not say where bags end."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags

    def _labels(self, scores: Floats) -> NDArray[Any]:
        labels: NDArray[Any] = self.classes_[(scores > 0).astype(np.int64)]
        return labels

    def _decide_stored(self, path: Any, given: Given, *, scored: bool = False) -> Decided:
        dataset = self._open_like(path, given, scored=scored)
        with open_executor(ClusterConfig(), dataset, self._problem, self.client) as executor:
            executor.publish(0, self._w)
            parts = list(executor.map_shards(decide_bags, range(dataset.n_shards)))
        y = np.concatenate([part.y for part in parts])
        labels = np.array(dataset.classes)[y] if dataset.classes else y
        return Decided(np.concatenate([part.scores for part in parts]), labels)

    def _block(self, X: Any, given: Given, *, first: bool, keep: bool) -> Block:
        if given.y is None:
            raise InputError("LatentSVM requires y to be passed, but the target y is None")
        made = bags(X, given.y, given.lengths)
        check_classification_targets(made.y)
        x = features_of(validate_data(self, made.x, reset=first, copy=keep, **SINGLE))
        weights = weights_of(given.sample_weight, len(made.tokens) - 1)
        return Block(x, self._codes(made.y, None, first=first), weights, None, made.tokens)

    def _problem_for(self, data: Data) -> Latent:
        if isinstance(self._bias, str):
            raise InputError(f"LatentSVM: fit_intercept is True or False, got {self.fit_intercept!r}")
        problem = Latent(
            n_features=data.n_features,
            classes=data.classes,
            bias=self._bias,
            rounds=self._count("rounds"),
            restarts=self._count("restarts"),
            init=self.init,
        )
        costs = class_costs(self.class_weight, data, problem, self.client)
        return replace(problem, class_cost=costs)

    def _count(self, name: str) -> int:
        value = python_scalar(getattr(self, name))
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"LatentSVM: {name} must be a whole number, got {value!r}")
        return value

    def _train(
        self,
        data: Data,
        problem: Any,
        *,
        start: LastFit | None,  # noqa: ARG002
        keep: bool,  # noqa: ARG002
        eval_set: Any = None,
    ) -> None:
        """Train by alternation; a warm start uses w, since α belongs to candidates that may not be imputed again."""
        config = self._solver_config()
        check_patience(self, eval_set)
        if isinstance(data, Dataset):
            check_unused_columns(data, problem)
        warm = self.warm_start and self._is_fitted() and len(self._w) == problem.n_weights
        begin = StartWeights(self._w) if warm else None
        with (
            progress(self.verbose, config.gap) as shown,
            open_executor(ClusterConfig(), data, problem, self.client) as executor,
        ):
            watch = to_all([shown, *self.callbacks])
            found = train_latent(problem, lambda: Trainer(problem, data, executor, config, watch), begin)
        self.certificate_ = {**summarise(found.outcome, config.gap, data), "latent": found.summary()}
        self.n_iter_ = found.outcome.totals.passes
        self._problem, self._w, self._start = problem, found.outcome.w, None
        self.witness_ = found.completed.values.copy()
        self._set_weights(found.outcome.w, problem)


def bags(X: Any, y: Any, lengths: Any) -> Ragged:
    """Candidates stacked in rows, each with the label of its bag, or 0 without labels."""
    if lengths is None:
        if not isinstance(X, Sequence) or any(len(np.shape(part)) != 2 for part in X):
            raise InputError(
                "X must be a list with an array (n_candidates, n_features) per bag; "
                "or give lengths, the number of candidates of each bag"
            )
        sizes = np.array([np.shape(part)[0] for part in X], dtype=np.int64)
    else:
        sizes = np.asarray(lengths)
    labels = np.zeros(len(sizes), dtype=np.int32) if y is None else np.asarray(y)
    if labels.shape != sizes.shape:
        raise InputError(f"y must have a label for each of {len(sizes)} bags, found shape {labels.shape}")
    if lengths is None:
        return ragged(X, [np.full(size, label) for size, label in zip(sizes, labels, strict=True)])
    if sizes.dtype.kind not in "iu" or (sizes < 1).any():
        raise InputError("lengths must be whole numbers of at least 1: no bag is empty")
    if np.shape(X)[0] != sizes.sum():
        raise InputError(f"lengths add up to {sizes.sum()} candidates, but X has {np.shape(X)[0]} rows")
    return ragged(X, np.repeat(labels, sizes), sizes)


def best_candidates(scores: Floats, tokens: Ints) -> Floats:
    best: Floats = np.maximum.reduceat(scores, tokens[:-1])
    return best


def decide_bags(source: Any, problem: Any, w: Floats, shard: int) -> Decided:
    """Scores and labels of the bags of one shard; runs on a worker."""
    found = source.open().read(shard).shard
    scores = linear_scores(matrix_of(found.x, problem.n_features), *split_weights(w, problem))
    return Decided(best_candidates(scores, found.tokens), labels_of(found))
