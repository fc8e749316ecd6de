"""The positives of shards, which a process keeps when it forgets the shards: two of three phases look at nothing else.

Where shards are streamed, a pass then reads each once. What a process keeps saves reading and is never needed: another
process, or one without room for it, reads the shard again.
"""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from distdual.data.shard import Shard
from distdual.problems.base import Magnitude
from distdual.problems.multivariate.problem import Multivariate
from distdual.scan.shard_reader import Loaded, Openable
from distdual.scan.whole_data import Participants, at_hand

POSITIVES_BYTES = 128 << 20  # of positives in a process


class Positives(NamedTuple):
    """What two phases need of a shard."""

    rows: Shard  # of the positives that take part
    n: int  # examples that take part, with the negatives
    magnitude: Magnitude  # of the whole shard


class KeptPositives:
    """Those of the shards that this process has read lately."""

    def __init__(self, room: int = POSITIVES_BYTES) -> None:
        self.room = room
        self.used = 0
        self.known: OrderedDict[Hashable, tuple[Positives, Loaded]] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, key: Hashable) -> tuple[Positives, Loaded] | None:
        with self.lock:
            if key in self.known:
                self.known.move_to_end(key)
            return self.known.get(key)

    def add(self, key: Hashable, found: Positives, loaded: Loaded) -> None:
        """Keep them, in place of those that were not asked for the longest; nothing if they alone exceed the room."""
        with self.lock:
            if key in self.known or found.rows.nbytes > self.room:
                return
            self.known[key] = found, loaded.paid()._replace(shard=found.rows)
            self.used += found.rows.nbytes
            while self.used > self.room:
                _, (oldest, _) = self.known.popitem(last=False)
                self.used -= oldest.rows.nbytes


_kept_here = KeptPositives()


@contextlib.contextmanager
def positives_at_hand(
    given: Openable | Loaded, problem: Multivariate, number: int, wanted: Participants
) -> Iterator[tuple[Positives, Loaded]]:
    """The positives of a shard, and what reading it costs; nothing if this process has kept them."""
    kept = None if isinstance(given, Loaded) else _kept_here.get(positives_key(number, wanted))
    if kept is not None:
        yield kept
        return
    with at_hand(given, problem, number, check=wanted.check) as loaded:
        yield keep_positives(given, problem, number, wanted, loaded), loaded


def keep_positives(
    given: Openable | Loaded, problem: Multivariate, number: int, wanted: Participants, loaded: Loaded
) -> Positives:
    """The positives of a shard that is in memory, kept with it; or in this process, if the shard is not kept."""
    if isinstance(given, Loaded):
        return with_shard(problem, wanted, loaded.shard)
    found = positives_of(problem, wanted, loaded.shard)
    if wanted.run:
        _kept_here.add(positives_key(number, wanted), found, loaded)
    return found


def positives_key(number: int, wanted: Participants) -> Hashable:
    return wanted.run, wanted.fold, number


def with_shard(problem: Multivariate, wanted: Participants, shard: Shard) -> Positives:
    key, memo = ("positives", wanted.fold), shard.memo
    found: Positives | None = memo.get(key) if memo else None
    if found is None:
        found = positives_of(problem, wanted, shard)
        if memo:
            memo.add(key, found, found.rows.nbytes)
    return found


def positives_of(problem: Multivariate, wanted: Participants, shard: Shard) -> Positives:
    kept = wanted.of(shard)
    at = np.flatnonzero(kept & (shard.y == 1))
    rows = replace(shard, x=shard.x.take(at), y=shard.y[at], kept=False, memo=None)
    return Positives(rows, int(kept.sum()), problem.shard_magnitude(shard))
