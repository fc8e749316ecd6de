"""The row formats, and the operations on one row that kernels share.

Features and constraints are both stored this way. `dot`, `add`, `norm2` and `inner` work on every format, in Python and
inside kernels, so a kernel is written once and compiled for each format. Every format has `n_rows` and `take`; the two
formats of features also have the methods below them, so that a caller need not ask which one it has.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.kernels.jit import bare_kernel, fetch, gather_kernel, inlined_kernel, specialise
from distdual.kernels.simd import FOUR, add_four, add_gathered, no_four, put_four, sum_of_four, write_four

LINE = 16  # values of a row that come together from memory, in single precision
TWELVE = 3 * FOUR  # sums at once: as many as it takes to have the next one ready when all have begun
FETCHED = 8 * LINE  # values, from which on the processor sees by itself that the row goes on

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Values = NDArray[Any]  # float32; sums of rows are float64
Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]
Bools = NDArray[np.bool_]


def bits_of(values: NDArray[Any]) -> NDArray[Any]:
    """The same memory as whole numbers: kernels that only move values are compiled once for each size of them."""
    return values.view(f"i{values.itemsize}")


def copy_runs(indptr: Ints, chosen: Ints, to: Ints, values: NDArray[Any], taken: NDArray[Any]) -> None:
    """Copy the values of run chosen_k to taken[to_k …]; fills `taken`."""
    move_runs(indptr, chosen, to, bits_of(values), bits_of(taken))


@bare_kernel
def move_runs(indptr: Ints, chosen: Ints, to: Ints, values: NDArray[Any], taken: NDArray[Any]) -> None:
    for k in range(len(chosen)):
        own, there = taken[to[k] : to[k + 1]], values[indptr[chosen[k]] : indptr[chosen[k] + 1]]
        for j in range(len(own)):
            own[j] = there[j]


class DenseRows(NamedTuple):
    values: Values  # (n, width)

    @property
    def n_rows(self) -> int:
        return len(self.values)

    def take(self, which: Any) -> "DenseRows":
        """The rows selected by a slice, an index array or a mask; a view if by a slice."""
        return DenseRows(self.values[which])

    def piece(self, begin: int, end: int) -> "DenseRows":
        """Rows begin … end − 1 as a view."""
        return DenseRows(self.values[begin:end])

    def trimmed(self) -> "DenseRows":
        """The same rows as views that hold no others."""
        return self

    def contiguous(self) -> "DenseRows":
        """The same rows in the order that kernels read; a copy if they are strided views."""
        return self

    @staticmethod
    def joined(parts: Sequence["DenseRows"]) -> "DenseRows":
        """Several matrices, one below the other."""
        return DenseRows(np.concatenate([part.values for part in parts]))

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    @property
    def ends(self) -> Ints | None:
        """(n + 1,) where each row begins and ends among the stored values; None if all are of one length."""
        return None

    @property
    def width(self) -> int | None:
        """The number of columns; None where only the columns that hold something are known."""
        return int(self.values.shape[1])

    @property
    def n_columns(self) -> int:
        """The number of columns, or of those up to the last that holds something."""
        return int(self.values.shape[1])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays under their names in a data set."""
        return {"x": self.values}

    def row_sums(self, of: Floats) -> Floats:
        """The sum over each row of one number for each stored value."""
        return np.asarray(of.sum(axis=1))


