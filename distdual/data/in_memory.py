"""Data sets in memory, which training reads like stored ones; shards are views where types allow."""

import hashlib
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.data.dataset import natural
from distdual.data.shard import Block, Read, Shard, run_arrays
from distdual.data.sources.arrays import blocks_from_arrays, is_sparse
from distdual.data.sources.sequences import Ragged, blocks_from_ragged, ragged
from distdual.data.validate import label_name
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, DenseRows, Features, Ints

PIECE_BYTES = 8 << 20


@dataclass(frozen=True)
class MemoryDataset:
    """Shards in memory. Reads like `Dataset`."""

    shards: tuple[Shard, ...]
    classes: tuple[str, ...]
    n_features: int

    location: ClassVar[str] = "the arrays"  # in messages, where a stored data set names its place
    shard_bytes: ClassVar[int] = 0  # that reading takes: none

    def open(self) -> "MemoryDataset":
        return self

    @property
    def ragged(self) -> bool:
        """True if examples are sequences."""
        return any(shard.tokens is not None for shard in self.shards)

    @property
    def structured(self) -> bool:
        """True if examples have arrays of their own instead of features."""
        return any(shard.structured for shard in self.shards)

    @property
    def n_shards(self) -> int:
        return len(self.shards)

    @cached_property
    def first(self) -> Ints:
        return np.array([*(shard.first for shard in self.shards), self.n_examples])

    @cached_property
    def n_examples(self) -> int:
        return sum(shard.n_examples for shard in self.shards)

    @property
    def n_rows(self) -> int:
        """Rows of features: tokens where examples are sequences."""
        return int(self.rows_of_shards.sum())

    @cached_property
    def rows_of_shards(self) -> Ints:
        return np.array([shard.x.n_rows for shard in self.shards])

    @property
    def nbytes(self) -> int:
        return sum(shard.nbytes for shard in self.shards)

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for shard in self.shards:
            for part in (*shard.x, shard.y, shard.cost, shard.margin, shard.tokens, *run_arrays(shard.runs).values()):
                digest.update(b"" if part is None else np.ascontiguousarray(part).data)
        return digest.hexdigest()

    @cached_property
    def checksum(self) -> NDArray[np.uint32]:
        """(n_shards,) checksums of all arrays except the costs."""
        return np.array([rows_checksum(shard) for shard in self.shards], dtype=np.uint32)

    @cached_property
    def _norms(self) -> dict[int, float]:
        """The largest norms of the shards that were read; computed by threads that scan, once for each shard."""
        return {}

    def read(self, number: int, *, check: bool = True) -> Read:  # noqa: ARG002 - as Dataset.read
        shard = self.shards[number]
        if number not in self._norms:
            self._norms[number] = shard.norm_bound()
        return Read(replace(shard, norm=self._norms[number]))

    def only(self, number: int) -> "OneShard":
        """The data that a worker needs to read this shard."""
        shard = self.read(number).shard
        return OneShard(replace(shard, x=shard.x.trimmed()))


@dataclass(frozen=True, slots=True)
class OneShard:
    """A single shard sent to a worker; reads like the data set it belongs to."""

    shard: Shard
    shard_bytes: ClassVar[int] = 0

    def open(self) -> "OneShard":
        return self

    def read(self, number: int, *, check: bool = True) -> Read:  # noqa: ARG002 - as Dataset.read
        assert number == self.shard.number
        return Read(self.shard)


def rows_checksum(shard: Shard) -> int:
    crc = 0
    for part in (*shard.x.trimmed(), shard.y, shard.margin, shard.tokens, *run_arrays(shard.runs).values()):
        crc = zlib.crc32(b"" if part is None else np.ascontiguousarray(part).data, crc)
    return crc


def in_memory(x: Any, y: Any, cost: Any = None, margin: Any = None, *, regression: bool = False) -> MemoryDataset:
    """A data set of NumPy, scipy.sparse or Dask arrays; labels are classes unless they are targets of a regression."""
    blocks = blocks_of(x, y, cost, margin)
    if not blocks or not x.shape[1]:
        raise InputError(f"the arrays hold no examples or no features: shape {x.shape}")
    return dataset_of(blocks, int(x.shape[1]), regression=regression)


