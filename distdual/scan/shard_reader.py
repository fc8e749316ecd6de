"""How does a worker read the next shards while it computes on this one?

A task that has to read leaves the worker's slot for the time being (Dask's `secede`), so that the next task can begin
to read as well. Room for shards that are read or about to be is limited, no more of them are read ahead than reading
takes longer than computing, and no more tasks compute at a time than the worker has threads. So every shard is read by
the task that needs it, once, nobody has to guess which is next, and a worker takes no tasks that others could begin.
"""

import contextlib
import ctypes
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from distdual.data.shard import Read, Shard
from distdual.kernels.row_copies import SPARSE, are_mostly_zeros, without_zeros
from distdual.kernels.rows import DenseRows

ROOM_BYTES = 256 << 20  # of shards in a process that streams; one more than are computed on is always let in
ROOM_SHARE = 0.125  # the same, as a share of the memory that a worker may use
FULL = 0.6  # share of that memory, from which on freed memory is given back; Dask stops a worker that keeps 0.8
MOST_AHEAD = 8  # shards beyond those that are computed on, however small they are
LEARN = 0.25  # weight of the newest shard's seconds


class Readable(Protocol):
    """What scans read from: a data set, in storage or in memory."""

    @property
    def shard_bytes(self) -> int: ...

    def read(self, number: int, *, check: bool = True) -> Read: ...


class Openable(Protocol):
    """What is sent to where scans run."""

    def open(self) -> Readable: ...


class Loaded(NamedTuple):
    """A shard in a worker's memory, and what it cost to read."""

    shard: Shard
    bytes_read: int
    read_seconds: float
    gets: int = 0
    intact: bool = True  # False if it is not what was prepared

    def paid(self) -> "Loaded":
        """The same, when it need not be read again."""
        return self._replace(bytes_read=0, gets=0, read_seconds=0.0)


class Turns:
    """Who may read and who may compute, among the tasks of one worker."""

    def __init__(self, n_threads: int, memory_limit: int | None = None) -> None:
        self.n_threads = n_threads
        self.room_bytes = ROOM_BYTES if memory_limit is None else min(ROOM_BYTES, int(ROOM_SHARE * memory_limit))
        self.computing = threading.Semaphore(n_threads)
        self.changed = threading.Condition()
        self.n_shards = 0
        self.n_bytes = 0
        self.read_seconds = self.compute_seconds = 0.0  # of a shard, the last ones counting most

    @contextlib.contextmanager
    def room(self, n_bytes: int) -> Iterator[None]:
        """Wait until another shard of this size may be in memory."""
        with self.changed:
            self.changed.wait_for(lambda: self._fits(n_bytes))
            self._count(1, n_bytes)
        try:
            yield
        finally:
            with self.changed:
                self._count(-1, -n_bytes)
                self.changed.notify_all()

    def _fits(self, n_bytes: int) -> bool:
        ahead = self.n_shards - self.n_threads
        return ahead < 1 or (ahead < self.useful_ahead and self.n_bytes + n_bytes <= self.room_bytes)

    @property
    def useful_ahead(self) -> int:
        """As many as are read while one is computed on."""
        most = MOST_AHEAD * self.compute_seconds
        return MOST_AHEAD if self.read_seconds >= most else math.ceil(self.read_seconds / self.compute_seconds)

    def learn(self, read_seconds: float, compute_seconds: float) -> None:
        with self.changed:
            self.read_seconds += LEARN * (read_seconds - self.read_seconds)
            self.compute_seconds += LEARN * (compute_seconds - self.compute_seconds)

    def _count(self, shards: int, n_bytes: int) -> None:
        self.n_shards += shards
        self.n_bytes += n_bytes


def load_shard(source: Openable, number: int, *, lean: bool = False) -> Loaded:
    """Read a shard that is to stay in memory; the worker goes on with other tasks meanwhile.

    With `lean`, it stays without zeros, if it has many.
    """
    with reading(source, number, check=True) as (loaded, turns):
        if not lean:
            return loaded
        with turns.computing:
            return made_lean(loaded)


def made_lean(loaded: Loaded) -> Loaded:
    """The shard without the zeros of wide dense features, where most are; the time it takes counts as reading.

    Wherever it is scanned, kept or not, or sums in another order would show in the last bits.
    """
    begin, x = time.perf_counter(), loaded.shard.x
    if not isinstance(x, DenseRows) or not are_mostly_zeros(x):
        return loaded
    filled = without_zeros(x)
    if len(filled.values) > SPARSE * x.values.size:  # a few rows are looked at, the others may differ
        return loaded
    taken = loaded.read_seconds + time.perf_counter() - begin
    return loaded._replace(shard=replace(loaded.shard, x=filled), read_seconds=taken)


@contextlib.contextmanager
def streamed(source: Openable, number: int, *, check: bool = True) -> Iterator[Loaded]:
    """Read a shard in turn, compute on it in turn, and forget it."""
    with reading(source, number, check=check) as (loaded, turns), turns.computing:
        begin = time.perf_counter()
        yield loaded
        turns.learn(loaded.read_seconds, time.perf_counter() - begin)


@contextlib.contextmanager
def reading(source: Openable, number: int, *, check: bool) -> Iterator[tuple[Loaded, Turns]]:
    data = source.open()
    worker = this_worker()
    turns = turns_of(worker)
    with turns.room(data.shard_bytes):
        if worker is not None and data.shard_bytes:
            leave_slot()
        begin = time.perf_counter()
        read = data.read(number, check=check)
        yield Loaded(read.shard, read.n_bytes, time.perf_counter() - begin, read.n_gets, read.intact), turns


_turns: "weakref.WeakKeyDictionary[Any, Turns]" = weakref.WeakKeyDictionary()
_here = Turns(os.cpu_count() or 1)  # of threads that belong to no Dask worker
_lock = threading.Lock()


def turns_of(worker: Any) -> Turns:
    if worker is None:
        return _here
    with _lock:
        return _turns.setdefault(worker, Turns(worker.state.nthreads, worker.memory_manager.memory_limit))


def this_worker() -> Any:
    """The Dask worker whose task this is; None outside of one."""
    if "distributed" not in sys.modules:  # nobody can have started one
        return None
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


def leave_slot() -> None:
    """Once a task, however many shards it reads."""
    from distributed import secede
    from distributed.threadpoolexecutor import thread_state

    if getattr(thread_state, "proceed", False):
        secede()


def give_back() -> None:
    """Let the system have the memory of freed shards when the worker comes near its limit.

    The C library keeps it for the next shards, but Dask counts it as used, and gives no work to a worker that uses most
    of what it may: it would never be given any again.
    """
    worker = this_worker()
    limit = None if worker is None else worker.memory_manager.memory_limit
    if limit is not None and worker.monitor.get_process_memory() > FULL * limit:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc; others keep less
        if trim is not None:
            trim(0)