class CsrRows(NamedTuple):
    indptr: Ints  # (n + 1,)
    indices: NDArray[Any]  # (nnz,) int32, or int64 past 2³¹ columns
    values: Values  # (nnz,)

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    def take(self, which: Any) -> "CsrRows":
        chosen = np.arange(self.n_rows)[which]
        indptr = np.concatenate([[0], np.cumsum(np.diff(self.indptr)[chosen])])
        taken = CsrRows(indptr, *(np.empty(indptr[-1], dtype=part.dtype) for part in (self.indices, self.values)))
        copy_runs(self.indptr, chosen, indptr, self.indices, taken.indices)
        copy_runs(self.indptr, chosen, indptr, self.values, taken.values)
        return taken

    def piece(self, begin: int, end: int) -> "CsrRows":
        return self._replace(indptr=self.indptr[begin : end + 1])

    def trimmed(self) -> "CsrRows":
        own = slice(int(self.indptr[0]), int(self.indptr[-1]))
        return CsrRows(self.indptr - own.start, self.indices[own], self.values[own])

    def contiguous(self) -> "CsrRows":
        return CsrRows(*(np.ascontiguousarray(part) for part in self))

    @staticmethod
    def joined(parts: Sequence["CsrRows"]) -> "CsrRows":
        own = [part.trimmed() for part in parts]
        offsets = np.cumsum([0] + [len(part.values) for part in own])
        moved = [part.indptr[1:] + at for part, at in zip(own, offsets[:-1], strict=True)]
        indices, values = (np.concatenate(column) for column in zip(*(part[1:] for part in own), strict=True))
        return CsrRows(np.concatenate([[0], *moved]), indices, values)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self)

    @property
    def ends(self) -> Ints | None:
        return self.indptr

    @property
    def width(self) -> int | None:
        return None

    @property
    def n_columns(self) -> int:
        return int(self.indices.max(initial=-1)) + 1

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._asdict()

    def row_sums(self, of: Floats) -> Floats:
        row = np.repeat(np.arange(self.n_rows), np.diff(self.indptr))
        return np.bincount(row, of, minlength=self.n_rows).astype(np.float64)


class ReferredRows(NamedTuple):
    """x_k = scale_k (features, bias), of a matrix that is kept elsewhere. Kernels take copies: see row_copies.py."""

    x: DenseRows | CsrRows  # the features, of more rows than these
    at: Ints  # (n,) which of them
    scale: Floats  # (n,)
    bias: float  # the constant that follows the features; 0 where none does
    width: int  # columns, with that one

    @property
    def n_rows(self) -> int:
        return len(self.at)

    @property
    def nbytes(self) -> int:
        """The size of a copy."""
        if isinstance(self.x, DenseRows):
            return len(self.at) * self.width * self.x.values.itemsize
        n_values = (self.x.indptr[self.at + 1] - self.x.indptr[self.at]).sum() + len(self.at) * (self.bias != 0)
        per_value = self.x.indices.itemsize + self.x.values.itemsize
        return int((len(self.at) + 1) * self.x.indptr.itemsize + n_values * per_value)

    def take(self, which: Any) -> "ReferredRows":
        return self._replace(at=self.at[which], scale=self.scale[which])

    def trimmed(self) -> "ReferredRows":
        return self


class OuterRows(NamedTuple):
    """x_k = scale_k (e_plus − e_minus) ⊗ features: one feature vector placed at +plus and −minus of w's blocks.

    Constraints of one example share the features, which are stored once.
    """

    x: Any  # the features: DenseRows or CsrRows, and ReferredRows until they are copied
    at: Ints  # (n,) which of them
    plus: Int32s  # (n,) the block of w that gets +features
    minus: Int32s  # (n,) the block that gets −features
    scale: Floats  # (n,)
    width: int  # weights a block

    @property
    def n_rows(self) -> int:
        return len(self.at)

    @property
    def nbytes(self) -> int:
        own = sum(part.nbytes for part in (self.at, self.plus, self.minus, self.scale))
        return int(self.x.nbytes) + own

    def take(self, which: Any) -> "OuterRows":
        at, plus, minus, scale = (part[which] for part in (self.at, self.plus, self.minus, self.scale))
        return self._replace(at=at, plus=plus, minus=minus, scale=scale)

    def trimmed(self) -> "OuterRows":
        return self._replace(x=self.x.trimmed())

    def contiguous(self) -> "OuterRows":
        return self


Features = DenseRows | CsrRows
Rows = DenseRows | CsrRows | OuterRows


@bare_kernel
def product(a: Floats, b: Floats) -> float:
    """⟨a, b⟩. Not BLAS: its threads fight over the cores with ours, and their number would show in the last bits."""
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


def as_dense(rows: Features, width: int) -> DenseRows:
    if isinstance(rows, DenseRows):
        return rows
    values = np.zeros((rows.n_rows, width), dtype=rows.values.dtype)
    at = slice(rows.indptr[0], rows.indptr[-1])
    values[np.repeat(np.arange(len(values)), np.diff(rows.indptr)), rows.indices[at]] = rows.values[at]
    return DenseRows(values)


