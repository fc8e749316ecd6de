"""What a worker does with one shard for a loss over all examples: scores, and its part of rows.

`table` has a line for each of the weights that were published together: w, and after it what else the phase needs.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rows import Bools, Floats
from distdual.problems.base import Magnitude
from distdual.problems.multivariate.problem import Multivariate, Signs
from distdual.scan.cv_folds import Fold
from distdual.scan.shard_reader import Loaded, Openable, streamed


class Cost(NamedTuple):
    """What the scan of a shard took."""

    bytes_read: int = 0
    gets: int = 0
    read_seconds: float = 0.0
    compute_seconds: float = 0.0
    wire_bytes: int = 0  # of what the worker got for this shard alone, and of what it sends

    @staticmethod
    def of(loaded: Loaded, begin: float, *sent: Any) -> "Cost":
        seconds = time.perf_counter() - begin
        n_bytes = sum(part.nbytes for part in sent)
        return Cost(loaded.bytes_read, loaded.gets, loaded.read_seconds, seconds, n_bytes)

    def paid(self) -> "Cost":
        """Without the cost of reading, for a shard that was in memory."""
        return self._replace(bytes_read=0, gets=0, read_seconds=0.0)


class Participants(NamedTuple):
    """Which examples take part, and how their shards are read."""

    fold: Fold | None = None  # examples to leave out
    check: bool = True  # whether a shard that is not what `prepare` wrote is an error
    run: str = ""  # a name that no other run has: processes keep the positives of shards that they forget under it

    def of(self, shard: Shard) -> Bools:
        """Which examples of a shard take part."""
        n = shard.n_examples
        if self.fold is None:
            return np.ones(n, dtype=np.bool_)
        return ~self.fold.holds(np.arange(shard.first, shard.first + n))


class ShardScores(NamedTuple):
    scores: Floats  # (n_weight_vectors, n) of the examples that take part; of positives alone for pairs
    positive: Bools | None  # (n,) which of these are positives; None if all are
    n: int  # examples that take part
    magnitude: Magnitude
    intact: bool
    cost: Cost


class ShardRows(NamedTuple):
    rows: Floats  # (n_rows, n_weights) this shard's part of each
    cost: Cost


@contextlib.contextmanager
def at_hand(given: Openable | Loaded, problem: Multivariate, number: int, *, check: bool = True) -> Iterator[Loaded]:
    """A shard that is in memory, or is read for this."""
    opened = contextlib.nullcontext(given) if isinstance(given, Loaded) else streamed(given, number, check=check)
    with opened as loaded:
        if loaded.shard.cost is not None:
            raise InputError(f"shard {number}: a {problem.kind} problem has no costs of examples; prepare without them")
        yield loaded


def score_whole_shard(
    given: Openable | Loaded, problem: Multivariate, table: Floats, shard: int, wanted: Participants
) -> ShardScores:
    """The scores of all examples."""
    with at_hand(given, problem, shard, check=wanted.check) as loaded:
        begin, found, kept = time.perf_counter(), loaded.shard, wanted.of(loaded.shard)
        scores = np.stack([finite_scores(problem, w, found)[kept] for w in table])
        positive = (found.y == 1)[kept]
        cost = Cost.of(loaded, begin, scores, positive)
        return ShardScores(scores, positive, len(positive), problem.shard_magnitude(found), loaded.intact, cost)


def sum_whole_shard(
    given: Openable | Loaded, problem: Multivariate, table: Floats, shard: int, signs: Signs, wanted: Participants
) -> ShardRows:
    """Σ sign_i (features_i, bias) for each row of signs, one for each example that takes part."""
    del table
    with at_hand(given, problem, shard, check=wanted.check) as loaded:
        begin, kept = time.perf_counter(), wanted.of(loaded.shard)
        rows = np.empty((len(signs), problem.n_weights))
        for row, own in zip(rows, signs, strict=True):
            weight = np.zeros(loaded.shard.n_examples)
            weight[kept] = own
            row[:] = problem.sum_shard(loaded.shard, weight)
        return ShardRows(rows, Cost.of(loaded, begin, signs, rows))


def finite_scores(problem: Multivariate, w: Floats, shard: Shard) -> Floats:
    scores = problem.shard_scores(w, shard)
    if not np.isfinite(scores).all():
        raise InputError(f"shard {shard.number}: a score is not finite; features or weights are NaN or too large")
    return scores
