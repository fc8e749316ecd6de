"""Multiclass classification (Crammer-Singer): one constraint for each wrong class, all sharing the example's slack.

    margin rescaling   l_ij = loss(y_i, j),   x_ij = (e_{y_i} − e_j) ⊗ (features_i, bias)
    slack rescaling    l_ij = loss(y_i, j),   x_ij = loss(y_i, j) · (e_{y_i} − e_j) ⊗ (features_i, bias)

w has one block of weights a class, the class's bias weight last. C_i = C · cost_i · class_cost[y_i].
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.config import check_choice
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.jit import bare_kernel, kernel
from distdual.kernels.rows import (
    TWELVE,
    DenseRows,
    Floats,
    Int32s,
    Ints,
    OuterRows,
    Singles,
    csr_add_blocks,
    csr_add_twelves,
)
from distdual.problems.base import Constraints, Keys, Magnitude, Offenders, Problem, check_key_lengths
from distdual.problems.linear import check_bias, check_class_cost, costs_by_class, linear_magnitude, linear_rows
from distdual.schema import below

SCORES = 2**15  # that are computed together: what comes after finds them near
FEW, MANY = 4, 2 * TWELVE  # classes between which scores of sparse features are computed twelve at a time


@dataclass(frozen=True, kw_only=True)
class Multiclass(Problem):
    kind: ClassVar[str] = "multiclass"
    estimator: ClassVar[str | None] = "SVC"
    takes_map: ClassVar[bool] = True
    has_boundary: ClassVar[bool] = True
    oracle_work: ClassVar[float] = 2.0
    reads_often: ClassVar[bool] = True

    n_features: int
    classes: tuple[str, ...]

    bias: float = 0.0
    """The constant feature v of every class's bias weight; 0 for none."""

    class_cost: Mapping[str, float] = field(default_factory=dict)
    """What a unit of slack costs in a class, by label; 1 for a label that is not named."""

    loss: list[Any] = field(default_factory=list)
    """`loss[y][j]` of predicting j where y is right, classes in the order of `distdual info`; 0/1 if not given."""

    rescaling: str = "margin"
    """"margin" or "slack"."""

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise InputError("a multiclass problem needs a data set with two labels or more")
        check_bias(self.bias)
        check_class_cost(self.class_cost, self.classes)
        check_choice("problem.rescaling", self.rescaling, ["margin", "slack"])
        check_loss_matrix(self.loss, len(self.classes))

    @property
    def width(self) -> int:
        """Weights a class."""
        return self.n_features + (self.bias != 0)

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return len(self.classes) * self.width

    @property
    def losses(self) -> Floats:
        """(K, K) loss of predicting j where y is right."""
        return np.array(self.loss, dtype=np.float64) if self.loss else 1.0 - np.eye(len(self.classes))

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        slack, worst = np.empty(shard.n_examples), np.empty(shard.n_examples, dtype=np.int32)
        losses, rescaled = self.losses, self.rescaling == "slack"
        for begin, scores in self.score_blocks(w, shard):
            y, end = shard.y[begin : begin + len(scores)], begin + len(scores)
            find_worst(scores, y, losses, rescaled, slack[begin:end], worst[begin:end])
        return Offenders(slack, Keys(np.arange(shard.n_examples + 1), worst))

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:  # noqa: ARG002 - known from the shard alone
        largest = float(self.losses.max())
        one = linear_magnitude(shard, self.bias, largest)
        return one._replace(row=2.0 * one.row * (largest if self.rescaling == "slack" else 1.0))

    def costs(self, shard: Shard) -> Floats:
        return costs_by_class(self.class_cost, self.classes, shard)

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        y, j = shard.y[chosen], keys.values
        loss = self.losses[y, j]
        scale = loss if self.rescaling == "slack" else np.ones(len(chosen))
        rows = self.outer_rows(shard, chosen, y, j, scale)
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], loss, rows, keys)

    def outer_rows(self, shard: Shard, chosen: Ints, plus: Int32s, minus: Int32s, scale: Floats) -> OuterRows:
        """scale · (e_plus − e_minus) ⊗ (features, bias); the features of an example are there once."""
        which, at = np.unique(chosen, return_inverse=True)
        x = linear_rows(shard, which, np.ones(len(which)), self.width, self.bias)
        return OuterRows(x, at, plus, minus, scale, self.width)

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:  # noqa: ARG002
        check_key_lengths(shard, keys, 1)
        below(f"shard {shard.number}: the class in the key of a constraint", keys.values, len(self.classes))

    def predict(self, w: Floats, shard: Shard) -> NDArray[np.int32]:
        parts = [scores.argmax(axis=1) for _, scores in self.score_blocks(w, shard)]
        return np.concatenate(parts).astype(np.int32) if parts else np.empty(0, dtype=np.int32)

    def decision(self, w: Floats, shard: Shard) -> Floats:
        """(n, K): the highest is the prediction."""
        parts = [scores for _, scores in self.score_blocks(w, shard)]
        return np.concatenate(parts) if parts else np.empty((0, len(self.classes)))

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        found = {"n": float(len(y)), "accuracy": float((y == predicted).sum())}
        return {**found, "loss": float(self.losses[y, predicted].sum())} if self.loss else found

    def score_blocks(self, w: Floats, shard: Shard) -> Any:
        """Scores of all classes, some examples at a time: (first example, (n, K))."""
        blocks = w.reshape(len(self.classes), self.width)
        dense = isinstance(shard.x, DenseRows)
        by_feature = blocks if dense else turned(blocks[:, : self.n_features])
        start = float(np.float32(self.bias)) * blocks[:, -1] if self.bias else np.zeros(len(blocks))
        at_once = max(4, SCORES // len(blocks))
        for begin in range(0, shard.n_examples, at_once):
            scores = np.empty((min(at_once, shard.n_examples - begin), len(blocks)))
            scores[:] = start
            if isinstance(shard.x, DenseRows):
                add_dense_scores(shard.x.values[begin : begin + len(scores)], blocks, scores)
            else:
                x = shard.x
                add_csr_scores(x.indptr[begin : begin + len(scores) + 1], x.indices, x.values, by_feature, scores)
            yield begin, scores


def turned(blocks: Floats) -> Floats:
    """A row for each feature, with the weights of all classes, and a few zeros where twelve are read faster."""
    n_classes, n_features = blocks.shape
    width = -(-n_classes // TWELVE) * TWELVE if FEW < n_classes <= MANY else n_classes
    by_feature = np.zeros((n_features, width))
    by_feature[:, :n_classes] = blocks.T
    return by_feature


def check_loss_matrix(loss: list[Any], n_classes: int) -> None:
    if not loss:
        return
    try:
        matrix = np.array(loss, dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.shape != (n_classes, n_classes):
        raise InputError(f"problem.loss must be {n_classes} rows of {n_classes} numbers, one per class")
    if not (np.isfinite(matrix).all() and (matrix >= 0).all() and not matrix.diagonal().any()):
        raise InputError("problem.loss must be finite and not negative, and 0 where the prediction is right")


@bare_kernel
def add_dense_scores(x: Singles, blocks: Floats, scores: Floats) -> None:
    """scores_ic += Σ_j x_ij w_cj, for four examples and two classes at a time, so that what is loaded is used often.

    What is missing of the last four, or of the last two, is computed in vain.
    """
    n, width = x.shape
    n_classes = scores.shape[1]
    for i in range(0, n, 4):
        p, q, r, s = x[i], x[min(i + 1, n - 1)], x[min(i + 2, n - 1)], x[min(i + 3, n - 1)]
        for c in range(0, n_classes, 2):
            left, right = blocks[c], blocks[min(c + 1, n_classes - 1)]
            pl, ql, rl, sl = 0.0, 0.0, 0.0, 0.0
            pr, qr, rr, sr = 0.0, 0.0, 0.0, 0.0
            for j in range(width):
                a, b = left[j], right[j]
                pl += p[j] * a
                ql += q[j] * a
                rl += r[j] * a
                sl += s[j] * a
                pr += p[j] * b
                qr += q[j] * b
                rr += r[j] * b
                sr += s[j] * b
            for k, (of_left, of_right) in enumerate(((pl, pr), (ql, qr), (rl, rr), (sl, sr))):
                if i + k < n:
                    scores[i + k, c] += of_left
                    if c + 1 < n_classes:
                        scores[i + k, c + 1] += of_right


@bare_kernel
def add_csr_scores(indptr: Ints, indices: Any, values: Singles, by_feature: Floats, scores: Floats) -> None:
    """The same for sparse rows, with the weights of a feature as `turned` has them."""
    twelves = by_feature.shape[1] % TWELVE == 0 and by_feature.shape[1] <= MANY
    for i in range(len(scores)):
        if twelves:
            csr_add_twelves(indices, values, indptr[i], indptr[i + 1], by_feature, scores[i])
        else:
            csr_add_blocks(indices, values, indptr[i], indptr[i + 1], by_feature, scores[i])


@kernel
def find_worst(scores: Floats, y: Int32s, losses: Floats, slack_rescaling: bool, slack: Floats, worst: Int32s) -> None:
    """The class j that maximises loss(y, j) − m_j, or loss(y, j) (1 − m_j), with m_j = s_y − s_j; a NaN stays NaN.

    Fills `slack` with max(0, ·) and `worst` with j.
    """
    for i in range(len(y)):
        best, at = 0.0, y[i]
        for j in range(scores.shape[1]):
            if j == y[i]:
                continue
            behind = scores[i, j] - scores[i, y[i]]
            found = losses[y[i], j] * (1.0 + behind) if slack_rescaling else losses[y[i], j] + behind
            if not found <= best:
                best, at = found, np.int32(j)
        slack[i], worst[i] = best, at
