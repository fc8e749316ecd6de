"""Where do scans run? In threads of this process, or on a Dask cluster; both keep one contract."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any, Protocol, TypeVar

from distdual.config import ClusterConfig
from distdual.data.memory import MemoryDataset, OneShard
from distdual.data.store import Dataset
from distdual.errors import InputError
from distdual.problems.base import Problem
from distdual.rows import Floats
from distdual.workers.cluster import connect, send_module
from distdual.workers.scan import Loaded, Scan, ShardReport, Source, load_and_scan, load_shard, scan_shard

T = TypeVar("T")

IN_MEMORY = 2 << 30  # bytes of shards that threads of this process keep between passes
LOST_TRIES = 5  # times that weights lost with their workers are sent again before giving up
LOST_PAUSE = 0.5  # seconds between two of them


class Executor(Protocol):
    """Runs scans of one problem on one data set. `reports` yields as scans end, in any order."""

    problem: Problem  # another one on the same examples may take its place between two calls

    def publish(self, version: int, w: Floats) -> None:
        """Make weights known. They travel once a version and worker; older versions are forgotten."""
        ...

    def reports(self, scans: Sequence[Scan]) -> Iterator[ShardReport]:
        """Run the scans at the published version; a scan that fails raises here."""
        ...

    def map_shards(self, function: Any, shards: Sequence[int], *parts: Sequence[Any]) -> Iterator[Any]:
        """function(source, problem, w, shard, *parts of that shard) for each shard, in the order of `shards`."""
        ...

    def close(self) -> None: ...


class InlineExecutor:
    """Threads of this process: no cluster to start, no copies. Kernels release the GIL."""

    def __init__(self, dataset: Dataset | MemoryDataset, problem: Problem, *, threads: int = 2) -> None:
        self.source = dataset
        self.problem = problem
        self.version = -1
        self.w: Floats | None = None
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="scan")
        self.shards: dict[int, Loaded] | None = {} if dataset.nbytes <= IN_MEMORY else None

    def publish(self, version: int, w: Floats) -> None:
        self.version, self.w = version, w.copy()

    def reports(self, scans: Sequence[Scan]) -> Iterator[ShardReport]:
        if len(scans) == 1:  # a small data set is one shard: waking a thread would take as long as the scan
            return iter([self._scan(scans[0])])
        futures = [self.pool.submit(self._scan, scan) for scan in scans]
        return _as_completed(futures)

    def map_shards(self, function: Any, shards: Sequence[int], *parts: Sequence[Any]) -> Iterator[Any]:
        arguments = zip(shards, *parts, strict=True)
        futures = [self.pool.submit(function, self.source, self.problem, self.w, *each) for each in arguments]
        return (future.result() for future in futures)

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)

    def _scan(self, scan: Scan) -> ShardReport:
        assert self.w is not None
        assert scan.version == self.version
        if self.shards is None:
            return load_and_scan(self.source, self.problem, self.w, scan)
        loaded = self.shards.get(scan.shard) or load_shard(self.source, scan.shard)
        self.shards[scan.shard] = loaded._replace(bytes_read=0, read_seconds=0.0)
        return scan_shard(self.problem, loaded, self.w, scan)


def _as_completed(futures: Sequence[Future[T]]) -> Iterator[T]:
    left = set(futures)
    try:
        while left:
            done, left = wait_for(left, return_when="FIRST_COMPLETED")
            for future in done:
                yield future.result()
    finally:
        for future in left:
            future.cancel()


class DaskExecutor:
    """A Dask cluster. Shards stay in cluster memory where there is room, under Dask's own memory management."""

    def __init__(self, client: Any, dataset: Dataset | MemoryDataset, problem: Problem) -> None:
        self.client = client
        self.source: Source | MemoryDataset = (
            dataset if isinstance(dataset, MemoryDataset) else Source(dataset.location, dataset.fingerprint)
        )
        self.problem = problem
        self.first = dataset.first
        self.version = -1
        self.w: Floats | None = None
        self.published: Any = None
        self.loaded: dict[int, Any] | None = {} if self._fits(dataset.nbytes) else None
        self.seen: set[int] = set()  # shards whose reading is paid for in a report already

    def _fits(self, n_bytes: int) -> bool:
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return 2 * n_bytes <= sum(worker["memory_limit"] or 0 for worker in workers)

    def publish(self, version: int, w: Floats) -> None:
        self.version, self.w = version, w.copy()
        self._scatter()

    def _scatter(self) -> None:
        """Send the weights to every worker; one that dies meanwhile must be noticed by the scheduler first."""
        for left in reversed(range(LOST_TRIES)):
            try:
                self.published = self.client.scatter(self.w, broadcast=True, hash=False)
                return
            except OSError:
                if not left:
                    raise
                time.sleep(LOST_PAUSE)

    def reports(self, scans: Sequence[Scan]) -> Iterator[ShardReport]:
        for _, report in self._results(scans, self._submit):
            if self.loaded is not None and report.shard in self.seen:
                report = report._replace(bytes_read=0, read_seconds=0.0)  # noqa: PLW2901
            self.seen.add(report.shard)
            yield report

    def map_shards(self, function: Any, shards: Sequence[int], *parts: Sequence[Any]) -> Iterator[Any]:
        def submit(arguments: tuple[Any, ...]) -> Any:
            source = self._source(arguments[0])
            problem = self._problem(arguments[0])
            return self.client.submit(function, source, problem, self.published, *arguments, pure=False)

        found = {asked[0]: result for asked, result in self._results(list(zip(shards, *parts, strict=True)), submit)}
        return (found[shard] for shard in shards)

    def close(self) -> None:
        self.published = None
        self.loaded = None

    def _source(self, shard: int) -> Source | OneShard:
        """What a task reads a shard from: where it is stored or, of a data set in our memory, the shard itself."""
        return self.source.only(shard) if isinstance(self.source, MemoryDataset) else self.source

    def _problem(self, shard: int) -> Problem:
        return self.problem.part(int(self.first[shard]), int(self.first[shard + 1]))

    def _submit(self, scan: Scan) -> Any:
        assert scan.version == self.version
        if self.loaded is None:
            source = self._source(scan.shard)
            problem = self._problem(scan.shard)
            return self.client.submit(load_and_scan, source, problem, self.published, scan, pure=False)
        if scan.shard not in self.loaded:
            self.loaded[scan.shard] = self.client.submit(load_shard, self._source(scan.shard), scan.shard, pure=False)
        loaded = self.loaded[scan.shard]
        return self.client.submit(scan_shard, self._problem(scan.shard), loaded, self.published, scan, pure=False)

    def _results(self, asked: Sequence[Any], submit: Any) -> Iterator[tuple[Any, Any]]:
        """What was asked and what came back, as tasks end.

        Weights whose last holder died are scattered again, and their tasks submitted anew. That may happen to a task
        that has ended, as long as its result has not been fetched.
        """
        from distributed import CancelledError, as_completed

        by_future = {submit(each): each for each in asked}
        running = as_completed(list(by_future), loop=self.client.loop, raise_errors=False)
        lost = 0
        for future in running:
            each = by_future.pop(future)
            try:
                result = future.result()
            except CancelledError:
                lost += 1
                if lost > LOST_TRIES * len(asked):
                    raise RuntimeError(f"weights or results were lost {lost} times; is the cluster stable?") from None
                self._recover()
                again = submit(each)
                by_future[again] = each
                running.add(again)
            else:
                yield each, result

    def _recover(self) -> None:
        if self._weights_are_lost():
            self.client.wait_for_workers(1, timeout=60)
            self._scatter()
        if self.loaded is not None:
            self.loaded = {s: future for s, future in self.loaded.items() if future.status != "cancelled"}

    def _weights_are_lost(self) -> bool:
        from distributed import CancelledError

        try:
            return not any(self.client.who_has(self.published).values())  # the scheduler knows before the future does
        except CancelledError:
            return True


