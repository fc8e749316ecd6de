"""The part of a task that runs on a Dask worker: load shards, scan them, and stay within the worker's limits.

A task that reads secedes from the worker's thread pool, so that the worker starts its next task, which begins to read
as well. scan/shard_reader.py limits how far ahead they read, so a worker takes no tasks that others could begin.
"""

import ctypes
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from distdual.cluster.same_sources import HERE, ForeignWorkerError, Sources, is_same
from distdual.kernels.rows import Floats, Int32s, Ints
from distdual.problems.base import Problem
from distdual.problems.latent.base import Completed
from distdual.scan.scan import Scan, ShardReport, load_and_scan, ready, scan_shard
from distdual.scan.shard_reader import Loaded, Openable, Prefetch, current_prefetch, load_shard

FULL = 0.6  # share of the memory limit above which freed memory is returned; Dask pauses a worker at 0.8


class LatentValues(NamedTuple):
    """The latent values of a shard's examples, as Completed holds them."""

    values: Int32s
    first: int
    indptr: Ints | None


@dataclass(frozen=True, slots=True)
class ShardWork:
    """The arguments of a task for one shard."""

    shard: int
    arguments: tuple[Any, ...]
    latent: LatentValues | None  # the rest of the problem is the same for all shards


@dataclass(frozen=True, slots=True)
class TaskWork:
    """A function and the shards that one task applies it to."""

    function: Any  # of (source or loaded shard, problem, w, *arguments)
    each: list[ShardWork]
    sources: Sources = HERE  # of the sender


class TaskDone(NamedTuple):
    """The results of a task, and what computed them."""

    results: list[Any]
    worker: str
    sources: Sources


def check_sender(sender: Sources) -> None:
    """Raise unless this worker runs what the process that sends the task runs."""
    from distributed import get_worker

    if not is_same(sender):
        raise ForeignWorkerError(get_worker().address)


def load_bundle(source: Openable, shards: Sequence[int], sender: Sources, problem: Problem) -> dict[int, Loaded]:
    check_sender(sender)
    with worker_prefetch():
        return {shard: load_shard(source, shard, partial(ready, problem)) for shard in shards}


def work_on_shards(task: TaskWork, given: Any, problem: Any, w: Floats) -> TaskDone:
    """Apply the task's function to each of its shards; `given` is a source, or loaded shards by number."""
    from distributed import get_worker

    check_sender(task.sources)
    results = []
    with worker_prefetch():
        for work in task.each:
            one = given[work.shard] if isinstance(given, dict) else given
            own = problem if work.latent is None else Completed(problem, *work.latent)
            results.append(task.function(one, own, w, *work.arguments))
    return_freed_memory()
    return TaskDone(results, get_worker().address, HERE)


def scan_on_worker(given: Any, problem: Problem, w: Floats, scan: Scan) -> ShardReport:
    kept = isinstance(given, Loaded)
    report = scan_shard(problem, given, w, scan) if kept else load_and_scan(given, problem, w, scan)
    return report._replace(worker=worker_name())


def worker_name() -> str:
    from distributed import get_worker

    return str(get_worker().name).removeprefix("tcp://").removeprefix("tls://")


class WorkerPrefetch(Prefetch):
    """The limits of one Dask worker, whose tasks secede while they read."""

    def leave_slot(self) -> None:
        """Secede once per task, however many shards it reads."""
        from distributed import secede
        from distributed.threadpoolexecutor import thread_state

        if getattr(thread_state, "proceed", False):
            secede()


_by_worker: "weakref.WeakKeyDictionary[Any, WorkerPrefetch]" = weakref.WeakKeyDictionary()
_prefetch_lock = threading.Lock()


@contextmanager
def worker_prefetch() -> Iterator[None]:
    """Read shards within the limits of the worker that runs this task."""
    from distributed import get_worker

    worker = get_worker()
    with _prefetch_lock:
        limits = WorkerPrefetch(worker.state.nthreads, worker.memory_manager.memory_limit)
        shared = _by_worker.setdefault(worker, limits)
    token = current_prefetch.set(shared)
    try:
        yield
    finally:
        current_prefetch.reset(token)


def return_freed_memory() -> None:
    """Return the memory of freed shards to the system when the worker comes near its limit.

    The C library keeps it for the next shards, but Dask counts it as used, and stops sending tasks to a worker that
    uses most of its memory.
    """
    from distributed import get_worker

    worker = get_worker()
    limit = worker.memory_manager.memory_limit
    if limit is not None and worker.monitor.get_process_memory() > FULL * limit:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only; other libraries keep less
        if trim is not None:
            trim(0)