def as_csr(rows: Features, index_dtype: Any) -> CsrRows:
    if isinstance(rows, CsrRows):
        return rows
    where = rows.values != 0
    indptr = np.concatenate([[0], np.cumsum(where.sum(axis=1), dtype=np.int64)])
    return CsrRows(indptr, np.nonzero(where)[1].astype(index_dtype), rows.values[where])


def dot(rows: Rows, k: int, w: Floats) -> float:
    """⟨w, x_k⟩, summed in float64; `w` may be longer than a row of features is wide."""
    if isinstance(rows, OuterRows):
        plus, minus = (dot(rows.x, int(rows.at[k]), block(rows, side, w)) for side in (rows.plus[k], rows.minus[k]))
        return float(rows.scale[k]) * (plus - minus)
    if isinstance(rows, DenseRows):
        return float(rows.values[k].astype(np.float64) @ w[: rows.values.shape[1]])
    at = slice(rows.indptr[k], rows.indptr[k + 1])
    return float(rows.values[at].astype(np.float64) @ w[rows.indices[at]])


def add(rows: Rows, k: int, scale: float, w: Floats) -> None:
    """w ← w + scale · x_k. A CSR row names each column once."""
    if isinstance(rows, OuterRows):
        add(rows.x, int(rows.at[k]), scale * rows.scale[k], block(rows, rows.plus[k], w))
        add(rows.x, int(rows.at[k]), -scale * rows.scale[k], block(rows, rows.minus[k], w))
    elif isinstance(rows, DenseRows):
        w[: rows.values.shape[1]] += scale * rows.values[k].astype(np.float64)
    else:
        at = slice(rows.indptr[k], rows.indptr[k + 1])
        w[rows.indices[at]] += scale * rows.values[at].astype(np.float64)


def norm2(rows: Rows, k: int) -> float:
    """||x_k||²."""
    return inner(rows, k, k)


def inner(rows: Rows, k: int, j: int) -> float:
    """⟨x_k, x_j⟩. CSR rows name their columns in ascending order."""
    if isinstance(rows, OuterRows):
        return overlap(rows, k, j) * inner(rows.x, int(rows.at[k]), int(rows.at[j]))
    if isinstance(rows, DenseRows):
        return float(rows.values[k].astype(np.float64) @ rows.values[j])
    left, right = (slice(rows.indptr[row], rows.indptr[row + 1]) for row in (k, j))
    _, a, b = np.intersect1d(rows.indices[left], rows.indices[right], assume_unique=True, return_indices=True)
    return float(rows.values[left][a].astype(np.float64) @ rows.values[right][b])


def block(rows: OuterRows, side: int, w: Floats) -> Floats:
    """The weights of one block."""
    return w[side * rows.width : (side + 1) * rows.width]


@inlined_kernel
def overlap(rows: OuterRows, k: int, j: int) -> float:
    """scale_k scale_j ⟨e_plus − e_minus, e_plus' − e_minus'⟩."""
    same = 1.0 * (rows.plus[k] == rows.plus[j]) + 1.0 * (rows.minus[k] == rows.minus[j])
    crossed = 1.0 * (rows.plus[k] == rows.minus[j]) + 1.0 * (rows.minus[k] == rows.plus[j])
    return float(rows.scale[k] * rows.scale[j] * (same - crossed))


def fetch_row(rows: Rows, k: int) -> None:
    """Have the beginning of a row brought near, which is needed soon; for kernels, which see `_fetch_row`."""


def is_outer(rows: Any) -> bool:
    return getattr(rows, "instance_class", None) is OuterRows


def is_dense(rows: Any) -> bool:
    return getattr(rows, "instance_class", None) is DenseRows


@gather_kernel
def csr_dot(indices: Any, values: Singles, begin: int, end: int, w: Floats) -> float:
    """Σ_j w[indices_j] values_j. Slices from 0, and unsigned indices, spare Numba's test for negative ones."""
    at, x = indices[begin:end], values[begin:end]
    total, fours = no_four(), len(x) // FOUR * FOUR
    for j in range(0, fours, FOUR):
        total = add_gathered(total, x, at, j, w)
    rest = 0.0
    for j in range(fours, len(x)):
        rest += x[j] * w[np.uint64(at[j])]
    return sum_of_four(total) + rest


