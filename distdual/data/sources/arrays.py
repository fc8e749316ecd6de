"""Blocks of examples from NumPy, scipy.sparse, memory-mapped and Dask arrays.

Features are cut into blocks of about 8 MB; what is lazy stays lazy. Labels may be numbers, booleans or strings.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from distdual.data.shard import Block
from distdual.data.sources.open_file import BLOCK_BYTES
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, DenseRows, Features, Floats, Singles


class Stream:
    """An array that is read once, in order, a few entries at a time."""

    def __init__(self, name: str, length: int | None, pieces: Iterator[NDArray[Any]]) -> None:
        self.name = name  # the file and the array, for messages
        self.length = length  # None where only the end will tell
        self.pieces = pieces
        self.piece: NDArray[Any] = np.empty(0, dtype=np.int8)
        self.taken = 0

    def take(self, n: int) -> NDArray[Any]:
        """The next `n` entries."""
        parts = [self._part(n)]
        while (missing := n - sum(map(len, parts))) > 0:
            following = next(self.pieces, None)
            if following is None:
                raise InputError(f"{self.name} ends after {self.taken} entries; more are needed")
            self.piece = following
            parts.append(self._part(missing))
        parts = [part for part in parts if len(part)] or parts
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _part(self, n: int) -> NDArray[Any]:
        part, self.piece = self.piece[:n], self.piece[n:]
        self.taken += len(part)
        return part

    def check_end(self) -> None:
        if len(self.piece) or any(len(piece) for piece in self.pieces):
            raise InputError(f"{self.name} has more than the {self.taken} entries that the other arrays have room for")


def blocks_from_arrays(
    x: Any, y: Any, cost: Any = None, margin: Any = None, *, name: str = "the arrays"
) -> Iterator[Block]:
    """Blocks of the examples in `x` (NumPy, scipy.sparse or Dask, one row each) and `y`, with the optional columns."""
    given = {"y": y, "cost": cost, "margin": margin}
    columns = {key: column_stream(f"{name}: {key!r}", array) for key, array in given.items() if array is not None}
    x = x if is_dask(x) or is_sparse(x) else np.asanyarray(x)
    if x.ndim != 2:
        raise InputError(f"{name}: 'x' must have 2 dimensions, found {x.ndim}")
    return assemble(rows_of(x, f"{name}: 'x'"), known_length(x), columns, f"{name}: 'x'")


def assemble(
    features: Iterator[Features], n_examples: int | None, columns: dict[str, Stream], name: str
) -> Iterator[Block]:
    """Join each run of rows with as many labels, costs and margins; all must end together.

    Without labels in `columns`, all are 0.
    """
    for column in columns.values():
        if None not in (column.length, n_examples) and column.length != n_examples:
            raise InputError(f"{column.name} has {column.length} entries, but {name} has {n_examples} rows")
    for x in features:
        n = x.n_rows
        parts = {key: column.take(n) for key, column in columns.items()}
        first = next(iter(columns.values())).taken - n if columns else 0
        y = labels(parts.pop("y"), columns["y"].name, first) if "y" in columns else np.zeros(n)
        own = {key: checked_weights(part, columns[key].name, first) for key, part in parts.items()}
        yield Block(x, y, own.get("cost"), own.get("margin"))
    for column in columns.values():
        column.check_end()


def column_stream(name: str, array: Any) -> Stream:
    array = array if is_dask(array) else np.asanyarray(array)
    if array.ndim != 1:
        raise InputError(f"{name} must have 1 dimension, found {array.ndim}")
    if is_dask(array):
        blocks = (array.blocks[i] for i in range(array.numblocks[0]))
        return Stream(name, known_length(array), (np.asarray(part.compute()) for part in blocks))
    return Stream(name, len(array), iter([array]))


def rows_of(x: Any, name: str, first: int = 0) -> Iterator[Features]:
    """Runs of rows of about 8 MB; `first` is the number of the first row, for messages."""
    check_real(x.dtype, name)
    if x.shape[1] == 0:
        raise InputError(f"{name} has no columns")
    if is_dask(x):
        for i in range(x.numblocks[0]):
            part = side_by_side([x.blocks[i, j].compute() for j in range(x.numblocks[1])])
            yield from rows_of(part, name, first)
            first += part.shape[0]
    elif is_sparse(x):
        csr = x.tocsr()
        for begin, end in cuts(csr.indptr):
            part = csr[begin:end]
            yield csr_rows(part.indptr, part.indices, part.data, x.shape[1], name, first + begin)
    else:
        step = max(1, BLOCK_BYTES // (4 * x.shape[1]))
        for begin in range(0, len(x), step):
            yield dense_rows(x[begin : begin + step], name, first + begin)


def dense_rows(values: NDArray[Any], name: str, first: int) -> DenseRows:
    return DenseRows(singles(np.asarray(values), name, lambda at: first + at // values.shape[1]))


def csr_rows(
    indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], width: int, name: str, first: int
) -> CsrRows:
    """Rows with rising column numbers; entries of one row that name the same column are summed up."""
    own = values.astype(np.float64), np.array(indices), indptr  # scipy sorts in place
    rows = sp.csr_array(own, shape=(len(indptr) - 1, width))
    rows.sum_duplicates()
    return CsrRows(
        rows.indptr.astype(np.int64),
        rows.indices.astype(np.int32 if width <= 2**31 else np.int64),
        singles(rows.data, name, lambda at: first + int(np.searchsorted(rows.indptr, at, side="right")) - 1),
    )


def cuts(indptr: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Cut CSR rows into runs of about 8 MB: 8 bytes a value and 8 a row; a longer row is a run of its own."""
    cost = indptr.astype(np.int64) + np.arange(len(indptr))
    begin = 0
    while begin < len(indptr) - 1:
        fits = int(np.searchsorted(cost, cost[begin] + BLOCK_BYTES // 8, side="right")) - 1
        end = max(begin + 1, fits)
        yield begin, end
        begin = end


def side_by_side(parts: list[Any]) -> Any:
    """One row of a Dask array's blocks as one matrix."""
    if is_sparse(parts[0]):
        return sp.hstack(parts, format="csr")
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def singles(values: NDArray[Any], name: str, row_of: Callable[[int], int]) -> Singles:
    """The values as finite float32; `row_of` turns the place of a bad one into the number of its row."""
    check_real(values.dtype, name)
    with np.errstate(over="ignore"):
        single: Singles = values.astype(np.float32, order="C", copy=False)
    finite = np.isfinite(single)
    if not finite.all():
        at = int(np.argmin(finite))
        value = values.reshape(-1)[at]
        why = f"{value} is too large for float32" if np.isfinite(value) else "a feature is NaN or infinite"
        raise InputError(f"{name}, row {row_of(at)} (counted from 0): {why}")
    return single


def labels(y: NDArray[Any], name: str, first: int) -> NDArray[Any]:
    """Labels as integers, booleans, float64 or str."""
    if y.dtype.kind in "biuU":
        return y
    if y.dtype.kind == "f":
        return finite(y.astype(np.float64), name, first, "the label")
    if y.dtype.kind == "S":
        return np.char.decode(y, "utf-8")
    if y.dtype.kind == "T" or (y.dtype.kind == "O" and all(isinstance(label, str) for label in y)):
        return y.astype(np.str_)
    raise InputError(f"{name} has dtype {y.dtype}; labels are numbers, booleans or strings")


def checked_weights(column: NDArray[Any], name: str, first: int) -> Floats:
    """A cost or margin column; the sign of costs is for the writer to check."""
    check_real(column.dtype, name)
    return finite(column.astype(np.float64), name, first, "the entry")


def finite(column: Floats, name: str, first: int, what: str) -> Floats:
    good = np.isfinite(column)
    if not good.all():
        raise InputError(f"{name}, row {first + int(np.argmin(good))} (counted from 0): {what} is NaN or infinite")
    return column


def check_real(dtype: Any, name: str) -> None:
    if dtype.kind not in "biuf":
        raise InputError(f"{name} has dtype {dtype}; real numbers are expected")


def width_of(x: Any) -> int | None:
    """The number of columns where `x` says so; a list of rows does not."""
    shape: Any = getattr(x, "shape", ())
    return int(shape[1]) if len(shape) == 2 and not np.isnan(shape[1]) else None


def known_length(x: Any) -> int | None:
    """The number of entries, or None for a Dask array that does not know its chunk sizes."""
    return None if np.isnan(x.shape[0]) else int(x.shape[0])


def is_sparse(x: Any) -> bool:
    return bool(sp.issparse(x))


def is_dask(x: Any) -> bool:
    if "dask" not in sys.modules:  # so there is no Dask array
        return False
    from dask.base import is_dask_collection

    return bool(is_dask_collection(x)) and hasattr(x, "numblocks")
