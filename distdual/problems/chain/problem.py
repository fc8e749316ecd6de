"""Sequence tagging by a linear chain: one constraint for each wrong tagging ŷ of a sequence, all sharing its slack.

    φ(x, y)   = Σ_t features_t ⊗ e_{y_t}  +  Σ_t e_{y_{t−1} y_t}  +  e_{y_1}  +  e_{y_T}
    loss(y,ŷ) = Σ_t tag_cost[y_t] · [ŷ_t ≠ y_t]                                              (Hamming)

    margin rescaling   l = loss(y, ŷ),   row = φ(x, y) − φ(x, ŷ)
    slack rescaling    l = loss(y, ŷ),   row = loss(y, ŷ) · (φ(x, y) − φ(x, ŷ))

With K tags, w = [emission (n_features, K)] [transitions (K, K), from × to] [start (K)] [end (K)]. Emission weights
lie feature by feature: the K weights of a feature that a token has are neighbours, so that neither dense nor sparse
features ever need a turned copy of w. The key of a constraint is ŷ. `viterbi` finds it, `paths` makes its row.
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
from distdual.problems.base import Constraints, Keys, Magnitude, Offenders, Problem, path_magnitude
from distdual.problems.chain.path_rows import Paths, Shape, losses_of, path_rows
from distdual.problems.chain.span_f1 import span_counts, span_tags
from distdual.problems.chain.viterbi import find_best, find_margin_rescaled, find_slack_rescaled


@dataclass(frozen=True, kw_only=True)
class Chain(Problem):
    kind: ClassVar[str] = "chain"
    data_spec: ClassVar[DataSpec] = DataSpec(examples="sequences")
    estimator: ClassVar[str | None] = "ChainSVM"
    reads_often: ClassVar[bool] = True
    takes_map: ClassVar[bool] = True

    n_features: int
    classes: tuple[str, ...]
    """The tags."""

    transitions: bool = True
    """A weight for each pair of neighbouring tags."""

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
        if self.rescaling == "slack" and len(set(self.tag_costs)) > 1:
            raise InputError("problem.rescaling = 'slack' is exact only where all tags have the same problem.tag_cost")

    @property
    def oracle_work(self) -> float:  # type: ignore[override]
        """Viterbi meets all pairs of tags at every token; the ascent reads a few rows of the tokens that differ.

        Measured with 26 tags: 35 µs for a scan of a sequence, 5 to 10 µs for a visit to its constraints.
        """
        return max(0.5, len(self.classes) / 4)

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.shape.n_weights

    @property
    def shape(self) -> Shape:
        return Shape(len(self.classes), self.n_features, self.transitions, self.boundaries)

    @property
    def tag_costs(self) -> Floats:
        return np.array([self.tag_cost.get(tag, 1.0) for tag in self.classes])

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        tokens = bounds_of(shard)
        slack, worst = np.empty(shard.n_examples), np.empty(len(shard.y), dtype=np.int32)
        if self.rescaling == "slack":
            find_slack_rescaled(shard.x, shard.y, tokens, *self.split(w), self.tag_costs, slack, worst)
        else:
            find_margin_rescaled(shard.x, shard.y, tokens, *self.split(w), self.tag_costs, 1, slack, worst)
        return Offenders(slack, Keys(tokens, worst))

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:  # noqa: ARG002 - known from the shard alone
        margin = float(self.tag_costs.max())
        longest = float(np.diff(bounds_of(shard)).max(initial=0))
        return path_magnitude(shard, 3, margin, max(1.0, longest * margin) if self.rescaling == "slack" else 1.0)

    def costs(self, shard: Shard) -> Floats:
        return np.ones(shard.n_examples) if shard.cost is None else shard.cost.copy()

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        check_keys(bounds_of(shard), chosen, keys, len(self.classes))

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
        find_best(shard.x, bounds_of(shard), *self.split(w), predicted)
        return predicted

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
        return replace(self, classes=(*self.classes, *unknown), tag_cost={})

    def split(self, w: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Emission, transitions, start and end as views; no transitions are (0, K), no boundaries zeros."""
        n_tags = len(self.classes)
        emission, rest = np.split(w, [n_tags * self.n_features])
        pairs, ends = np.split(rest, [n_tags * n_tags * self.transitions])
        ends = ends if self.boundaries else np.zeros(2 * n_tags)
        return emission.reshape(-1, n_tags), pairs.reshape(-1, n_tags), ends[:n_tags], ends[n_tags:]


def check_tag_cost(tag_cost: Mapping[str, float], classes: tuple[str, ...]) -> None:
    for tag, cost in tag_cost.items():
        if tag not in classes:
            raise InputError(f"problem.tag_cost names {tag!r}, which is no tag of the data set")
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < np.inf:
            raise InputError(f"problem.tag_cost of {tag!r} must be a number of at least 0, got {cost!r}")


def bounds_of(shard: Shard) -> Ints:
    assert shard.tokens is not None  # checked when the data set was opened
    return shard.tokens


def check_keys(tokens: Ints, chosen: Ints, keys: Keys, n_tags: int) -> None:
    """Kernels trust keys; these may come from a file."""
    wrong = np.diff(keys.indptr) != np.diff(tokens)[chosen]
    if wrong.any():
        raise InputError(f"the key of a constraint of sequence {chosen[np.argmax(wrong)]} is not one tag a token")
    if len(keys.values) and not (keys.values.min() >= 0 and keys.values.max() < n_tags):
        raise InputError(f"a key names a tag beyond the {n_tags} there are")
