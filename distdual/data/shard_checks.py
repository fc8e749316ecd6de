"""Checks of the arrays of a stored shard before kernels, which check nothing, read them.

Each array is read once. A shard that stays in memory is checked once.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdual.data.layout import SHAPE, Layout
from distdual.errors import InputError
from distdual.kernels.jit import bare_kernel, fetch
from distdual.kernels.rounding import MARGIN, largest_value
from distdual.kernels.rows import Ints
from distdual.schema import array, below, rising

Arrays = dict[str, NDArray[Any]]

WHILE = 1 << 16  # numbers compared before counts are added up
ROWS_AHEAD = 32  # rows ahead to prefetch: their first columns are far apart
MOST_EMPTY = 1 << 40  # a dimension of an array without values


def check_shard_arrays(
    where: str, layout: Layout, arrays: Arrays, largest: float | None = None, falls: int | None = None
) -> float:
    """Refuse arrays of the right types and lengths whose numbers point outside, or are not finite.

    Returns the largest |feature|, which is searched unless it is known; so are `falls`, the places where columns of
    sparse rows do not rise.
    """
    for name in layout.columns:
        array(f"{where}, array {name!r}", arrays[name], np.float64, (None,), low=0 if name == "cost" else None)
    for name in layout.runs:
        rising(f"{where}, array '{name}_indptr'", arrays[f"{name}_indptr"], len(arrays[name]))
    if layout.structured:
        for name in [name for name in layout.runs if name.endswith(SHAPE)]:
            check_shapes(f"{where}, array {name!r}", arrays, name)
        return 0.0
    if layout.labels:
        below(f"{where}, array 'y'", arrays["y"], len(layout.labels))
    elif not layout.unlabelled and not np.isfinite(arrays["y"]).all():
        raise InputError(f"{where}, array 'y': a target is NaN or infinite")
    if layout.ragged:
        n_rows = len(arrays["indptr"]) - 1 if layout.sparse else len(arrays["x"])
        rising(f"{where}, array 'tokens'", arrays["tokens"], n_rows, least=1)
    if layout.sparse:
        check_columns(where, arrays["indptr"], arrays["indices"], layout.n_features, falls)
    if largest is not None:
        return largest
    features = "values" if layout.sparse else "x"
    largest = largest_value(arrays[features])
    if not np.isfinite(largest):
        raise InputError(f"{where}, array {features!r}: {place_of_bad(arrays, features)} is NaN or infinite")
    return largest


def check_shapes(where: str, arrays: Arrays, name: str) -> None:
    """Refuse shapes that are not those of the arrays they belong to."""
    lengths, ranks = np.diff(arrays[f"{name.removesuffix(SHAPE)}_indptr"]), np.diff(arrays[f"{name}_indptr"])
    rank = int(ranks.max(initial=0))
    if (ranks != rank).any():
        raise InputError(f"{where}: arrays of different numbers of dimensions")
    shapes = arrays[name].reshape(len(lengths), rank)
    most = int(lengths.max(initial=0))
    if (shapes < 0).any() or (shapes.max(initial=0) > max(most, MOST_EMPTY)):
        raise InputError(f"{where}: a dimension is {shapes.min()} or {shapes.max()}, arrays have up to {most} values")
    wrong = shapes.astype(np.float64).prod(axis=1) != lengths
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(f"{where}: example {at} has {lengths[at]} values, which {shapes[at].tolist()} does not hold")


def check_norm(where: str, largest: float, norm: float) -> None:
    """Refuse a feature that is larger than the table says any row is long."""
    if not largest <= MARGIN * norm:
        raise InputError(
            f"{where} has a feature of {largest:.6g}, the table of norms says {norm:.6g}; prepare the data set again"
        )


def place_of_bad(arrays: Arrays, features: str) -> str:
    """The first row with a feature that is not finite."""
    at = int(np.argmax(~np.isfinite(arrays[features].reshape(-1))))
    if features == "x":
        return f"a feature of row {at // arrays['x'].shape[1]}"
    return f"a feature of row {int(np.searchsorted(arrays['indptr'], at, side='right')) - 1}"


def check_columns(where: str, indptr: Ints, indices: NDArray[Any], width: int, falls: int | None = None) -> None:
    """Refuse rows that do not divide the indices, columns beyond the width, and a column that a row names twice."""
    if are_columns(indptr, indices, width, count_falls(indices) if falls is None else falls):
        return
    rising(f"{where}, array 'indptr'", indptr, len(indices))
    below(f"{where}, array 'indices'", indices, width)
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.lexsort((indices, row))
    again = (np.diff(indices[order]) == 0) & (np.diff(row[order]) == 0)
    if again.any():
        at = order[int(np.argmax(again))]
        raise InputError(f"{where}, array 'indices': row {row[at]} names column {indices[at]} twice")


@bare_kernel
def are_columns(indptr: Ints, indices: NDArray[Any], width: int, falls: int) -> bool:
    """Whether rows divide the indices, and each names columns from 0 to width − 1 in ascending order.

    Columns may fall where a row begins, and nowhere else: `falls`, all places where they do, is what SIMD counts
    without looking at rows.
    """
    n, last, starts = len(indices), 0, 0
    if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != n:
        return False
    for i in range(1, len(indptr)):
        fetch(indices, indptr[min(i + ROWS_AHEAD, len(indptr) - 1)])
        begin, end = last, indptr[i]
        if begin < end <= n:
            if indices[begin] < 0 or indices[end - 1] >= width:
                return False
            if begin > 0:
                starts += indices[begin] <= indices[begin - 1]
        elif begin != end:
            return False
        last = end
    return falls == starts


@bare_kernel
def count_falls(indices: NDArray[Any]) -> int:
    """The places at which numbers do not rise; counted in 32 bits for a while, which SIMD does twice as fast."""
    total = 0
    for begin in range(1, len(indices), WHILE):
        end = min(begin + WHILE, len(indices))
        later, earlier = indices[begin:end], indices[begin - 1 : end - 1]
        falls: Any = np.int32(0)
        for k in range(len(later)):
            falls += np.int32(later[k] <= earlier[k])
        total += int(falls)
    return total
