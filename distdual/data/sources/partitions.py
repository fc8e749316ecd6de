"""Partitions of Dask arrays and data frames as blocks, which workers compute."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdual.data.in_memory import as_they_are
from distdual.data.shard import Block
from distdual.data.sources.arrays import checked_weights, csr_rows, dense_rows, is_sparse, labels
from distdual.errors import InputError
from distdual.kernels.rows import Features


def is_collection(x: Any) -> bool:
    """Whether `x` is a Dask array or data frame."""
    if "dask" not in sys.modules:
        return False
    from dask.base import is_dask_collection

    return bool(is_dask_collection(x)) and (hasattr(x, "numblocks") or hasattr(x, "npartitions"))


def has_columns(x: Any) -> bool:
    return hasattr(x, "columns")


def delayed_blocks(x: Any, y: Any, cost: Any = None) -> list[Any]:
    """A delayed Block of each partition of `x`, of which `y` and `cost` must be cut alike or be in this process."""
    from dask.delayed import delayed

    columns = columns_of(x)
    rows = partitions(x, "X")
    targets = with_equal_partitions(y, x, len(rows), "y")
    costs = [None] * len(rows) if cost is None else with_equal_partitions(cost, x, len(rows), "sample_weight")
    return [
        delayed(one_block, pure=False)(*own, number, columns)
        for number, own in enumerate(zip(rows, targets, costs, strict=True))
    ]


def columns_of(x: Any) -> tuple[str, ...] | None:
    """The names of the columns of a data frame."""
    return tuple(map(str, x.columns)) if has_columns(x) else None


def partitions(x: Any, name: str) -> list[Any]:
    """A delayed value for each partition of rows."""
    if has_columns(x) or not hasattr(x, "numblocks"):
        return list(x.to_delayed())
    if name == "X" and x.ndim != 2:
        raise InputError(f"X must have 2 dimensions, found {x.ndim}")
    whole = x.rechunk({1: -1}) if x.ndim == 2 and x.numblocks[1] > 1 else x
    return list(whole.to_delayed().ravel())


def with_equal_partitions(column: Any, x: Any, n_parts: int, name: str) -> list[Any]:
    """A delayed value of `column` for each partition of `x`."""
    if not is_collection(column):
        column = from_local(column, x, name)
    elif hasattr(column, "numblocks") and hasattr(x, "numblocks") and column.chunks[0] != x.chunks[0]:
        known = not np.isnan(np.concatenate([column.chunks[0], x.chunks[0]])).any()
        if known and sum(column.chunks[0]) == sum(x.chunks[0]):
            column = column.rechunk((x.chunks[0],))
    found = partitions(column, name)
    if len(found) != n_parts:
        raise InputError(f"{name} has {len(found)} partitions, X has {n_parts}; they must be cut at the same rows")
    return found


def from_local(column: Any, x: Any, name: str) -> Any:
    """A Dask array of labels that are in this process, cut as `x` is."""
    import dask.array as da

    values = np.asarray(column)
    lengths = x.chunks[0] if hasattr(x, "numblocks") else ()
    if not lengths or np.isnan(lengths).any():
        raise InputError(f"{name} must be a Dask collection with the partitions of X, whose lengths are unknown")
    if values.ndim != 1 or len(values) != sum(lengths):
        raise InputError(f"{name} has the shape {values.shape}, X has {sum(lengths)} rows")
    return da.from_array(values, chunks=(lengths,))


# --- on workers


def one_block(x: Any, y: Any, cost: Any, number: int, columns: tuple[str, ...] | None) -> Block:
    """A partition as kernels read it: a view where its values are float32 in rows."""
    name = f"partition {number}"
    rows = partition_features(x if columns is None else numbers_of(x, name), f"{name} of X")
    costs = None if cost is None else checked_weights(np.asarray(cost), f"{name} of sample_weight", 0)
    for given, what in ((y, "y"), (cost, "sample_weight")):
        if given is not None and np.shape(given) != (rows.n_rows,):
            raise InputError(f"{name} of {what} has the shape {np.shape(given)}, that of X has {rows.n_rows} rows")
    if costs is not None and (costs < 0).any():
        raise InputError(f"{name} of sample_weight: {costs.min():g} is negative")
    return Block(rows, labels(np.asarray(y), f"{name} of y", 0), costs)


def partition_features(x: Any, name: str) -> Features:
    if is_sparse(x):
        csr = x.tocsr()
        ready = as_they_are(csr)
        return ready or csr_rows(csr.indptr, csr.indices, csr.data, csr.shape[1], name, 0)
    return dense_rows(np.asarray(x), name, 0)


def numbers_of(frame: Any, name: str) -> NDArray[np.float32]:
    """The values of a pandas data frame, whose columns must be numbers."""
    texts = [str(column) for column, kind in frame.dtypes.items() if kind.kind not in "biuf"]
    if texts:
        raise InputError(f"{name} of X: column {texts[0]!r} holds no numbers; prepare_frame encodes such columns")
    return np.ascontiguousarray(frame.to_numpy(dtype=np.float32, na_value=np.nan))