def sequences_in_memory(x: Any, y: Any, lengths: Any = None, cost: Any = None) -> MemoryDataset:
    """A data set of sequences: lists with an array for each, or flat arrays and the length of each."""
    made = ragged(x, y, lengths)
    return dataset_of(sequence_blocks(made, cost), int(made.x.shape[1]), regression=False)


def sequence_blocks(made: Ragged, cost: Any) -> list[Block]:
    """Blocks of a few MB: views where features are as kernels read them, copies elsewhere."""
    rows = as_they_are(made.x)
    if rows is None:
        return list(blocks_from_ragged(made, cost))
    costs = None if cost is None else np.asarray(cost, dtype=np.float64)
    if costs is not None and costs.shape != (len(made.tokens) - 1,):
        raise InputError(f"the arrays: {len(made.tokens) - 1} sequences, but cost has the shape {costs.shape}")
    return as_blocks(Shard(0, 0, rows, made.y, costs, None, made.tokens))


def dataset_of(blocks: list[Block], n_features: int, *, regression: bool) -> MemoryDataset:
    values = np.unique(np.concatenate([block.y for block in blocks])) if not regression else np.empty(0)
    names = [label_name(value) for value in values.tolist()]
    classes = tuple(sorted(names, key=natural))
    rank = np.array([classes.index(name) for name in names], dtype=np.int32)

    def coded(block: Block) -> Block:
        return block._replace(y=block.y.astype(np.float64) if regression else rank[np.searchsorted(values, block.y)])

    return MemoryDataset(numbered([coded(block) for block in blocks]), classes, n_features)


def coded_in_memory(block: Block, classes: tuple[str, ...], n_features: int) -> MemoryDataset:
    """A data set of examples whose labels are numbers of `classes` already, or targets where there are none."""
    return MemoryDataset(numbered(as_blocks(Shard(0, 0, *block))), classes, n_features)


def numbered(blocks: list[Block]) -> tuple[Shard, ...]:
    firsts = np.cumsum([0, *(block.n_examples for block in blocks)])
    return tuple(Shard(s, int(firsts[s]), *block) for s, block in enumerate(blocks))


def blocks_of(x: Any, y: Any, cost: Any, margin: Any) -> list[Block]:
    """Runs of examples; views where features are float32 in the order that kernels read, copies elsewhere.

    Views are not searched for NaN: a scan meets every value anyway, and names the row.
    """
    rows = as_they_are(x)
    if rows is None or not (len(y) == x.shape[0] and np.asarray(y).ndim == 1):
        return list(blocks_from_arrays(x, y, cost, margin))
    costs, margins = (None if column is None else np.asarray(column, dtype=np.float64) for column in (cost, margin))
    return as_blocks(Shard(0, 0, rows, np.asarray(y), costs, margins))


def as_blocks(whole: Shard) -> list[Block]:
    size = max(1, PIECE_BYTES * whole.n_examples // max(1, whole.nbytes))
    cuts = range(0, whole.n_examples, size)
    pieces = (whole.piece(begin, min(begin + size, whole.n_examples)) for begin in cuts)
    return [Block(piece.x, piece.y, piece.cost, piece.margin, piece.tokens, piece.runs) for piece in pieces]


def as_they_are(x: Any) -> Features | None:
    """Features as kernels take them, without a copy of the values; None if that needs one."""
    if is_sparse(x):
        ready = x.format == "csr" and x.dtype == np.float32 and x.indices.dtype == np.int32 and x.has_canonical_format
        ready = ready and x.indices.flags.c_contiguous and x.data.flags.c_contiguous
        return CsrRows(x.indptr.astype(np.int64), x.indices, x.data) if ready else None
    ready = isinstance(x, np.ndarray) and x.dtype == np.float32 and x.ndim == 2 and x.flags.c_contiguous
    return DenseRows(x) if ready else None
