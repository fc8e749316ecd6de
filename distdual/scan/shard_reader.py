"""The shard reader: tasks of one process read the next shards while others compute.

A task reserves room for its shard, reads it, and then waits for its turn to compute. `Prefetch` limits the shards in
memory and the tasks that compute at once, and reads no further ahead than reading takes longer than computing. Each
shard is read by the task that needs it, so nothing has to predict which shard is next.
"""

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from typing import NamedTuple, Protocol

from distdual.data.shard import Memo, Read, Shard
from distdual.kernels.row_copies import SPARSE, are_mostly_zeros, without_zeros
from distdual.kernels.rows import DenseRows

ROOM_BYTES = 256 << 20  # of shards in a process that streams; one more than are computed on always fits
ROOM_SHARE = 0.125  # the same, as a share of the process's memory limit
MOST_AHEAD = 8  # shards beyond those that are computed on, however small they are
LEARN = 0.25  # weight of the newest shard's seconds


class Readable(Protocol):
    """A data set that scans read, in storage or in memory."""

    @property
    def shard_bytes(self) -> int: ...

    def read(self, number: int, *, check: bool = True) -> Read: ...


class Openable(Protocol):
    """A reference to a data set, which is sent to where scans run."""

    def open(self) -> Readable: ...


class Loaded(NamedTuple):
    """A shard in a worker's memory, and the cost of reading it."""

    shard: Shard
    bytes_read: int
    read_seconds: float
    gets: int = 0
    intact: bool = True  # False if its checksum differs from the prepared one

    def paid(self) -> "Loaded":
        """Return the shard without its cost, for scans that find it in memory."""
        return self._replace(bytes_read=0, gets=0, read_seconds=0.0)


class Prefetch:
    """Limits on reading ahead and on computing, shared by the tasks of one process."""

    def __init__(self, n_threads: int, memory_limit: int | None = None) -> None:
        self.n_threads = n_threads
        self.room_bytes = ROOM_BYTES if memory_limit is None else min(ROOM_BYTES, int(ROOM_SHARE * memory_limit))
        self.computing = threading.Semaphore(n_threads)
        self.changed = threading.Condition()
        self.n_shards = 0
        self.n_bytes = 0
        self.read_seconds = self.compute_seconds = 0.0  # moving averages per shard

    @contextlib.contextmanager
    def room(self, n_bytes: int) -> Iterator[None]:
        """Wait until there is room for another shard of this size, and hold it."""
        with self.changed:
            self.changed.wait_for(lambda: self.fits(n_bytes))
            self._count(1, n_bytes)
        try:
            yield
        finally:
            with self.changed:
                self._count(-1, -n_bytes)
                self.changed.notify_all()

    def fits(self, n_bytes: int) -> bool:
        ahead = self.n_shards - self.n_threads
        return ahead < 1 or (ahead < self.useful_ahead and self.n_bytes + n_bytes <= self.room_bytes)

    @property
    def useful_ahead(self) -> int:
        """Number of shards that can be read while one is computed on."""
        most = MOST_AHEAD * self.compute_seconds
        return MOST_AHEAD if self.read_seconds >= most else math.ceil(self.read_seconds / self.compute_seconds)

    def learn(self, read_seconds: float, compute_seconds: float) -> None:
        with self.changed:
            self.read_seconds += LEARN * (read_seconds - self.read_seconds)
            self.compute_seconds += LEARN * (compute_seconds - self.compute_seconds)

    def leave_slot(self) -> None:
        """Let the executor start its next task while this one reads; threads need no such step."""

    def _count(self, shards: int, n_bytes: int) -> None:
        self.n_shards += shards
        self.n_bytes += n_bytes


_of_process = Prefetch(os.cpu_count() or 1)
current_prefetch: ContextVar[Prefetch] = ContextVar("prefetch", default=_of_process)


def load_shard(source: Openable, number: int, ready: Callable[[Loaded], Loaded] = lambda loaded: loaded) -> Loaded:
    """Read a shard that stays in memory, and make it `ready` once."""
    with reading(source, number, check=True) as (loaded, prefetch), prefetch.computing:
        return ready(loaded._replace(shard=replace(loaded.shard, memo=Memo())))


def made_lean(loaded: Loaded) -> Loaded:
    """Drop the zeros of wide dense features where most are zero; the time this takes counts as reading.

    Shards that are kept and shards that are streamed both go through here, so that sums agree to the last bit.
    """
    begin, x = time.perf_counter(), loaded.shard.x
    if not isinstance(x, DenseRows) or not are_mostly_zeros(x):
        return loaded
    filled = without_zeros(x)
    if len(filled.values) > SPARSE * x.values.size:  # `are_mostly_zeros` samples a few rows
        return loaded
    taken = loaded.read_seconds + time.perf_counter() - begin
    return loaded._replace(shard=replace(loaded.shard, x=filled), read_seconds=taken)


@contextlib.contextmanager
def streamed(source: Openable, number: int, *, check: bool = True) -> Iterator[Loaded]:
    """Read a shard when there is room, compute on it in turn, and forget it."""
    with reading(source, number, check=check) as (loaded, prefetch), prefetch.computing:
        begin = time.perf_counter()
        yield loaded
        prefetch.learn(loaded.read_seconds, time.perf_counter() - begin)


@contextlib.contextmanager
def reading(source: Openable, number: int, *, check: bool) -> Iterator[tuple[Loaded, Prefetch]]:
    data, prefetch = source.open(), current_prefetch.get()
    with prefetch.room(data.shard_bytes):
        if data.shard_bytes:
            prefetch.leave_slot()
        begin = time.perf_counter()
        read = data.read(number, check=check)
        yield Loaded(read.shard, read.n_bytes, time.perf_counter() - begin, read.n_gets, read.intact), prefetch