@gather_kernel
def csr_add(indices: Any, values: Singles, begin: int, end: int, scale: float, w: Floats) -> None:
    """w[indices_j] += scale · values_j."""
    at, x = indices[begin:end], values[begin:end]
    for j in range(len(x)):
        w[np.uint64(at[j])] += scale * x[j]


@gather_kernel
def csr_dot_between(indices: Any, values: Singles, begin: int, end: int, plus: Floats, minus: Floats) -> float:
    """Σ_j (plus − minus)[indices_j] values_j: features are read once for both."""
    at, x = indices[begin:end], values[begin:end]
    above, below, fours = no_four(), no_four(), len(x) // FOUR * FOUR
    for j in range(0, fours, FOUR):
        above = add_gathered(above, x, at, j, plus)
        below = add_gathered(below, x, at, j, minus)
    rest = 0.0
    for j in range(fours, len(x)):
        place = np.uint64(at[j])
        rest += x[j] * (plus[place] - minus[place])
    return (sum_of_four(above) - sum_of_four(below)) + rest


@bare_kernel
def csr_add_blocks(indices: Any, values: Singles, begin: int, end: int, table: Floats, out: Floats) -> None:
    """out += Σ_j values_j table[indices_j], four rows of the table at a time."""
    at, x = indices[begin:end], values[begin:end]
    fours = len(x) // 4 * 4
    for j in range(0, fours, 4):
        a, b = table[np.uint64(at[j])], table[np.uint64(at[j + 1])]
        c, d = table[np.uint64(at[j + 2])], table[np.uint64(at[j + 3])]
        p, q, r, s = np.float64(x[j]), np.float64(x[j + 1]), np.float64(x[j + 2]), np.float64(x[j + 3])
        for k in range(len(out)):
            out[k] += (p * a[k] + q * b[k]) + (r * c[k] + s * d[k])
    for j in range(fours, len(x)):
        a, p = table[np.uint64(at[j])], np.float64(x[j])
        for k in range(len(out)):
            out[k] += p * a[k]


@gather_kernel
def csr_add_twelves(indices: Any, values: Singles, begin: int, end: int, table: Floats, out: Floats) -> None:
    """The same for a table of a dozen or two of columns, of which `out` may have fewer: twelve sums are in registers.

    Half the time of `csr_add_blocks` for ten columns; no gain where there are many, or few.
    """
    at, x, width = indices[begin:end], values[begin:end], table.shape[1]
    for first in range(0, width - TWELVE + 1, TWELVE):
        left, middle, right = no_four(), no_four(), no_four()
        for j in range(len(x)):
            factor, place = np.float64(x[j]), np.int64(at[j]) * width + first
            left = add_four(left, factor, table, place)
            middle = add_four(middle, factor, table, place + FOUR)
            right = add_four(right, factor, table, place + 2 * FOUR)
        write_four(left, out, first)
        write_four(middle, out, first + FOUR)
        write_four(right, out, first + 2 * FOUR)


@gather_kernel
def csr_sum_twelves(indices: Any, values: Singles, begin: int, end: int, table: Floats, out: Floats) -> None:
    """out = Σ_j values_j table[indices_j] for a dozen of columns or more, by the dozen; the last may overlap others."""
    at, x, width = indices[begin:end], values[begin:end], table.shape[1]
    for k in range(0, width, TWELVE):
        first = min(k, width - TWELVE)
        left, middle, right = no_four(), no_four(), no_four()
        for j in range(len(x)):
            factor, place = np.float64(x[j]), np.int64(at[j]) * width + first
            left = add_four(left, factor, table, place)
            middle = add_four(middle, factor, table, place + FOUR)
            right = add_four(right, factor, table, place + 2 * FOUR)
        put_four(left, out, first)
        put_four(middle, out, first + FOUR)
        put_four(right, out, first + 2 * FOUR)


