"""A data set that is already in memory, in the shape that training reads: shards are views where types allow."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from distdual.data.arrays import blocks_from_arrays
from distdual.data.shard import Block, Shard
from distdual.data.store import natural
from distdual.data.write import label_name
from distdual.errors import InputError
from distdual.rows import Ints


@dataclass(frozen=True)
class MemoryDataset:
    """Shards in memory. Reads like `Dataset`."""

    shards: tuple[Shard, ...]
    classes: tuple[str, ...]
    n_features: int

    def open(self) -> "MemoryDataset":
        return self

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
    def nbytes(self) -> int:
        return sum(shard.nbytes for shard in self.shards)

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for shard in self.shards:
            for part in (*shard.x, shard.y, shard.cost, shard.margin):
                digest.update(b"" if part is None else np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def read(self, number: int, *, check: bool = True) -> tuple[Shard, int]:  # noqa: ARG002 - as Dataset.read
        return self.shards[number], 0


def in_memory(x: Any, y: Any, cost: Any = None, margin: Any = None) -> MemoryDataset:
    """A data set of NumPy, scipy.sparse or Dask arrays for a classification problem."""
    blocks = list(blocks_from_arrays(x, y, cost, margin))
    if not blocks:
        raise InputError("the arrays hold no examples")
    values = np.unique(np.concatenate([block.y for block in blocks]))
    names = [label_name(value) for value in values.tolist()]
    classes = tuple(sorted(names, key=natural))
    rank = np.array([classes.index(name) for name in names], dtype=np.int32)

    def shard(number: int, block: Block, first: int) -> Shard:
        codes = rank[np.searchsorted(values, block.y)]
        return Shard(number, first, block.x, codes, block.cost, block.margin)

    firsts = np.cumsum([0, *(len(block.y) for block in blocks)])
    shards = tuple(shard(s, block, int(firsts[s])) for s, block in enumerate(blocks))
    return MemoryDataset(shards, classes, int(x.shape[1]))
