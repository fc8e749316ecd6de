"""Sequence tagging by a linear chain: one constraint for each wrong tagging ŷ of a sequence, all sharing its slack.

    φ(x, y)   = Σ_t features_t ⊗ e_{y_t}  +  Σ_t e_{y_{t−1} y_t}  +  e_{y_1}  +  e_{y_T}
                [+  Σ_t first features_t ⊗ e_{y_{t−1} y_t}]  [+  Σ_t e_{y_{t−2} y_{t−1} y_t}]
    loss(y,ŷ) = Σ_t tag_cost[y_t] · [ŷ_t ≠ y_t]                                              (Hamming)

    margin rescaling   l = loss(y, ŷ),   row = φ(x, y) − φ(x, ŷ)
    slack rescaling    l = loss(y, ŷ),   row = loss(y, ŷ) · (φ(x, y) − φ(x, ŷ))

With K tags, w = [emission (n_features, K)] [transitions (K, K), from × to] [edge features (N, K, K)] [triples (K, K,
K), middle × first × last] [start (K)] [end (K)]. Emission weights lie feature by feature: the K weights of a feature
that a token has are neighbours, so that neither dense nor sparse features ever need a turned copy of w. The key of a
constraint is ŷ. `viterbi` finds it, `path_rows` makes its row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.config import check_choice
from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rows import Floats, Ints
from distdual.problems.base import Best, Constraints, Keys, Magnitude, Offenders, Problem, path_magnitude
from distdual.problems.chain.forbidden import Allowed, allowed_by, first_forbidden, forbidden_text
from distdual.problems.chain.k_best import find_k_best
from distdual.problems.chain.path_rows import Paths, Shape, losses_of, path_rows
from distdual.problems.chain.slack_rescaled import find_slack_rescaled
from distdual.problems.chain.span_f1 import span_counts, span_tags
from distdual.problems.chain.viterbi import ChainWeights, find_best, find_margin_rescaled


@dataclass(frozen=True, kw_only=True)
class Chain(Problem):
    kind: ClassVar[str] = "chain"
    data_spec: ClassVar[DataSpec] = DataSpec(examples="sequences")
    estimator: ClassVar[str | None] = "ChainSVM"
    reads_often: ClassVar[bool] = True
    most_best: ClassVar[int] = 1000  # the time for each grows with the length of the sequence
    takes_map: ClassVar[bool] = True

    n_features: int
    classes: tuple[str, ...]
    """The tags."""

    transitions: bool = True
    """A weight for each pair of neighbouring tags."""

    order: int = 1
    """2 adds a weight for each three tags in a row; Viterbi then takes up to K times as long, with K tags."""

    edge_features: int = 0
    """A weight for each pair of neighbouring tags with each of the first so many features of the second token; a
    vocabulary begins with the most frequent features."""

    forbidden: list[str] = field(default_factory=list)
    """Pairs of neighbouring tags that no tagging has, such as "O I-NP", "<BOS> I-NP" or "O <EOS>"; "iob2" stands for
    all that this scheme forbids."""

    boundaries: bool = True
    """A weight for each tag at the start, and at the end, of a sequence."""

    tag_cost: Mapping[str, float] = field(default_factory=dict)
    """What a token adds to the loss if its right tag is missed, by tag; 1 for a tag that is not named."""

    rescaling: str = "margin"
    """"margin" or "slack"; the latter needs the same tag_cost for all tags."""

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise InputError("a chain problem needs a data set with two tags or more")
        check_choice("problem.rescaling", self.rescaling, ["margin", "slack"])
        check_tag_cost(self.tag_cost, self.classes)
        self._check_pairs()
        if self.rescaling == "slack" and len(set(self.tag_costs)) > 1:
            raise InputError("problem.rescaling = 'slack' is exact only where all tags have the same problem.tag_cost")

    def _check_pairs(self) -> None:
        if self.order not in (1, 2):
            raise InputError(f"problem.order must be 1 or 2, got {self.order}")
        if not 0 <= self.edge_features <= self.n_features:
            raise InputError(
                f"problem.edge_features takes from 0 to the {self.n_features} features there are, "
                f"got {self.edge_features}"
            )
        given = {"order = 2": self.order == 2, "edge_features": self.edge_features > 0}
        told = [name for name, is_given in given.items() if is_given]
        if told and not self.transitions:
            raise InputError(f"problem.{told[0]} needs problem.transitions = true")
        if told and self.rescaling == "slack":
            raise InputError(f"problem.{told[0]} has no inference for problem.rescaling = 'slack'; use 'margin'")
        allowed_by(self.forbidden, self.classes)

    @property
    def oracle_work(self) -> float:  # type: ignore[override]
        """Viterbi meets all pairs of tags at every token; the ascent reads a few rows of the tokens that differ.

        Measured with 26 tags: 35 µs for a scan of a sequence, 5 to 10 µs for a visit to its constraints.
        """
        n_tags = len(self.classes)
        return max(0.5, n_tags / 4) * (n_tags / 4 if self.order == 2 else 1.0)

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.shape.n_weights

    @property
    def shape(self) -> Shape:
        n_tags, triples = len(self.classes), self.order == 2
        return Shape(n_tags, self.n_features, self.transitions, self.boundaries, self.edge_features, triples)

    @property
    def tag_costs(self) -> Floats:
        return np.array([self.tag_cost.get(tag, 1.0) for tag in self.classes])

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        tokens, weights = bounds_of(shard), self.inference_weights(w)
        self._check_allowed(shard, np.arange(shard.n_examples), Keys(tokens, shard.y), "has the tags")
        slack, worst = np.empty(shard.n_examples), np.empty(len(shard.y), dtype=np.int32)
        if self.rescaling == "slack":
            find_slack_rescaled(shard.x, shard.y, tokens, weights, self.tag_costs, slack, worst)
        else:
            find_margin_rescaled(shard.x, shard.y, tokens, weights, self.tag_costs, 1, slack, worst)
        return Offenders(slack, Keys(tokens, worst))

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:  # noqa: ARG002 - known from the shard alone
        margin = float(self.tag_costs.max())
        longest = float(np.diff(bounds_of(shard)).max(initial=0))
        scale = max(1.0, longest * margin) if self.rescaling == "slack" else 1.0
        return path_magnitude(shard, 2 + self.order, margin, scale, 2 if self.edge_features else 1)

    def costs(self, shard: Shard) -> Floats:
        return np.ones(shard.n_examples) if shard.cost is None else shard.cost.copy()

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        check_keys(bounds_of(shard), chosen, keys, len(self.classes))
        self._check_allowed(shard, chosen, keys, "has a stored constraint with the tags")

    def _check_allowed(self, shard: Shard, chosen: Ints, tags: Keys, what: str) -> None:
        """Refuse a tagging of these sequences that has a forbidden pair."""
        if not self.forbidden or not len(tags.values):
            return
        found = first_forbidden(self._allowed, tags.indptr[:-1], tags.indptr[1:], tags.values)
        if found is not None:
            run, first, second = found
            raise InputError(
                f"shard {shard.number}, sequence {chosen[run]} {what} {forbidden_text(self.classes, first, second)!r}, "
                "which problem.forbidden rules out"
            )

    @property
    def _allowed(self) -> Allowed:
        return allowed_by(self.forbidden, self.classes)

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        tokens = bounds_of(shard)
        self.check_keys(shard, chosen, keys)
        paths = Paths(tokens[chosen], np.diff(tokens)[chosen], shard.y, tokens[chosen], keys.values, keys.indptr[:-1])
        margin = losses_of(paths, self.tag_costs)
        scale = margin if self.rescaling == "slack" else np.ones(len(chosen))
        rows = path_rows(shard.x, paths, scale, self.shape)
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], margin, rows, keys)

    def predict(self, w: Floats, shard: Shard) -> NDArray[np.int32]:
        """(n_tokens,) tags, sequence after sequence."""
        predicted = np.empty(len(shard.y), dtype=np.int32)
        find_best(shard.x, bounds_of(shard), self.inference_weights(w), predicted)
        return predicted

    def k_best(self, w: Floats, shard: Shard, k: int) -> Best:
        """The k best taggings of each sequence, with their scores."""
        paths, values = np.empty((len(shard.y), k), dtype=np.int32), np.empty((shard.n_examples, k))
        find_k_best(shard.x, bounds_of(shard), self.inference_weights(w), paths, values)
        return Best(paths, np.repeat(values, np.diff(bounds_of(shard)), axis=0))

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        return {"n": float(len(y)), "accuracy": float((y == predicted).sum())}

    def score_shard(self, shard: Shard, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        tokens = bounds_of(shard)
        right = np.logical_and.reduceat(y == predicted, tokens[:-1]) if len(y) else np.empty(0)
        sums = {"sequence_accuracy": float(right.sum()), "n:sequence_accuracy": float(shard.n_examples)}
        return {**self.score(y, predicted), **sums, **self._span_sums(tokens, y, predicted)}

    def _span_sums(self, tokens: Ints, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        """For tags that mark spans, such as B-NP, I-NP and O: F1 = 2 right / (there + found)."""
        if (tags := span_tags(self.classes)) is None:
            return {}
        right, there, found = map(float, span_counts(tags, tokens, y, predicted))
        return {
            "span_f1": 2 * right,
            "n:span_f1": there + found,
            "span_precision": right,
            "n:span_precision": found,
            "span_recall": right,
            "n:span_recall": there,
        }

    def judge(self, unknown: tuple[str, ...]) -> "Chain":
        """A tag that training has not seen is never predicted, so it is a mistake like any other."""
        return replace(self, classes=(*self.classes, *unknown), tag_cost={}, forbidden=[])

    def split(self, w: Floats) -> ChainWeights:
        """The parts of w as views; no transitions are (0, K), no boundaries zeros."""
        k = len(self.classes)
        emission, pairs, observed, triples, start, end = np.split(w, np.cumsum(self.shape.sizes)[:-1])
        ends = (start, end) if self.boundaries else np.zeros((2, k))
        return ChainWeights(
            emission.reshape(-1, k), pairs.reshape(-1, k), observed.reshape(-1, k * k), triples.reshape(-1, k, k), *ends
        )

    def inference_weights(self, w: Floats) -> ChainWeights:
        """The same with −∞ for what is forbidden."""
        parts = self.split(w)
        if not self.forbidden:
            return parts
        pairs, start, end = self._allowed.penalty()
        own = parts.pairs if len(parts.pairs) else np.zeros_like(pairs)
        return parts._replace(pairs=own + pairs, start=parts.start + start, end=parts.end + end)


def check_tag_cost(tag_cost: Mapping[str, float], classes: tuple[str, ...]) -> None:
    for tag, cost in tag_cost.items():
        if tag not in classes:
            raise InputError(f"problem.tag_cost names {tag!r}, which is not a tag of the data set")
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < np.inf:
            raise InputError(f"problem.tag_cost of {tag!r} must be a number of at least 0, got {cost!r}")


def bounds_of(shard: Shard) -> Ints:
    assert shard.tokens is not None  # checked when the data set was opened
    return shard.tokens


def check_keys(tokens: Ints, chosen: Ints, keys: Keys, n_tags: int) -> None:
    """Kernels trust keys; these may come from a file."""
    wrong = np.diff(keys.indptr) != np.diff(tokens)[chosen]
    if wrong.any():
        raise InputError(f"the key of a constraint of sequence {chosen[np.argmax(wrong)]} is not one tag per token")
    if len(keys.values) and not (keys.values.min() >= 0 and keys.values.max() < n_tags):
        raise InputError(f"a key names a tag beyond the {n_tags} there are")
