"""Weighted sums of rows, in double precision: rounded ones would not be constraints of the problem."""

import numpy as np

from distdual.kernels.jit import bare_kernel, kernel
from distdual.kernels.rows import (
    CsrRows,
    DenseRows,
    Features,
    Floats,
    Ints,
    OuterRows,
    Rows,
    add,
    as_csr,
    as_dense,
)


def sum_rows(rows: Rows, weight: Floats, indptr: Ints, n_weights: int) -> Features:
    """Sum rows: row g is Σ weight_k x_k over k in indptr_g … indptr_{g + 1} − 1, dense or CSR, whichever is smaller."""
    n = len(indptr) - 1
    lengths = row_lengths(rows)
    if isinstance(rows, DenseRows) or 12 * int(lengths.sum()) >= 8 * n * n_weights:
        total = np.zeros((n, n_weights))
        add_runs(rows, weight, indptr, total)
        return smaller(DenseRows(total), n_weights)
    sparse = expand(rows)
    most = int(lengths.sum())
    out = CsrRows(np.zeros(n + 1, dtype=np.int64), np.empty(most, dtype=sparse.indices.dtype), np.empty(most))
    used = add_sparse_runs(sparse, weight, indptr, np.zeros(n_weights), np.zeros(n_weights, dtype=np.bool_), out)
    return CsrRows(out.indptr, out.indices[:used].copy(), out.values[:used].copy())


def row_lengths(rows: Rows) -> Ints:
    """Return an upper bound on the non-zero values of each row."""
    if isinstance(rows, OuterRows):
        lengths: Ints = 2 * row_lengths(rows.x)[rows.at]
        return lengths
    if isinstance(rows, DenseRows):
        return np.full(len(rows.values), rows.values.shape[1])
    return np.diff(rows.indptr)


def expand(rows: Rows) -> CsrRows:
    """Return rows in CSR form, with columns in any order."""
    if not isinstance(rows, OuterRows):
        return as_csr(rows, np.int32)
    n_weights = rows.width * (1 + int(max(rows.plus.max(initial=0), rows.minus.max(initial=0))))
    x = as_csr(rows.x, np.int32)
    lengths = np.diff(x.indptr)[rows.at]
    ends = np.cumsum(lengths)
    at = np.repeat(x.indptr[rows.at] - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)
    index_type = np.int32 if n_weights < 2**31 else np.int64
    indices, values = x.indices[at].astype(index_type), x.values[at] * np.repeat(rows.scale, lengths)
    sides = [np.repeat(side.astype(index_type) * rows.width, lengths) + indices for side in (rows.plus, rows.minus)]
    order = np.argsort(np.tile(np.repeat(np.arange(len(lengths)), lengths), 2), kind="stable")
    indptr = np.concatenate([[0], 2 * ends])
    return CsrRows(indptr, np.concatenate(sides)[order], np.concatenate([values, -values])[order])


def smaller(rows: Features, n_weights: int) -> Features:
    """Return rows as dense or CSR, whichever takes fewer bytes."""
    n_values = np.count_nonzero(rows.values) if isinstance(rows, DenseRows) else len(rows.values)
    index_type = np.int32 if n_weights < 2**31 else np.int64
    if 12 * n_values + 8 < 8 * rows.n_rows * n_weights:
        return as_csr(rows, index_type)
    return as_dense(rows, n_weights)


@bare_kernel
def add_runs(rows: Rows, weight: Floats, indptr: Ints, out: Floats) -> None:
    """out_g += Σ weight_k x_k over the run of g."""
    for g in range(len(out)):
        for k in range(indptr[g], indptr[g + 1]):
            if weight[k] != 0.0:
                add(rows, k, weight[k], out[g])


@kernel
def add_sparse_runs(rows: CsrRows, weight: Floats, indptr: Ints, total: Floats, touched: Floats, out: CsrRows) -> int:
    """Sum runs of rows into CSR rows with ascending columns; fills `out` and returns its number of values.

    `total` and `touched`, one entry per weight, are all zero before and after.
    """
    used = 0
    for g in range(len(indptr) - 1):
        begin = used
        for k in range(indptr[g], indptr[g + 1]):
            if weight[k] == 0.0:
                continue
            for j in range(rows.indptr[k], rows.indptr[k + 1]):
                column = rows.indices[j]
                total[column] += weight[k] * rows.values[j]
                if not touched[column]:
                    touched[column] = True
                    out.indices[used] = column
                    used += 1
        out.indices[begin:used].sort()
        for j in range(begin, used):
            column = out.indices[j]
            out.values[j] = total[column]
            total[column] = 0.0
            touched[column] = False
        out.indptr[g + 1] = used
    return used
