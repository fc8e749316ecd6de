"""Copies of rows that refer to a feature matrix, with or without their zeros."""

import numpy as np

from distdual.kernels.jit import bare_kernel
from distdual.kernels.rows import (
    CsrRows,
    DenseRows,
    Features,
    Floats,
    Int32s,
    Ints,
    OuterRows,
    ReferredRows,
    Rows,
    Singles,
    Values,
)

WIDE = 256  # features: a narrower row is there at once, zeros or not
SPARSE = 0.25  # share of all features that is not 0, at most: an index takes as much memory as a value
SAMPLE = 64  # rows that are looked at


def are_mostly_zeros(rows: Features | ReferredRows) -> bool:
    """Whether dense rows are so wide, and so many of their features 0, that sparse ones are read faster."""
    x = rows.x if isinstance(rows, ReferredRows) else rows
    if not isinstance(x, DenseRows) or x.values.shape[1] < WIDE:
        return False
    at = rows.at if isinstance(rows, ReferredRows) else np.arange(len(x.values))
    some = x.values[at[:: max(1, len(at) // SAMPLE)]]
    return bool(np.count_nonzero(some) <= SPARSE * some.size)


def packed(rows: Rows | ReferredRows) -> Rows:
    """The same with features of their own."""
    if isinstance(rows, OuterRows):
        return rows._replace(x=copied(rows.x)) if isinstance(rows.x, ReferredRows) else rows
    return copied(rows) if isinstance(rows, ReferredRows) else rows


def copied(rows: ReferredRows) -> Features:
    if isinstance(rows.x, DenseRows):
        dense = DenseRows(np.empty((len(rows.at), rows.width), dtype=np.float32))
        copy_dense(rows.x, rows.at, rows.scale, np.float32(rows.bias), dense)
        return dense
    indptr = lengths_summed(rows)
    indices, values = np.empty(indptr[-1], dtype=rows.x.indices.dtype), np.empty(indptr[-1], dtype=np.float32)
    sparse = CsrRows(indptr, indices, values)
    copy_csr(rows.x, rows.at, rows.scale, np.float32(rows.bias), rows.width - 1, sparse)
    return sparse


def without_zeros(x: DenseRows) -> CsrRows:
    """The same rows; first into room for all values, as counting them would take half as long again."""
    n, width = x.values.shape
    indptr = np.zeros(n + 1, dtype=np.int64)
    indices, values = np.empty(n * width + 1, dtype=np.int32), np.empty(n * width + 1, dtype=np.float32)
    take_filled(x.values, indptr, indices, values)
    return CsrRows(indptr, indices[: indptr[-1]].copy(), values[: indptr[-1]].copy())


def narrowed(values: Floats) -> Values:
    """A copy in single precision if it holds all of them exactly, as it does whole numbers, else in double."""
    single: Singles = np.empty(values.shape, dtype=np.float32)
    return single if fill_narrowed(values.reshape(-1), single.reshape(-1)) else values.copy()


def lengths_summed(rows: ReferredRows) -> Ints:
    """The indptr of a sparse copy."""
    if isinstance(rows.x, CsrRows):
        lengths = rows.x.indptr[rows.at + 1] - rows.x.indptr[rows.at]
    else:
        lengths = np.empty(len(rows.at), dtype=np.int64)
        count_filled(rows.x, rows.at, lengths)
    return np.concatenate([[0], np.cumsum(lengths + (rows.bias != 0))])


def widening(rows: list[Rows | ReferredRows]) -> int:
    """Return by how many bytes the values of rows grow when all have the precision of the most precise ones."""
    values = [each.values for each in rows if isinstance(each, DenseRows | CsrRows)]
    widest = max((each.itemsize for each in values), default=0)
    return sum(each.size * (widest - each.itemsize) for each in values)


@bare_kernel
def fill_narrowed(values: Floats, single: Singles) -> bool:
    """Round to single precision; fills `single`, and returns whether that changed nothing."""
    n_changed = 0
    for k in range(len(values)):
        single[k] = values[k]
        n_changed += single[k] != values[k]
    return n_changed == 0


@bare_kernel
def copy_dense(x: DenseRows, chosen: Ints, scale: Floats, bias: np.float32, rows: DenseRows) -> None:
    """rows_k = scale_k (x_i, bias) for i = chosen_k; fills `rows`, whose width says whether there is a bias."""
    width = x.values.shape[1]
    for k in range(len(chosen)):
        i = chosen[k]
        factor = np.float32(scale[k])
        for j in range(width):
            rows.values[k, j] = factor * x.values[i, j]
        for j in range(width, rows.values.shape[1]):
            rows.values[k, j] = factor * bias


@bare_kernel
def copy_csr(x: CsrRows, chosen: Ints, scale: Floats, bias: np.float32, bias_at: int, rows: CsrRows) -> None:
    """The same for sparse rows; rows.indptr is given, indices and values are filled."""
    for k in range(len(chosen)):
        i = chosen[k]
        factor = np.float32(scale[k])
        own, there = slice(rows.indptr[k], rows.indptr[k + 1]), slice(x.indptr[i], x.indptr[i + 1])
        at, values, from_at, from_values = rows.indices[own], rows.values[own], x.indices[there], x.values[there]
        for j in range(len(from_at)):
            at[j] = from_at[j]
            values[j] = factor * from_values[j]
        if bias != 0.0:
            at[-1] = bias_at
            values[-1] = factor * bias


@bare_kernel
def count_filled(x: DenseRows, chosen: Ints, lengths: Ints) -> None:
    """How many features of the chosen rows are not 0; fills `lengths`."""
    for k in range(len(chosen)):
        row, n = x.values[chosen[k]], 0
        for j in range(len(row)):
            n += row[j] != 0.0
        lengths[k] = n


@bare_kernel
def copy_filled(x: DenseRows, chosen: Ints, scale: Floats, bias: np.float32, bias_at: int, rows: CsrRows) -> None:
    """As `copy_csr`, of dense rows without their zeros; indices and values have one place more than is filled.

    Branch-free, as branches would be mispredicted: a zero is written where the next value will be.
    """
    for k in range(len(chosen)):
        row, factor, at = x.values[chosen[k]], np.float32(scale[k]), np.uint64(rows.indptr[k])
        for j in range(len(row)):
            rows.indices[at] = j
            rows.values[at] = factor * row[j]
            at += np.uint64(row[j] != 0.0)
        if bias != 0.0:
            rows.indices[at] = bias_at
            rows.values[at] = factor * bias


@bare_kernel
def take_filled(x: Singles, indptr: Ints, indices: Int32s, values: Singles) -> None:
    """What is not 0 of all rows, one after the other, in the same way; fills indptr from 1 on, indices and values."""
    at = np.uint64(0)
    for i in range(len(x)):
        row = x[i]
        for j in range(len(row)):
            indices[at] = j
            values[at] = row[j]
            at += np.uint64(row[j] != 0.0)
        indptr[i + 1] = at