@contextlib.contextmanager
def open_executor(
    cluster: ClusterConfig, dataset: Dataset | MemoryDataset, problem: Problem, client: Any = None
) -> Iterator[Executor]:
    """The executor that [cluster] asks for, or one on a client that is there already."""
    check_examples(dataset, problem)
    if client is not None:
        send_module(client, problem)
        yield from _closing(DaskExecutor(client, dataset, problem))
    elif cluster.scheduler or cluster.local:
        with connect(cluster) as own:
            send_module(own, problem)
            yield from _closing(DaskExecutor(own, dataset, problem))
    else:
        yield from _closing(InlineExecutor(dataset, problem))


def check_examples(dataset: Dataset | MemoryDataset, problem: Problem) -> None:
    """Kernels trust that examples are what the problem takes them for."""
    if dataset.ragged != problem.sequences:
        found, needed = ("single rows", "sequences") if problem.sequences else ("sequences", "single rows")
        raise InputError(f"{dataset.location}: the data set holds {found}, but a {problem.kind} problem needs {needed}")


def _closing(executor: Any) -> Iterator[Any]:
    with contextlib.closing(executor):
        yield executor


def round_trip(problem: Problem) -> Problem:
    """The problem as it arrives at a worker."""
    from distributed.protocol.pickle import dumps, loads

    there: Problem = loads(dumps(problem))
    return there