@specialise(dot)
def _dot(rows: Any, k: Any, w: Any) -> Any:  # noqa: ARG001
    def dense(rows: Any, k: Any, w: Any) -> Any:
        total = 0.0
        for j in range(rows.values.shape[1]):
            total += rows.values[k, j] * w[j]
        return total

    def csr(rows: Any, k: Any, w: Any) -> Any:
        return csr_dot(rows.indices, rows.values, rows.indptr[k], rows.indptr[k + 1], w)

    def outer_csr(rows: Any, k: Any, w: Any) -> Any:
        x, i, above, below = rows.x, rows.at[k], rows.plus[k] * rows.width, rows.minus[k] * rows.width
        plus, minus = w[above : above + rows.width], w[below : below + rows.width]
        return rows.scale[k] * csr_dot_between(x.indices, x.values, x.indptr[i], x.indptr[i + 1], plus, minus)

    def outer_dense(rows: Any, k: Any, w: Any) -> Any:  # both read the features once
        i, above, below = rows.at[k], rows.plus[k] * rows.width, rows.minus[k] * rows.width
        plus, minus, total = w[above : above + rows.width], w[below : below + rows.width], 0.0
        for j in range(rows.x.values.shape[1]):
            total += rows.x.values[i, j] * (plus[j] - minus[j])
        return rows.scale[k] * total

    if is_outer(rows):
        return outer_dense if is_dense(rows.types[0]) else outer_csr
    return dense if is_dense(rows) else csr


@specialise(add)
def _add(rows: Any, k: Any, scale: Any, w: Any) -> Any:  # noqa: ARG001
    def dense(rows: Any, k: Any, scale: Any, w: Any) -> Any:
        for j in range(rows.values.shape[1]):
            w[j] += scale * rows.values[k, j]

    def csr(rows: Any, k: Any, scale: Any, w: Any) -> Any:
        csr_add(rows.indices, rows.values, rows.indptr[k], rows.indptr[k + 1], scale, w)

    def outer(rows: Any, k: Any, scale: Any, w: Any) -> Any:
        x, i, step = rows.x, rows.at[k], scale * rows.scale[k]
        plus, minus = rows.plus[k] * rows.width, rows.minus[k] * rows.width
        add(x, i, step, w[plus : plus + rows.width])
        add(x, i, -step, w[minus : minus + rows.width])

    if is_outer(rows):
        return outer
    return dense if is_dense(rows) else csr


@specialise(fetch_row)
def _fetch_row(rows: Any, k: Any) -> Any:  # noqa: ARG001
    def dense(rows: Any, k: Any) -> Any:
        begin = k * rows.values.shape[1]
        for j in range(begin, begin + min(rows.values.shape[1], FETCHED), LINE):
            fetch(rows.values, j)

    def csr(rows: Any, k: Any) -> Any:
        for j in range(rows.indptr[k], min(rows.indptr[k + 1], rows.indptr[k] + FETCHED), LINE):
            fetch(rows.values, j)
            fetch(rows.indices, j)

    def outer(rows: Any, k: Any) -> Any:
        fetch_row(rows.x, rows.at[k])

    if is_outer(rows):
        return outer
    return dense if is_dense(rows) else csr


@specialise(norm2)
def _norm2(rows: Any, k: Any) -> Any:  # noqa: ARG001
    def dense(rows: Any, k: Any) -> Any:
        total = 0.0
        for j in range(rows.values.shape[1]):
            total += np.float64(rows.values[k, j]) * rows.values[k, j]
        return total

    def csr(rows: Any, k: Any) -> Any:
        x, total = rows.values[rows.indptr[k] : rows.indptr[k + 1]], 0.0
        for j in range(len(x)):
            total += np.float64(x[j]) * x[j]
        return total

    def outer(rows: Any, k: Any) -> Any:
        return overlap(rows, k, k) * norm2(rows.x, rows.at[k])

    if is_outer(rows):
        return outer
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

    def outer(rows: Any, k: Any, j: Any) -> Any:
        factor = overlap(rows, k, j)
        return factor * inner(rows.x, rows.at[k], rows.at[j]) if factor != 0.0 else 0.0

    if is_outer(rows):
        return outer
    return dense if is_dense(rows) else csr
