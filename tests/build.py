"""Small data sets, shards and constraints for tests."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hypothesis import settings

from distdual.data.prepare.writer import write_dataset
from distdual.data.shard import Block, Shard
from distdual.data.storage.location import Location
from distdual.kernels.rows import CsrRows, DenseRows, Rows
from distdual.problems.base import Constraints, Keys
from distdual.testing import as_sparse, python_kernels  # noqa: F401 - for tests to import from here

CLASSES = ("-1", "1")
compiling = settings(deadline=None, max_examples=60)  # the first call of a kernel is slow, so no test has a deadline


class Examples(NamedTuple):
    x: Any  # (n, d) float32
    y: Any  # (n,) 0 or 1
    cost: Any = None
    margin: Any = None


def examples(seed: int, n: int, d: int, *, cost: bool = False, margin: bool = False, flip: float = 0.1) -> Examples:
    """Linearly separable examples with a share `flip` of labels flipped; about a third of the features are zero."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    y = (x @ rng.normal(size=d) > 0) ^ (rng.random(n) < flip)
    y[:2] = [False, True]  # both labels occur, even with few examples
    return Examples(
        x.astype(np.float32),
        y.astype(np.int32),
        rng.uniform(0.0, 3.0, n) if cost else None,
        rng.uniform(-0.5, 2.0, n) if margin else None,
    )


def rows_of(x: Any, *, sparse: bool) -> Rows:
    """A matrix in either format; zeros are not stored in the sparse one."""
    x = np.asarray(x, dtype=np.float32)
    if not sparse:
        return DenseRows(x)
    where = x != 0
    indptr = np.concatenate([[0], np.cumsum(where.sum(axis=1))]).astype(np.int64)
    return CsrRows(indptr, np.nonzero(where)[1].astype(np.int32), x[where])


def shard_of(made: Examples, *, sparse: bool = False, number: int = 0, first: int = 0) -> Shard:
    return Shard(number, first, rows_of(made.x, sparse=sparse), made.y, made.cost, made.margin)


def write(folder: Path, made: Examples, *, sparse: bool = False, n_shards: int = 4, **options: Any) -> Location:
    """Write the examples as a data set of about `n_shards` shards with the labels −1 and 1."""
    location = Location(str(folder))
    x = rows_of(made.x, sparse=sparse)
    n_bytes = sum(part.nbytes for part in x[1:]) if isinstance(x, CsrRows) else x.values.nbytes
    block = Block(x, np.where(made.y == 1, 1, -1), made.cost, made.margin)
    write_dataset(location, "binary", [block], **{"shard_bytes": -(-n_bytes // n_shards), **options})
    return location


def constraints_of(
    rows: Any, margin: Any, example: Any, *, cost: Any = None, keys: Any = None, sparse: bool = False
) -> Constraints:
    """Constraints with one integer as key: their index, unless `keys` is given."""
    n = len(margin)
    example = np.asarray(example, dtype=np.int64)
    return Constraints(
        example,
        np.ones(n) if cost is None else np.asarray(cost, dtype=np.float64),
        np.asarray(margin, dtype=np.float64),
        rows_of(rows, sparse=sparse),
        Keys(np.arange(n + 1), np.asarray(np.arange(n) if keys is None else keys, dtype=np.int32)),
    )
