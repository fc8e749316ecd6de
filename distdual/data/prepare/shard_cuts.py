"""Chunk lengths, and the examples at which one shard ends and the next begins."""

from collections.abc import Iterator, Mapping

import numpy as np

from distdual.data.layout import Axis
from distdual.data.shard import Runs, are_structures
from distdual.kernels.rows import DenseRows, Features, Ints

SHARD_BYTES = 16 << 20


def chunk_lengths(
    x: Features,
    shard_bytes: int,
    tokens: Ints | None = None,
    runs: Mapping[str, Runs] | None = None,
    *,
    last: bool,
) -> dict[Axis, int]:
    """The longest axes a shard may have, from the first examples; exact if these are all there are."""
    n_examples = x.n_rows
    if are_structures(runs):
        n_bytes = sum(column.values.nbytes + column.indptr.nbytes for column in (runs or {}).values())
        fit = max(1, shard_bytes * n_examples // max(1, n_bytes))
        chunk = {"example": min(fit, n_examples) if last else fit, "value": 1}
    else:
        chunk = row_chunk(x, shard_bytes, last=last)
    if tokens is not None:
        n, n_examples = chunk["example"], len(tokens) - 1
        fit = n_examples if last and n >= tokens[-1] else max(1, int(1.25 * n * n_examples / tokens[-1]))
        chunk = {"example": fit, "value": chunk["value"], "token": n}
    for name, column in (runs or {}).items():
        most = max(1, len(column.values))
        whole = last and chunk["example"] >= n_examples
        chunk[name] = most if whole else max(1, -(-most * chunk["example"] // n_examples), most_per_example(column))
    return chunk


def row_chunk(x: Features, shard_bytes: int, *, last: bool) -> dict[Axis, int]:
    """The same where each row is an example."""
    n = x.n_rows
    if isinstance(x, DenseRows):
        fit = max(1, shard_bytes // max(1, x.values.shape[1] * x.values.itemsize))
        return {"example": min(fit, n) if last else fit, "value": 1}
    n_values = int(x.indptr[-1])
    per_value = x.indices.itemsize + x.values.itemsize
    if last and n_values * per_value <= shard_bytes:
        return {"example": n, "value": max(1, n_values)}
    fit = max(1, shard_bytes // per_value)
    # A quarter more examples than the first ones suggest, so that values, not examples, usually close a shard; but
    # never so many that their row ends alone are larger than a shard.
    many = min(int(1.25 * fit * n / max(1, n_values)), shard_bytes // x.indptr.itemsize)
    return {"example": max(1, many), "value": fit}


def most_per_example(column: Runs) -> int:
    return int(np.diff(column.indptr).max(initial=0))


def shard_ends(
    x: Features,
    chunk: dict[Axis, int],
    tokens: Ints | None = None,
    runs: Mapping[str, Runs] | None = None,
    *,
    last: bool,
) -> Iterator[int]:
    """Cut examples into shards: the end of each that is full, and of the rest if it is the last."""
    n = x.n_rows if tokens is None else len(tokens) - 1
    limits = [] if tokens is None else [(tokens, chunk["token"])]
    limits += [(column.indptr, chunk[name]) for name, column in (runs or {}).items()]
    if x.ends is not None:
        limits.append((x.ends if tokens is None else x.ends[tokens], chunk["value"]))
    begin = 0
    while begin < n:
        end = min(n, begin + chunk["example"])
        for total, most in limits:
            end = min(end, int(np.searchsorted(total, total[begin] + most, side="right")) - 1)
        if end == n and end - begin < chunk["example"] and not last:
            return  # the next block may still fill it
        yield end
        if end == begin:
            return
        begin = end


def index_dtype(x: Features, n_features: int | None) -> str:
    """int32 unless a column lies, or may lie, beyond it."""
    last = (n_features or x.n_columns) - 1
    return "int32" if last <= np.iinfo(np.int32).max else "int64"
