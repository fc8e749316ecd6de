"""What do problems share whose examples are plain feature vectors?"""

from collections.abc import Mapping

import numpy as np

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernel import bare_kernel
from distdual.rows import CsrRows, DenseRows, Features, Floats, Int32s, Ints, Singles, dot


def check_bias(bias: float) -> None:
    if not np.isfinite(np.float32(bias)):
        raise InputError(f"problem.bias must be finite, got {bias}")


def check_class_cost(class_cost: Mapping[str, float], classes: tuple[str, ...]) -> None:
    for label, cost in class_cost.items():
        if label not in classes:
            raise InputError(f"problem.class_cost names {label!r}; the labels are {', '.join(classes)}")
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < np.inf:
            raise InputError(f"problem.class_cost of {label!r} must be a number of at least 0, got {cost!r}")


def costs_by_class(class_cost: Mapping[str, float], classes: tuple[str, ...], shard: Shard) -> Floats:
    """cost_i · class_cost[y_i]."""
    by_class = np.array([class_cost.get(label, 1.0) for label in classes])
    cost: Floats = by_class[shard.y]
    return cost if shard.cost is None else cost * shard.cost


def scores(w: Floats, shard: Shard, bias: float) -> Floats:
    """⟨w, (features_i, bias)⟩ of each example; the bias weight is the last."""
    found = np.empty(shard.n_examples)
    find_scores(shard.x, w, float(np.float32(bias)) * w[-1] if bias else 0.0, found)
    return found


@bare_kernel
def find_scores(x: Features, w: Floats, bias_score: float, scores: Floats) -> None:
    """scores_i = ⟨w, x_i⟩ + bias_score; fills `scores`."""
    for i in range(len(scores)):
        scores[i] = dot(x, i, w) + bias_score


def signed_rows(x: Features, positive: Int32s, chosen: Ints, n_weights: int, bias: float) -> Features:
    """±(features_i, bias) of the chosen examples, + where `positive` is 1."""
    if isinstance(x, DenseRows):
        dense = np.empty((len(chosen), n_weights), dtype=np.float32)
        sign_dense(x.values, positive, chosen, np.float32(bias), dense)
        return DenseRows(dense)
    lengths = np.diff(x.indptr)[chosen] + (bias != 0)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    rows = CsrRows(indptr, np.empty(indptr[-1], dtype=x.indices.dtype), np.empty(indptr[-1], dtype=np.float32))
    sign_csr(x, positive, chosen, np.float32(bias), n_weights - 1, rows)
    return rows


@bare_kernel
def sign_dense(x: Singles, positive: Int32s, chosen: Ints, bias: np.float32, rows: Singles) -> None:
    """rows_k = ±(x_i, bias) for i = chosen_k; fills `rows`, whose width says whether there is a bias."""
    width = x.shape[1]
    for k in range(len(chosen)):
        i = chosen[k]
        sign = np.float32(1.0) if positive[k] == 1 else np.float32(-1.0)
        for j in range(width):
            rows[k, j] = sign * x[i, j]
        for j in range(width, rows.shape[1]):
            rows[k, j] = sign * bias


@bare_kernel
def sign_csr(x: CsrRows, positive: Int32s, chosen: Ints, bias: np.float32, bias_at: int, rows: CsrRows) -> None:
    """The same for sparse rows; rows.indptr is given, indices and values are filled."""
    for k in range(len(chosen)):
        i = chosen[k]
        sign = np.float32(1.0) if positive[k] == 1 else np.float32(-1.0)
        at = rows.indptr[k]
        for j in range(x.indptr[i], x.indptr[i + 1]):
            rows.indices[at] = x.indices[j]
            rows.values[at] = sign * x.values[j]
            at += 1
        if bias != 0.0:
            rows.indices[at] = bias_at
            rows.values[at] = sign * bias
