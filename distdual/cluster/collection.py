"""Dask arrays and data frames as a data set: a partition is a shard, scanned by the worker that holds it.

Nothing but a description of each partition travels to this process. Shards are made from the collection whenever they
are needed, so Dask computes again what a dead worker held.
"""

import hashlib
import itertools
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.data.in_memory import OneShard
from distdual.data.shard import Block, Read, Shard
from distdual.data.sources.partitions import columns_of, delayed_blocks
from distdual.data.validate import label_name
from distdual.errors import InputError
from distdual.kernels.rounding import value_norm_bound
from distdual.kernels.rows import CsrRows, Ints

PARTITION_SHARD_BYTES = (
    256 << 20
)  # larger partitions are several shards, so that a scan needs little memory beside them
MOST_LABELS = 100_000  # more are taken for the targets of a regression, and would be slow to list


class Described(NamedTuple):
    """What training needs to know of a partition before it reads it."""

    n_examples: int
    nbytes: int
    sparse: bool
    width: int
    labels: NDArray[Any]  # distinct ones; none for targets
    checksum: int  # of features and labels
    cost_checksum: int


class PartitionPiece(NamedTuple):
    """Rows begin … end − 1 of a partition, which are one shard."""

    part: int
    begin: int
    end: int


@dataclass(frozen=True, eq=False)
class CollectionDataset:
    """Partitions of a Dask collection as shards. Scans read it like `Dataset`."""

    client: Any = field(repr=False)
    parts: Sequence[Any] = field(repr=False)  # a delayed Block of each partition
    pieces: Sequence[PartitionPiece] = field(repr=False)
    described: Sequence[Described] = field(repr=False)
    labels: NDArray[Any] = field(repr=False)  # distinct ones of all partitions; none for targets
    columns: tuple[str, ...] | None = None  # of a data frame

    location: ClassVar[str] = "the Dask collection"  # in messages, where a stored data set names its place
    shard_bytes: ClassVar[int] = 0  # that reading takes: none
    ragged: ClassVar[bool] = False
    structured: ClassVar[bool] = False

    def open(self) -> "CollectionDataset":
        return self

    @cached_property
    def classes(self) -> tuple[str, ...]:
        return tuple(label_name(label) for label in self.labels.tolist())

    @property
    def n_features(self) -> int:
        return self.described[0].width

    @property
    def n_shards(self) -> int:
        return len(self.pieces)

    @cached_property
    def first(self) -> Ints:
        return np.cumsum([0, *(piece.end - piece.begin for piece in self.pieces)])

    @property
    def n_examples(self) -> int:
        return int(self.first[-1])

    @property
    def n_rows(self) -> int:
        return self.n_examples

    @property
    def rows_of_shards(self) -> Ints:
        return np.diff(self.first)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.described)

    @cached_property
    def fingerprint(self) -> str:
        sums = [[part.n_examples, part.checksum, part.cost_checksum] for part in self.described]
        meaning = repr((self.classes, self.n_features, sums, [tuple(piece) for piece in self.pieces]))
        return hashlib.sha256(meaning.encode()).hexdigest()

    @cached_property
    def checksum(self) -> NDArray[np.uint32]:
        """(n_shards,) that of the partition, and of the rows of it that are the shard."""
        return np.array(
            [zlib.crc32(repr(piece[1:]).encode(), self.described[piece.part].checksum) for piece in self.pieces],
            dtype=np.uint32,
        )

    def only(self, number: int) -> Any:
        """A future of the shard, to be given to a task."""
        from dask.delayed import delayed

        piece, coded = self.pieces[number], self.labels if len(self.labels) else None
        part, first = self.parts[piece.part], int(self.first[number])
        made = delayed(one_shard, pure=False)(part, number, first, piece.begin, piece.end, coded)
        return self.client.compute(made)

    def read(self, number: int, *, check: bool = True) -> Read:  # noqa: ARG002 - as Dataset.read
        """Fetch a shard to this process; scans run where it is instead."""
        shard: OneShard = self.only(number).result()
        return Read(shard.shard)


def client_of(x: Any) -> Any:
    """The Dask client that holds a persisted collection, or else the default client of this process; None without."""
    if "distributed" not in sys.modules:
        return None
    from distributed import default_client, futures_of

    for future in futures_of(x):
        return future.client
    try:
        return default_client()
    except ValueError:
        return None


def open_collection(client: Any, x: Any, y: Any, cost: Any = None, *, regression: bool) -> CollectionDataset:
    """Describe the partitions of `x` and `y`, on the workers that hold them or can compute them."""
    from dask.delayed import delayed

    parts = delayed_blocks(x, y, cost)
    width = int(x.shape[1])
    futures = client.compute([delayed(describe_partition, pure=False)(part, width, regression) for part in parts])
    described = list(client.gather(futures))
    there = [number for number, part in enumerate(described) if part.n_examples]
    if not there:
        raise InputError("the Dask collection has no rows")
    kept = [described[number] for number in there]
    check_alike(kept)
    pieces = [piece for number, part in enumerate(kept) for piece in pieces_of(number, part)]
    distinct = np.unique(np.concatenate([part.labels for part in kept]))
    return CollectionDataset(client, [parts[number] for number in there], pieces, kept, distinct, columns_of(x))


def pieces_of(number: int, part: Described) -> list[PartitionPiece]:
    """The whole partition or, if it is large, several pieces of it."""
    n_pieces = max(1, min(part.n_examples, -(-part.nbytes // PARTITION_SHARD_BYTES)))
    cuts = np.linspace(0, part.n_examples, n_pieces + 1).astype(int).tolist()
    return [PartitionPiece(number, begin, end) for begin, end in itertools.pairwise(cuts)]


def check_alike(parts: Sequence[Described]) -> None:
    for number, part in enumerate(parts):
        found, expected = (part.width, part.sparse), (parts[0].width, parts[0].sparse)
        if found != expected:
            forms = [f"{width} {'sparse' if sparse else 'dense'} features" for width, sparse in (found, expected)]
            raise InputError(f"partition {number} of X has {forms[0]}, the first one has {forms[1]}")


# --- on workers


def describe_partition(block: Block, width: int, regression: bool) -> Described:
    distinct = block.y[:0] if regression else np.unique(block.y)
    if len(distinct) > MOST_LABELS:
        raise InputError(f"y has more than {MOST_LABELS} different labels; numbers to regress on are for SVR")
    arrays = (*block.x, block.y)
    crc = 0
    for part in arrays:
        crc = zlib.crc32(np.ascontiguousarray(part).data, crc)
    cost = 0 if block.cost is None else zlib.crc32(block.cost.data, 1)
    n_bytes = sum(part.nbytes for part in arrays)
    return Described(len(block.y), n_bytes, isinstance(block.x, CsrRows), width, distinct, crc, cost)


def one_shard(block: Block, number: int, first: int, begin: int, end: int, coded: NDArray[Any] | None) -> OneShard:
    """Rows begin … end − 1 as shard `number`; labels become their index in `coded`."""
    x, rows = block.x.piece(begin, end).trimmed(), slice(begin, end)
    y = block.y[rows]
    codes: Any = y.astype(np.float64) if coded is None else np.searchsorted(coded, y).astype(np.int32)
    cost = None if block.cost is None else block.cost[rows]
    return OneShard(Shard(number, first, x, codes, cost, norm=value_norm_bound(x)))
