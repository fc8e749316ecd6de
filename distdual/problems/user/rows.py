"""Rows x_iy = φ(x_i, y_i) − φ(x_i, y) in float32, computed for many examples at once."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, DenseRows, Features, Floats, Ints

Vector = NDArray[Any] | tuple[Any, Any]
"""A vector in full, or its (indices, values)."""


class SparseVector(NamedTuple):
    indices: Ints
    values: Floats


KeptVector = Floats | SparseVector
"""A vector as it is kept: a copy, since the user's code may use its arrays again."""


class Differences(NamedTuple):
    """Rows of several examples."""

    rows: CsrRows  # float32, columns in ascending order
    off: Floats  # (n,) the norm of what rounding to float32 has changed
    norm: Floats  # (n,) of each row


def kept_vector(vector: Vector) -> KeptVector:
    if isinstance(vector, tuple):
        indices, values = vector
        return SparseVector(np.array(indices), np.array(values, dtype=np.float64))
    return np.array(vector, dtype=np.float64)


def checked_vector(vector: KeptVector, width: int) -> KeptVector:
    """Refuse what is no vector of this many weights."""
    if isinstance(vector, SparseVector):
        indices, values = vector
        whole = indices.dtype.kind in "iu" or not len(indices)
        if indices.ndim != 1 or indices.shape != values.shape or not whole or not indices_within(indices, width):
            raise InputError(f"feature_map must name weights from 0 to {width - 1}, each with its value")
    elif vector.shape != (width,):
        raise InputError(f"feature_map must return {width} values, got an array of shape {vector.shape}")
    return vector


def indices_within(indices: NDArray[Any], width: int) -> bool:
    return not len(indices) or bool(0 <= indices.min() <= indices.max() < width)


def dot_vector(w: Floats, vector: Vector) -> float:
    """⟨w, φ⟩ of what `feature_map` returned."""
    found = checked_vector(kept_vector(vector), len(w))
    if isinstance(found, SparseVector):
        return float(w[found.indices.astype(np.int64)] @ found.values)
    return float(w @ found)


def norm_of(vector: Vector, width: int) -> float:
    found = checked_vector(kept_vector(vector), width)
    return float(np.linalg.norm(found.values if isinstance(found, SparseVector) else found))


def row_differences(
    right: list[KeptVector], wrong: list[KeptVector], width: int, scale: Floats | None = None
) -> Differences:
    """right − wrong of each pair, times `scale`; raises where one is no vector."""
    with np.errstate(over="ignore", invalid="ignore"):  # too large for float32: the loss becomes infinite, and is named
        both = [*right, *wrong]
        if both and not any(isinstance(vector, SparseVector) for vector in both):
            for vector in both:
                checked_vector(vector, width)
            exact = csr_array(np.array(right) - np.array(wrong))
        else:
            exact = matrix(right, width) - matrix(wrong, width)
        exact.sort_indices()
        lengths = np.diff(exact.indptr)
        values = exact.data if scale is None else exact.data * np.repeat(scale, lengths)
        rounded = values.astype(np.float32)
        at = np.repeat(np.arange(len(right)), lengths)
        squares = np.stack([(values - rounded) ** 2, rounded.astype(np.float64) ** 2])
        off, norm = (np.sqrt(np.bincount(at, each, minlength=len(right))) for each in squares)
    kept = rounded != 0
    indptr = np.concatenate([[0], np.cumsum(np.bincount(at[kept], minlength=len(right)))]).astype(np.int64)
    index_type = np.int32 if width <= 2**31 else np.int64
    return Differences(CsrRows(indptr, exact.indices[kept].astype(index_type), rounded[kept]), off, norm)


def matrix(vectors: list[KeptVector], width: int) -> Any:
    """The vectors as rows; values that name one weight twice are added up."""
    parts = [sparse(vector, width) for vector in vectors]
    indptr = np.concatenate([[0], np.cumsum([len(part.indices) for part in parts], dtype=np.int64)])
    indices = np.concatenate([np.empty(0, dtype=np.int64), *(part.indices for part in parts)], casting="unsafe")
    values = np.concatenate([np.empty(0), *(part.values for part in parts)])
    if len(values) != len(indices) or not indices_within(indices, width) or len(parts) != len(indptr) - 1:
        for vector in vectors:
            checked_vector(vector, width)
    made = csr_array((values, indices.astype(np.int64), indptr), shape=(len(vectors), width))
    made.sum_duplicates()
    return made


def sparse(vector: KeptVector, width: int) -> SparseVector:
    if isinstance(vector, SparseVector):
        if vector.indices.dtype.kind not in "iu" or vector.indices.shape != vector.values.shape:
            checked_vector(vector, width)
        return vector
    checked_vector(vector, width)
    where = np.flatnonzero(vector)
    return SparseVector(where, vector[where])


def shorts(rows: CsrRows, margin: Floats, w: Floats) -> Floats:
    """margin − ⟨w, row⟩ of each row."""
    if not len(margin):
        return np.empty(0)
    found = csr_array((rows.values.astype(np.float64), rows.indices, rows.indptr), shape=(len(margin), len(w)))
    short: Floats = margin - found @ w
    return short


def smaller_form(rows: CsrRows, width: int) -> Features:
    """The rows in CSR or dense form, whichever takes fewer bytes."""
    n = len(rows.indptr) - 1
    if rows.indptr.nbytes + rows.indices.nbytes + rows.values.nbytes <= 4 * n * width or not n:
        return rows
    dense = np.zeros((n, width), dtype=np.float32)
    dense[np.repeat(np.arange(n), np.diff(rows.indptr)), rows.indices] = rows.values
    return DenseRows(dense)


def stack_csr(parts: list[CsrRows]) -> CsrRows:
    """One below the other."""
    ends = np.cumsum([0, *(part.indptr[-1] for part in parts)])
    indptr = [part.indptr[1:] + begin for part, begin in zip(parts, ends[:-1], strict=True)]
    return CsrRows(
        np.concatenate([[0], *indptr]).astype(np.int64),
        np.concatenate([part.indices for part in parts]),
        np.concatenate([part.values for part in parts]),
    )
