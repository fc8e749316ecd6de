"""Ordinal regression: a score for each example, and K − 1 thresholds between the K classes, which are in order.

    s_i = ⟨w, features_i⟩,   threshold k is bias · θ_k,   z_ik = 1 if y_i > k, else −1
    ξ_i = Σ_{k of T_i} max(0, 1 − z_ik (s_i − bias · θ_k))

    loss = "all"         T_i = all thresholds: off by two classes costs more than off by one
    loss = "adjacent"    T_i = those next to class y_i

A constraint takes a subset S of T_i:  l = |S|,  x = Σ_S z_ik (features_i, −bias e_k). Its key is S as whole numbers of
31 bits. w = [features] [thresholds]; C_i = C · cost_i · class_cost[y_i]. The thresholds are regularised like all other
weights. A prediction is the number of thresholds below the score. (Joachims 2006, Chu and Keerthi 2007)
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.config import check_choice
from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.jit import bare_kernel, kernel
from distdual.kernels.rounding import MARGIN, longest_row
from distdual.kernels.row_copies import narrowed
from distdual.kernels.rows import CsrRows, DenseRows, Features, Floats, Int32s, Ints, dot
from distdual.problems.base import Constraints, Keys, Magnitude, Offenders, Problem, check_key_lengths
from distdual.problems.linear import check_class_cost, costs_by_class, scores

BITS = 31  # thresholds in one number of a key


@dataclass(frozen=True, kw_only=True)
class Ordinal(Problem):
    kind: ClassVar[str] = "ordinal"
    data_spec: ClassVar[DataSpec] = DataSpec()
    estimator: ClassVar[str | None] = "OrdinalSVC"
    takes_map: ClassVar[bool] = True

    n_features: int
    classes: tuple[str, ...]
    """The labels: numbers by value, words by spelling."""

    order: list[str] = field(default_factory=list)
    """All labels from the lowest class to the highest; numbers are in their own order if it is not given."""

    bias: float = 1.0
    """The constant feature of the thresholds' weights; the larger, the less the thresholds are regularised."""

    loss: str = "all"
    """"all" thresholds, so that the loss grows with the distance of classes; or "adjacent" ones alone."""

    class_cost: Mapping[str, float] = field(default_factory=dict)
    """What a unit of slack costs in a class, by label; 1 for a label that is not named."""

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise InputError("an ordinal problem needs a data set with two labels or more")
        if sorted(self.order or self.classes) != sorted(self.classes):
            raise InputError(f"problem.order must name each label once, {', '.join(self.classes)}; got {self.order}")
        if not self.order and not all(map(is_number, self.classes)):
            raise InputError(f"the labels {', '.join(self.classes)} are not numbers; give their order as problem.order")
        check_choice("problem.loss", self.loss, ["all", "adjacent"])
        check_class_cost(self.class_cost, self.classes)
        if not 0 < self.bias < np.inf or not 0 < np.float32(self.bias) < np.inf:
            raise InputError(f"problem.bias must be positive and finite, as thresholds need it, got {self.bias}")

    @property
    def n_thresholds(self) -> int:
        return len(self.classes) - 1

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.n_features + self.n_thresholds

    @property
    def key_length(self) -> int:
        return -(-self.n_thresholds // BITS)

    @property
    def ranks(self) -> Int32s:
        """(K,) the place of each label in the order of classes."""
        order = self.order or list(self.classes)
        return np.array([order.index(label) for label in self.classes], dtype=np.int32)

    def thresholds(self, w: Floats) -> Floats:
        """(K − 1,) what scores are compared with."""
        found: Floats = float(np.float32(self.bias)) * w[self.n_features :]
        return found

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        slack = np.empty(shard.n_examples)
        keys = np.zeros((shard.n_examples, self.key_length), dtype=np.int32)
        find_subsets(shard.x, self.ranks[shard.y], w, self.thresholds(w), self.loss == "adjacent", slack, keys)
        return Offenders(slack, Keys(self.key_length * np.arange(shard.n_examples + 1), keys.reshape(-1)))

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:  # noqa: ARG002 - known from the shard alone
        most = float(min(self.n_thresholds, 2 if self.loss == "adjacent" else self.n_thresholds))
        row = MARGIN * most * float(np.hypot(shard.norm_bound(), np.float32(self.bias)))
        return Magnitude(longest_row(shard.x) + most + 4.0, row, most, most)

    def costs(self, shard: Shard) -> Floats:
        return costs_by_class(self.class_cost, self.classes, shard)

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        subsets = keys.values.reshape(len(chosen), self.key_length)
        sizes = np.empty(len(chosen))
        signs = np.zeros((len(chosen), self.n_thresholds))
        find_signs(self.ranks[shard.y[chosen]], subsets, signs, sizes)
        rows = threshold_rows(shard.x, chosen, signs, float(np.float32(self.bias)), self.n_features)
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], sizes, rows, keys)

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        check_key_lengths(shard, keys, self.key_length)
        named = keys.values.reshape(len(chosen), self.key_length)
        allowed, y = np.zeros_like(named), self.ranks[shard.y[chosen]]
        for k in range(self.n_thresholds):
            near = (y == k) | (y == k + 1)
            allowed[:, k // BITS] |= np.where(near | (self.loss == "all"), 1 << k % BITS, 0).astype(np.int32)
        wrong = ((named & ~allowed) != 0).any(axis=1)
        if wrong.any():
            example = shard.first + chosen[np.argmax(wrong)]
            raise InputError(f"the key of a constraint of example {example} names thresholds that do not exist")

    def predict(self, w: Floats, shard: Shard) -> NDArray[np.int32]:
        classes = np.argsort(self.ranks)
        return classes[rank_of(self.decision(w, shard), self.thresholds(w))].astype(np.int32)

    def decision(self, w: Floats, shard: Shard) -> Floats:
        """(n,) scores, which thresholds divide into classes."""
        return scores(w, shard, 0.0)

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        off = np.abs(self.ranks[y] - self.ranks[predicted])
        return {"n": float(len(y)), "accuracy": float((off == 0).sum()), "class_error": float(off.sum())}


def is_number(label: str) -> bool:
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


def rank_of(scores: Floats, thresholds: Floats) -> Ints:
    """The number of thresholds below each score."""
    above: Ints = (scores[:, None] > thresholds).sum(axis=1)
    return above


def threshold_rows(x: Features, chosen: Ints, signs: Floats, bias: float, n_features: int) -> Features:
    """(Σ_k sign_k features, −bias · signs) of the chosen examples, in double precision unless single holds it."""
    total, n_thresholds = signs.sum(axis=1), signs.shape[1]
    if isinstance(x, DenseRows):
        values = np.empty((len(chosen), n_features + n_thresholds))
        values[:, :n_features] = total[:, None] * x.values[chosen]
        values[:, n_features:] = -bias * signs
        return DenseRows(narrowed(values))
    own = x.take(chosen)
    lengths = np.where(total != 0.0, np.diff(own.indptr), 0) + (signs != 0).sum(axis=1)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices, values = np.empty(indptr[-1], dtype=own.indices.dtype), np.empty(indptr[-1])
    fill_threshold_rows(own, total, signs, bias, n_features, indptr, indices, values)
    return CsrRows(indptr, indices, narrowed(values))


@bare_kernel
def find_subsets(
    x: Features, y: Int32s, w: Floats, thresholds: Floats, adjacent: bool, slack: Floats, keys: NDArray[np.int32]
) -> None:
    """ξ_i, and the thresholds that add to it; fills `slack` and sets bits of `keys`, which are 0. NaN stays."""
    for i in range(len(y)):
        score, found = dot(x, i, w), 0.0
        first, end = 0, len(thresholds)
        if adjacent:
            first, end = max(first, y[i] - 1), min(end, y[i] + 1)
        for k in range(first, end):
            ahead = score - thresholds[k]
            loss = 1.0 - (ahead if y[i] > k else -ahead)
            if not loss <= 0.0:
                found += loss
                keys[i, k // BITS] |= np.int32(1 << (k % BITS))
        slack[i] = found


@kernel
def find_signs(y: Int32s, keys: NDArray[np.int32], signs: Floats, sizes: Floats) -> None:
    """z_ik of the thresholds in each key, 0 of others, and how many there are; fills both."""
    for i in range(len(y)):
        sizes[i] = 0.0
        for k in range(signs.shape[1]):
            signs[i, k] = 0.0
            if keys[i, k // BITS] >> (k % BITS) & 1:
                signs[i, k] = 1.0 if y[i] > k else -1.0
                sizes[i] += 1.0


@bare_kernel
def fill_threshold_rows(
    x: CsrRows, total: Floats, signs: Floats, bias: float, n_features: int, indptr: Ints, indices: Any, values: Floats
) -> None:
    """Sparse rows of given lengths; fills indices and values."""
    for i in range(len(total)):
        at = indptr[i]
        if total[i] != 0.0:
            for j in range(x.indptr[i], x.indptr[i + 1]):
                indices[at], values[at] = x.indices[j], total[i] * x.values[j]
                at += 1
        for k in range(signs.shape[1]):
            if signs[i, k] != 0.0:
                indices[at], values[at] = n_features + k, -bias * signs[i, k]
                at += 1
