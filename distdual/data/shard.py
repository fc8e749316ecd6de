"""Examples in memory: the `Block` that `prepare` writes and the `Shard` that training reads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.kernels.rounding import value_norm_bound
from distdual.kernels.rows import CsrRows, Features, Floats, Int32s, Ints

MEMO_BYTES = 64 << 20  # of a shard's memo


class Runs(NamedTuple):
    """A column with several numbers an example: those of i are values[indptr[i]] … values[indptr[i + 1] − 1]."""

    indptr: Ints  # (n + 1,)
    values: NDArray[Any]

    def of(self, i: int) -> NDArray[Any]:
        return self.values[self.indptr[i] : self.indptr[i + 1]]

    def take(self, which: Any) -> "Runs":
        at, indptr = take_runs(self.indptr, np.arange(len(self.indptr) - 1)[which])
        return Runs(indptr, self.values[at])


class Block(NamedTuple):
    """A run of examples on the way into a data set, labels still as the source spells them."""

    x: Features
    y: NDArray[Any]
    cost: Floats | None = None
    margin: Floats | None = None
    tokens: Ints | None = None  # as Shard.tokens
    runs: Mapping[str, Runs] | None = None

    @property
    def n_examples(self) -> int:
        return len(self.y) if self.tokens is None else len(self.tokens) - 1

    @property
    def structured(self) -> bool:
        return are_structures(self.runs)

    def take(self, which: Any) -> "Block":
        """The examples selected by a slice, an index array or a mask."""
        cost = None if self.cost is None else self.cost[which]
        margin = None if self.margin is None else self.margin[which]
        rows, tokens = (which, None) if self.tokens is None else take_tokens(self.tokens, which)
        runs = self.runs and {name: column.take(which) for name, column in self.runs.items()}
        return Block(self.x.take(rows), self.y[rows], cost, margin, tokens, runs)


class Memo:
    """What was computed once of examples that stay in memory, by example; shared by all pieces of a shard.

    It does not travel: another process begins with an empty one.
    """

    def __init__(self, room: int = MEMO_BYTES) -> None:
        self.room = room
        self.known: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        return self.known.get(key)

    def add(self, key: Any, value: Any, size: int) -> None:
        if size <= self.room:
            self.room -= size
            self.known[key] = value

    def __reduce__(self) -> Any:
        return Memo, ()


def no_features(n: int) -> CsrRows:
    """The features of n structures, which have arrays of their own instead."""
    return CsrRows(np.zeros(n + 1, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32))


def are_structures(runs: Iterable[str] | None) -> bool:
    """Whether columns of runs of these names hold structures, see data/structures.py."""
    return any(name == "x" or name.startswith("x_") for name in runs or ())


@dataclass(frozen=True, slots=True)
class Shard:
    """The examples of chunk `number`, without padding. Example i of the shard is example `first + i` of the data.

    Where examples are sequences, example i is rows tokens[i] … tokens[i + 1] − 1 of x and y.
    """

    number: int
    first: int
    x: Features
    y: NDArray[Any]
    cost: Floats | None = None
    margin: Floats | None = None
    tokens: Ints | None = None  # (n + 1,) where each sequence begins, and the end of the last; None for single rows
    runs: Mapping[str, Runs] | None = None  # columns of runs, by name
    latent: Int32s | None = None  # what a run has imputed, one an example or a token; never stored, lost by `piece`
    kept: bool = False  # whether it stays in this process, so that rows of constraints may refer to it
    norm: float | None = None  # an upper bound of the largest ||x_i||, where it is known
    mapped: bool = False  # whether x are mapped features instead of those of the data set
    memo: Memo | None = None  # where the shard stays in this process

    @property
    def n_examples(self) -> int:
        return len(self.y) if self.tokens is None else len(self.tokens) - 1

    @property
    def structured(self) -> bool:
        return are_structures(self.runs)

    def piece(self, begin: int, end: int) -> "Shard":
        """Examples begin … end − 1, without copying a feature."""
        rows, tokens = slice(begin, end), None
        if self.tokens is not None:
            rows = slice(int(self.tokens[begin]), int(self.tokens[end]))
            tokens = self.tokens[begin : end + 1] - self.tokens[begin]
        x = self.x.piece(rows.start, rows.stop)
        cost = None if self.cost is None else self.cost[begin:end]
        margin = None if self.margin is None else self.margin[begin:end]
        runs = self.runs and {name: column.take(slice(begin, end)) for name, column in self.runs.items()}
        columns = (cost, margin, tokens, runs, None, self.kept, self.norm, self.mapped, self.memo)
        return Shard(self.number, self.first + begin, x, self.y[rows], *columns)

    def norm_bound(self) -> float:
        """An upper bound of the largest ||x_i||, computed unless it is known."""
        return value_norm_bound(self.x) if self.norm is None else self.norm

    @property
    def nbytes(self) -> int:
        """Bytes of its own examples; sparse values that it shares with other pieces are not counted."""
        columns = (self.cost, self.margin, self.tokens)
        parts = [*self.x.trimmed(), self.y, *columns, *run_arrays(self.runs).values()]
        return sum(part.nbytes for part in parts if part is not None)


class Read(NamedTuple):
    """A shard that was read, and what that took."""

    shard: Shard
    n_bytes: int = 0  # from the storage
    n_gets: int = 0
    intact: bool = True  # False if it is not what `prepare` wrote


def run_arrays(runs: Mapping[str, Runs] | None) -> dict[str, NDArray[Any]]:
    """The arrays of columns of runs, under their names in the data set."""
    return {
        key: array
        for name, column in (runs or {}).items()
        for key, array in ((f"{name}_indptr", column.indptr), (name, column.values))
    }


def take_tokens(tokens: Ints, which: Any) -> tuple[Any, Ints]:
    """The rows of the selected sequences, as a slice where these are neighbours, and their own `tokens`."""
    chosen = np.arange(len(tokens) - 1)[which]
    if isinstance(which, slice) and which.step is None and len(chosen):
        begin, end = chosen[0], chosen[-1] + 1
        return slice(int(tokens[begin]), int(tokens[end])), tokens[begin : end + 1] - tokens[begin]
    return take_runs(tokens, chosen)


def take_runs(indptr: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """The places of all that the chosen runs hold, and the indptr of what is taken."""
    lengths = np.diff(indptr)[chosen]
    new = np.concatenate([[0], np.cumsum(lengths)])
    return np.repeat(indptr[chosen] - new[:-1], lengths) + np.arange(new[-1]), new


def join_rows(parts: list[Any]) -> Features:
    """Several matrices of one format, one below the other."""
    joined: Features = parts[0] if len(parts) == 1 else parts[0].joined(parts)
    return joined


def join_tokens(parts: list[Ints | None]) -> Ints | None:
    there = [part for part in parts if part is not None]
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part) for part in there]))]) if there else None


def join_runs(parts: list[Mapping[str, Runs]]) -> dict[str, Runs] | None:
    if not parts:
        return None
    joined = {}
    for name in parts[0]:
        columns = [part[name] for part in parts]
        lengths = np.concatenate([np.diff(column.indptr) for column in columns])
        values = np.concatenate([column.values for column in columns])
        joined[name] = Runs(np.concatenate([[0], np.cumsum(lengths)]), values)
    return joined


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
        join_tokens([block.tokens for block in blocks]),
        join_runs([block.runs for block in blocks if block.runs is not None]),
    )
