"""Where do scans run? In threads of this process, or on a Dask cluster; both keep one contract."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, Protocol

from distdual.cluster.dask_client import connect, send_module
from distdual.cluster.dask_executor import DaskExecutor
from distdual.cluster.pending_scans import Held, arrived, run_all
from distdual.config import ClusterConfig
from distdual.data.dataset import Dataset, TrainingData
from distdual.data.in_memory import MemoryDataset
from distdual.errors import InputError
from distdual.kernels.rows import Floats
from distdual.problems.base import Problem
from distdual.scan.scan import Scan, ShardReport, is_ours, load_and_scan, scan_shard, wants_lean
from distdual.scan.shard_reader import MOST_AHEAD, Loaded, load_shard

IN_MEMORY = 2 << 30  # bytes of shards that threads of this process keep between passes


class Executor(Protocol):
    """Runs scans of one problem on one data set, at several versions of the weights if need be."""

    problem: Problem  # another one on the same examples may take its place when no scan is pending
    events: list[str]  # faults that were dealt with; who reads them removes them

    @property
    def slots(self) -> int:
        """Scans that can run at once; it changes as workers come and go."""
        ...

    @property
    def pending(self) -> int:
        """Scans that were started and are not yet collected."""
        ...

    def publish(self, version: int, w: Floats) -> None:
        """Make weights known. They travel once a version and worker.

        Earlier versions are held as long as scans at them are pending, and then forgotten.
        """
        ...

    def start(self, scans: Sequence[Scan]) -> None:
        """Begin scans, each at a version that is held."""
        ...

    def collect(self, wait: float) -> list[ShardReport]:
        """What has ended since the last call, in any order; a scan that failed raises here.

        Waits up to this many seconds for the first one to end, and not at all where no scan is pending.
        """
        ...

    def drop(self) -> None:
        """Forget the scans that are pending."""
        ...

    def reports(self, scans: Sequence[Scan]) -> Iterator[ShardReport]:
        """Run these scans, while no other is pending; yields as they end."""
        ...

    def map_shards(self, function: Any, shards: Sequence[int], *parts: Sequence[Any]) -> Iterator[Any]:
        """function(source, problem, w, shard, *parts of that shard) for each shard, in the order of `shards`.

        w are the weights that were published last.
        """
        ...

    def close(self) -> None: ...


class InlineExecutor:
    """Threads of this process: no cluster to start, no copies. Kernels release the GIL."""

    def __init__(self, dataset: TrainingData, problem: Problem, *, threads: int = 2) -> None:
        self.source = dataset
        self.problem = problem
        self.slots = threads
        self.events: list[str] = []
        self.held: Held[Floats] = Held()
        self.running: dict[Future[ShardReport], int] = {}  # the version of each
        self.ended: SimpleQueue[Future[ShardReport]] = SimpleQueue()
        self.shards: dict[int, Loaded] | None = {} if dataset.nbytes <= IN_MEMORY else None
        ahead = 0 if self.shards is not None else MOST_AHEAD
        self.pool = ThreadPoolExecutor(threads + ahead, thread_name_prefix="scan")

    @property
    def pending(self) -> int:
        return len(self.running)

    def publish(self, version: int, w: Floats) -> None:
        self.held.publish(version, w.copy())

    def start(self, scans: Sequence[Scan]) -> None:
        for scan in scans:
            future = self.pool.submit(self._scan, scan, self.held.begin(scan.version))
            self.running[future] = scan.version
            future.add_done_callback(self.ended.put)

    def collect(self, wait: float) -> list[ShardReport]:
        end = time.monotonic() + wait
        while self.running:
            found = [future for future in arrived(self.ended, end - time.monotonic()) if future in self.running]
            for future in found:  # others were dropped
                self.held.end(self.running.pop(future))
            if found or time.monotonic() >= end:
                return [future.result() for future in found]
        return []

    def drop(self) -> None:
        for future, version in self.running.items():
            future.cancel()
            self.held.end(version)
        self.running = {}

    def reports(self, scans: Sequence[Scan]) -> Iterator[ShardReport]:
        if len(scans) == 1:  # a small data set is one shard: waking a thread would take as long as the scan
            return iter([self._scan(scans[0], self.held.by_version[scans[0].version])])
        return run_all(self, scans)

    def map_shards(self, function: Any, shards: Sequence[int], *parts: Sequence[Any]) -> Iterator[Any]:
        w = self.held.by_version[self.held.newest]
        arguments = zip(shards, *parts, strict=True)
        futures = [self.pool.submit(function, self.source, self.problem, w, *each) for each in arguments]
        return (future.result() for future in futures)

    def close(self) -> None:
        self.drop()
        self.pool.shutdown(cancel_futures=True)

    def _scan(self, scan: Scan, w: Floats) -> ShardReport:
        if self.shards is None:
            return load_and_scan(self.source, self.problem, w, scan)
        loaded = self.shards.get(scan.shard)
        if loaded is None:
            loaded = load_shard(self.source, scan.shard, lean=wants_lean(self.problem))
            kept = is_ours(self.problem)  # others may look into rows, so they get copies
            loaded = loaded._replace(shard=replace(loaded.shard, kept=kept))
            self.shards[scan.shard] = loaded.paid()
        return scan_shard(self.problem, loaded, w, scan)


@contextlib.contextmanager
def open_executor(
    cluster: ClusterConfig, dataset: Dataset | MemoryDataset, problem: Problem, client: Any = None
) -> Iterator[Executor]:
    """The executor that [cluster] asks for, or one on a client that is there already."""
    check_examples(dataset, problem)
    if client is not None:
        yield from _closing(on_dask(client, dataset, problem, cluster))
    elif cluster.scheduler or cluster.local:
        with connect(cluster) as own:
            yield from _closing(on_dask(own, dataset, problem, cluster))
    else:
        yield from _closing(InlineExecutor(dataset, problem))


def dask_page(executor: Executor) -> str | None:
    """The address of the page on which Dask shows its workers; None where scans run in threads."""
    return executor.client.dashboard_link or None if isinstance(executor, DaskExecutor) else None


def on_dask(client: Any, dataset: Dataset | MemoryDataset, problem: Problem, cluster: ClusterConfig) -> DaskExecutor:
    """An executor whose workers have, or get, the module of a user's own problem."""

    def prepare() -> None:
        send_module(client, problem)

    prepare()
    return DaskExecutor(client, dataset, problem, cluster, prepare)


def check_examples(dataset: TrainingData, problem: Problem) -> None:
    """Kernels trust that examples are what the problem takes them for."""
    if dataset.ragged != problem.data_spec.ragged:
        found, needed = ("sequences", "single rows") if dataset.ragged else ("single rows", "sequences")
        raise InputError(f"{dataset.location}: the data set holds {found}, but a {problem.kind} problem needs {needed}")


def _closing(executor: Any) -> Iterator[Any]:
    with contextlib.closing(executor):
        yield executor


def round_trip(problem: Problem) -> Problem:
    """The problem as it arrives at a worker."""
    from distributed.protocol.pickle import dumps, loads

    there: Problem = loads(dumps(problem))
    return there
