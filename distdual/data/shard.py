"""What does one shard look like in memory, before it is written and after it is read?"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.rows import CsrRows, DenseRows, Features, Floats, n_rows


class Block(NamedTuple):
    """A run of examples on the way into a data set, labels still as the source spells them."""

    x: Features
    y: NDArray[Any]
    cost: Floats | None = None
    margin: Floats | None = None

    def take(self, which: Any) -> "Block":
        """The examples selected by a slice, an index array or a mask."""
        cost = None if self.cost is None else self.cost[which]
        margin = None if self.margin is None else self.margin[which]
        return Block(take_rows(self.x, which), self.y[which], cost, margin)


@dataclass(frozen=True, slots=True)
class Shard:
    """The examples of chunk `number`, without padding. Example i of the shard is example `first + i` of the data."""

    number: int
    first: int
    x: Features
    y: NDArray[Any]
    cost: Floats | None = None
    margin: Floats | None = None

    @property
    def n_examples(self) -> int:
        return len(self.y)

    def piece(self, begin: int, end: int) -> "Shard":
        """Examples begin … end − 1, without copying a feature."""
        if isinstance(self.x, DenseRows):
            x: Features = DenseRows(self.x.values[begin:end])
        else:
            x = self.x._replace(indptr=self.x.indptr[begin : end + 1])
        cost = None if self.cost is None else self.cost[begin:end]
        margin = None if self.margin is None else self.margin[begin:end]
        return Shard(self.number, self.first + begin, x, self.y[begin:end], cost, margin)

    @property
    def nbytes(self) -> int:
        parts = [*self.x, self.y, self.cost, self.margin]
        return sum(part.nbytes for part in parts if part is not None)


def take_rows(x: Features, which: Any) -> Features:
    """The rows selected by a slice, an index array or a mask, as a copy unless a slice of dense rows."""
    if isinstance(x, DenseRows):
        return DenseRows(x.values[which])
    chosen = np.arange(n_rows(x))[which]
    lengths = np.diff(x.indptr)[chosen]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    at = np.repeat(x.indptr[chosen] - indptr[:-1], lengths) + np.arange(indptr[-1])
    return CsrRows(indptr, x.indices[at], x.values[at])


def join_rows(parts: list[Features]) -> Features:
    """Several matrices of one format, one below the other."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], DenseRows):
        return DenseRows(np.concatenate([part.values for part in parts]))
    sparse = [part for part in parts if isinstance(part, CsrRows)]
    offsets = np.cumsum([0] + [part.indptr[-1] - part.indptr[0] for part in sparse])
    moved = [part.indptr[1:] - part.indptr[0] + at for part, at in zip(sparse, offsets[:-1], strict=True)]
    return CsrRows(
        np.concatenate([[0], *moved]),
        np.concatenate([part.indices[part.indptr[0] : part.indptr[-1]] for part in sparse]),
        np.concatenate([part.values[part.indptr[0] : part.indptr[-1]] for part in sparse]),
    )


def join_blocks(blocks: list[Block]) -> Block:
    def column(parts: list[Floats | None]) -> Floats | None:
        there = [part for part in parts if part is not None]
        return np.concatenate(there) if there else None

    if len(blocks) == 1:
        return blocks[0]
    return Block(
        join_rows([block.x for block in blocks]),
        np.concatenate([block.y for block in blocks]),
        column([block.cost for block in blocks]),
        column([block.margin for block in blocks]),
    )
