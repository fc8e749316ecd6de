"""What is a matrix of rows, and what can be done with one row of it?

Features and constraints are both stored this way. `dot`, `add`, `norm2` and `inner` work on every format, in Python and
inside kernels, so a kernel is written once and compiled for each format.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.kernel import gather_kernel, kernel, specialise

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]
Bools = NDArray[np.bool_]


class DenseRows(NamedTuple):
    values: Singles  # (n, width)


class CsrRows(NamedTuple):
    indptr: Ints  # (n + 1,)
    indices: NDArray[Any]  # (nnz,) int32, or int64 past 2³¹ columns
    values: Singles  # (nnz,)


Rows = DenseRows | CsrRows


@kernel
def product(a: Floats, b: Floats) -> float:
    """⟨a, b⟩. Not BLAS: its threads fight over the cores with ours, and their number would show in the last bits."""
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


def n_rows(rows: Rows) -> int:
    return len(rows.values) if isinstance(rows, DenseRows) else len(rows.indptr) - 1


def dot(rows: Rows, k: int, w: Floats) -> float:
    """⟨w, x_k⟩, summed in float64; `w` may be longer than a row of features is wide."""
    if isinstance(rows, DenseRows):
        return float(rows.values[k].astype(np.float64) @ w[: rows.values.shape[1]])
    at = slice(rows.indptr[k], rows.indptr[k + 1])
    return float(rows.values[at].astype(np.float64) @ w[rows.indices[at]])


def add(rows: Rows, k: int, scale: float, w: Floats) -> None:
    """w ← w + scale · x_k. A CSR row names each column once."""
    if isinstance(rows, DenseRows):
        w[: rows.values.shape[1]] += scale * rows.values[k].astype(np.float64)
    else:
        at = slice(rows.indptr[k], rows.indptr[k + 1])
        w[rows.indices[at]] += scale * rows.values[at].astype(np.float64)


def norm2(rows: Rows, k: int) -> float:
    """||x_k||²."""
    if isinstance(rows, DenseRows):
        row = rows.values[k].astype(np.float64)
    else:
        row = rows.values[rows.indptr[k] : rows.indptr[k + 1]].astype(np.float64)
    return float(row @ row)


def inner(rows: Rows, k: int, j: int) -> float:
    """⟨x_k, x_j⟩. CSR rows name their columns in ascending order."""
    if isinstance(rows, DenseRows):
        return float(rows.values[k].astype(np.float64) @ rows.values[j])
    left, right = (slice(rows.indptr[row], rows.indptr[row + 1]) for row in (k, j))
    _, a, b = np.intersect1d(rows.indices[left], rows.indices[right], assume_unique=True, return_indices=True)
    return float(rows.values[left][a].astype(np.float64) @ rows.values[right][b])


def is_dense(rows: Any) -> bool:
    return getattr(rows, "instance_class", None) is DenseRows


@gather_kernel
def csr_dot(indices: Any, values: Singles, begin: int, end: int, w: Floats) -> float:
    """Σ_j w[indices_j] values_j. Unsigned indices spare Numba's test for negative ones."""
    total = 0.0
    for j in range(begin, end):
        total += values[j] * w[np.uint64(indices[j])]
    return total


@gather_kernel
def csr_add(indices: Any, values: Singles, begin: int, end: int, scale: float, w: Floats) -> None:
    """w[indices_j] += scale · values_j."""
    for j in range(begin, end):
        w[np.uint64(indices[j])] += scale * values[j]


@specialise(dot)
def _dot(rows: Any, k: Any, w: Any) -> Any:  # noqa: ARG001
    def dense(rows: Any, k: Any, w: Any) -> Any:
        values = rows.values[k]
        total = 0.0
        for j in range(len(values)):
            total += values[j] * w[j]
        return total

    def csr(rows: Any, k: Any, w: Any) -> Any:
        return csr_dot(rows.indices, rows.values, rows.indptr[k], rows.indptr[k + 1], w)

    return dense if is_dense(rows) else csr


@specialise(add)
def _add(rows: Any, k: Any, scale: Any, w: Any) -> Any:  # noqa: ARG001
    def dense(rows: Any, k: Any, scale: Any, w: Any) -> Any:
        values = rows.values[k]
        for j in range(len(values)):
            w[j] += scale * values[j]

    def csr(rows: Any, k: Any, scale: Any, w: Any) -> Any:
        csr_add(rows.indices, rows.values, rows.indptr[k], rows.indptr[k + 1], scale, w)

    return dense if is_dense(rows) else csr


@specialise(norm2)
def _norm2(rows: Any, k: Any) -> Any:  # noqa: ARG001
    def dense(rows: Any, k: Any) -> Any:
        total = 0.0
        for j in range(rows.values.shape[1]):
            total += np.float64(rows.values[k, j]) * rows.values[k, j]
        return total

    def csr(rows: Any, k: Any) -> Any:
        total = 0.0
        for j in range(rows.indptr[k], rows.indptr[k + 1]):
            total += np.float64(rows.values[j]) * rows.values[j]
        return total

    return dense if is_dense(rows) else csr


@specialise(inner)
def _inner(rows: Any, k: Any, j: Any) -> Any:  # noqa: ARG001
    def dense(rows: Any, k: Any, j: Any) -> Any:
        total = 0.0
        for c in range(rows.values.shape[1]):
            total += np.float64(rows.values[k, c]) * rows.values[j, c]
        return total

    def csr(rows: Any, k: Any, j: Any) -> Any:
        total = 0.0
        a, b = rows.indptr[k], rows.indptr[j]
        while a < rows.indptr[k + 1] and b < rows.indptr[j + 1]:
            if rows.indices[a] == rows.indices[b]:
                total += np.float64(rows.values[a]) * rows.values[b]
                a += 1
                b += 1
            elif rows.indices[a] < rows.indices[b]:
                a += 1
            else:
                b += 1
        return total

    return dense if is_dense(rows) else csr
