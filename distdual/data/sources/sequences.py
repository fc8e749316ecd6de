"""Blocks of whole sequences from runs of tokens."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.data.shard import Block, join_blocks
from distdual.data.sources.arrays import Stream, blocks_from_arrays, checked_weights, column_stream, is_sparse
from distdual.errors import InputError
from distdual.kernels.rows import Bools, Ints


class Ragged(NamedTuple):
    """Sequences as arrays in memory, one below the other."""

    x: Any  # (n_tokens, n_features)
    y: NDArray[Any]  # (n_tokens,)
    tokens: Ints  # (n + 1,) where each sequence begins, and the end of the last


class TokenRun(NamedTuple):
    """Some tokens, each an example of `block`, and where a sequence begins among them."""

    block: Block
    begins: Bools


class Names:
    """The names of the sequences of one file, each of which may name one sequence."""

    def __init__(self) -> None:
        self.last: Any = None
        self.known: set[Any] = set()

    def begins(self, names: NDArray[Any], refuse: Callable[[int, str], InputError]) -> Bools:
        """Where a sequence begins among the tokens that follow those seen so far, each with the name of its sequence.

        A name that comes back would split its sequence in two: `refuse` says in which of the tokens.
        """
        found = np.ones(len(names), dtype=np.bool_)
        found[1:] = names[1:] != names[:-1]
        found[:1] = names[:1] != self.last
        for k in np.flatnonzero(found):
            name = names[k].item()
            if name in self.known:
                raise refuse(int(k), f"sequence {name} comes back after others; sort the rows by sequence")
            self.known.add(name)
        self.last = names[-1].item() if len(names) else self.last
        return found


def whole_sequences(runs: Iterator[TokenRun], cost: Stream | None = None) -> Iterator[Block]:
    """Blocks of whole sequences; `cost` has an entry for each. Holds a run and the longest sequence in memory."""
    held: list[TokenRun] = []
    for run in runs:
        starts = np.flatnonzero(run.begins)
        if len(starts):
            cut = int(starts[-1])
            if held or cut:
                yield as_sequences([*held, part_of(run, slice(0, cut))], cost)
            held, run = [], part_of(run, slice(cut, None))  # noqa: PLW2901 - the rest of it
        held.append(run)
    if held:
        yield as_sequences(held, cost)
    if cost is not None:
        cost.check_end()


def part_of(run: TokenRun, which: slice) -> TokenRun:
    return TokenRun(run.block.take(which), run.begins[which])


def as_sequences(runs: list[TokenRun], cost: Stream | None) -> Block:
    runs = [run for run in runs if len(run.begins)]
    block = join_blocks([run.block for run in runs])
    tokens = np.append(np.flatnonzero(np.concatenate([run.begins for run in runs])), len(block.y))
    if cost is None:
        return block._replace(tokens=tokens)
    first = cost.taken
    return block._replace(tokens=tokens, cost=checked_weights(cost.take(len(tokens) - 1), cost.name, first))


def begins_at(blocks: Iterator[Block], tokens: Ints) -> Iterator[TokenRun]:
    """Runs of tokens from bounds that are known beforehand."""
    first = 0
    for block in blocks:
        begins = np.zeros(len(block.y), dtype=np.bool_)
        low, high = np.searchsorted(tokens, [first, first + len(begins)])
        begins[tokens[low:high] - first] = True
        yield TokenRun(block, begins)
        first += len(begins)


def check_bounds(tokens: NDArray[Any], n_tokens: int | None, name: str) -> Ints:
    """Bounds of sequences as int64, once they rise from 0 to the number of tokens."""
    if tokens.dtype.kind not in "iu" or tokens.ndim != 1:
        raise InputError(f"{name} must be a list of whole numbers, found {tokens.dtype} of {tokens.ndim} dimensions")
    bounds = tokens.astype(np.int64)
    if len(bounds) < 2 or bounds[0] != 0 or (np.diff(bounds) < 1).any():
        raise InputError(f"{name} must rise from 0: where each sequence begins, and the end of the last")
    if n_tokens is not None and bounds[-1] != n_tokens:
        raise InputError(f"{name} ends at {bounds[-1]}, but there are {n_tokens} rows of features")
    return bounds


def ragged(x: Any, y: Any, lengths: Any = None) -> Ragged:
    """Sequences given as a list of arrays, or as flat arrays and the length of each sequence."""
    if lengths is None:
        if not len(x) or len(x) != len(y):
            raise InputError(f"{len(x)} sequences of features, but {len(y)} of labels")
        lengths = [np.shape(part)[0] for part in x]
        for i, (n, labels) in enumerate(zip(lengths, y, strict=True)):
            if n != len(labels):
                raise InputError(f"sequence {i} has {n} rows of features, but {len(labels)} labels")
        x, y = stack(list(x)), np.concatenate([np.asarray(part) for part in y])
    bounds = np.concatenate([[0], np.cumsum(np.asarray(lengths))])
    return Ragged(x, np.asarray(y), check_bounds(bounds, len(y), "the lengths, added up,"))


def lengths_of(qid: Any, name: str) -> Ints:
    """The number of rows of each query, whose rows follow each other and have the same qid."""
    ids = np.asarray(qid)
    if ids.ndim != 1:
        raise InputError(f"{name} must have 1 dimension, found {ids.ndim}")
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])[: len(ids)])
    if len(np.unique(ids[starts])) < len(starts):
        _, first, count = np.unique(ids[starts], return_index=True, return_counts=True)
        again = ids[starts[first[np.argmax(count)]]]
        raise InputError(f"{name}: rows of query {again} are apart; sort the rows by query")
    return np.diff(np.append(starts, len(ids)))


def stack(parts: list[Any]) -> Any:
    if is_sparse(parts[0]):
        import scipy.sparse as sp

        return sp.vstack(parts, format="csr")
    return np.concatenate([np.asarray(part) for part in parts])


def blocks_from_ragged(made: Ragged, cost: Any = None, *, name: str = "the arrays") -> Iterator[Block]:
    """Blocks of whole sequences from arrays in memory."""
    flat = blocks_from_arrays(made.x, made.y, name=name)
    costs = None if cost is None else column_stream(f"{name}: 'cost'", cost)
    if costs is not None and costs.length not in (None, len(made.tokens) - 1):
        raise InputError(f"{costs.name} has {costs.length} entries, but there are {len(made.tokens) - 1} sequences")
    return whole_sequences(begins_at(flat, made.tokens), costs)
