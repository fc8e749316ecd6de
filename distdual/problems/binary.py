"""Binary classification: one constraint an example.

    l_i = margin_i,   x_i = y_i · (features_i, bias),   y_i = ±1,   C_i = C · cost_i · class_cost[y_i]

Margins and costs are 1 unless the data set has such columns. With bias = 0 there is no bias weight.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernel import kernel
from distdual.problems.base import Constraints, Keys, Offenders, Problem
from distdual.rows import CsrRows, DenseRows, Floats, Int32s, Ints, Rows, Singles, dot


@dataclass(frozen=True, kw_only=True)
class Binary(Problem):
    kind: ClassVar[str] = "binary"

    n_features: int
    classes: tuple[str, ...]
    """The negative and the positive label."""

    bias: float = 0.0
    """The constant feature v of the bias weight; 0 for none. The bias weight is regularised like all others."""

    class_cost: Mapping[str, float] = field(default_factory=dict)
    """What a unit of slack costs in a class, by label; 1 for a label that is not named."""

    def __post_init__(self) -> None:
        if len(self.classes) != 2:
            found = ", ".join(self.classes) or "none"
            raise InputError(f"a binary problem needs a data set with two labels; this one has {found}")
        if not np.isfinite(self.bias):
            raise InputError(f"problem.bias must be finite, got {self.bias}")
        for label, cost in self.class_cost.items():
            if label not in self.classes:
                raise InputError(f"problem.class_cost names {label!r}; the labels are {', '.join(self.classes)}")
            if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < np.inf:
                raise InputError(f"problem.class_cost of {label!r} must be a number of at least 0, got {cost!r}")

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.n_features + (self.bias != 0)

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        slack = np.empty(shard.n_examples)
        bias_score = float(np.float32(self.bias)) * w[-1] if self.bias else 0.0
        find_slacks(shard.x, shard.y, self._margins(shard), w, bias_score, slack)
        return Offenders(slack, Keys.none(shard.n_examples))

    def costs(self, shard: Shard) -> Floats:
        by_class = np.array([self.class_cost.get(label, 1.0) for label in self.classes])
        cost: Floats = by_class[shard.y]
        return cost if shard.cost is None else cost * shard.cost

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        return Constraints(
            shard.first + chosen,
            self.costs(shard)[chosen],
            self._margins(shard)[chosen],
            signed_rows(shard.x, shard.y, chosen, self.n_weights, np.float32(self.bias)),
            keys,
        )

    def predict(self, w: Floats, shard: Shard) -> NDArray[np.int32]:
        scores = np.empty(shard.n_examples)
        find_scores(shard.x, w, float(np.float32(self.bias)) * w[-1] if self.bias else 0.0, scores)
        return (scores > 0).astype(np.int32)

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        return {"n": float(len(y)), "accuracy": float((y == predicted).sum())}

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "n_features": self.n_features,
            "classes": list(self.classes),
            "bias": self.bias,
            "class_cost": dict(self.class_cost),
        }

    def _margins(self, shard: Shard) -> Floats:
        return np.ones(shard.n_examples) if shard.margin is None else shard.margin


@kernel
def find_slacks(x: Rows, y: Int32s, margin: Floats, w: Floats, bias_score: float, slack: Floats) -> None:
    """slack_i = max(0, l_i − y_i (⟨w, x_i⟩ + bias_score)); fills `slack`, and a NaN score stays NaN."""
    for i in range(len(y)):
        score = dot(x, i, w) + bias_score
        found = margin[i] - (score if y[i] == 1 else -score)
        slack[i] = 0.0 if found <= 0.0 else found


@kernel
def find_scores(x: Rows, w: Floats, bias_score: float, scores: Floats) -> None:
    """scores_i = ⟨w, x_i⟩ + bias_score; fills `scores`."""
    for i in range(len(scores)):
        scores[i] = dot(x, i, w) + bias_score


def signed_rows(x: Rows, y: Int32s, chosen: Ints, n_weights: int, bias: np.float32) -> Rows:
    """y_i · (features_i, bias) of the chosen examples."""
    if isinstance(x, DenseRows):
        dense = np.empty((len(chosen), n_weights), dtype=np.float32)
        sign_dense(x.values, y, chosen, bias, dense)
        return DenseRows(dense)
    lengths = np.diff(x.indptr)[chosen] + (bias != 0)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    rows = CsrRows(indptr, np.empty(indptr[-1], dtype=x.indices.dtype), np.empty(indptr[-1], dtype=np.float32))
    sign_csr(x, y, chosen, bias, n_weights - 1, rows)
    return rows


@kernel
def sign_dense(x: Singles, y: Int32s, chosen: Ints, bias: np.float32, rows: Singles) -> None:
    """rows_k = y_i · (x_i, bias) for i = chosen_k; fills `rows`, whose width says whether there is a bias."""
    width = x.shape[1]
    for k in range(len(chosen)):
        i = chosen[k]
        sign = np.float32(1.0) if y[i] == 1 else np.float32(-1.0)
        for j in range(width):
            rows[k, j] = sign * x[i, j]
        for j in range(width, rows.shape[1]):
            rows[k, j] = sign * bias


@kernel
def sign_csr(x: CsrRows, y: Int32s, chosen: Ints, bias: np.float32, bias_at: int, rows: CsrRows) -> None:
    """The same for sparse rows; rows.indptr is given, indices and values are filled."""
    for k in range(len(chosen)):
        i = chosen[k]
        sign = np.float32(1.0) if y[i] == 1 else np.float32(-1.0)
        at = rows.indptr[k]
        for j in range(x.indptr[i], x.indptr[i + 1]):
            rows.indices[at] = x.indices[j]
            rows.values[at] = sign * x.values[j]
            at += 1
        if bias != 0.0:
            rows.indices[at] = bias_at
            rows.values[at] = sign * bias
