"""The executor that scans in threads of this process."""

import time
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar

from distdual.cluster.base import HeldWeights, arrived, run_scans
from distdual.cluster.resources import of_threads
from distdual.data.dataset import Dataset
from distdual.data.in_memory import MemoryDataset
from distdual.kernels.rows import Floats
from distdual.problems.base import Problem
from distdual.scan.scan import Scan, ShardReport, is_built_in, load_and_scan, loaded_bytes, ready, scan_shard
from distdual.scan.shard_reader import MOST_AHEAD, Loaded, load_shard


class InlineExecutor:
    """Scans in threads, without copies of shards: kernels release the GIL."""

    sends_reports: ClassVar[bool] = False

    def __init__(self, dataset: Dataset | MemoryDataset, problem: Problem, *, threads: int = 2) -> None:
        self.source = dataset
        self.problem = problem
        self.slots = threads
        self.events: list[str] = []
        self.held: HeldWeights[Floats] = HeldWeights()
        self.running: dict[Future[ShardReport], int] = {}  # with its version
        self.ended: SimpleQueue[Future[ShardReport]] = SimpleQueue()
        self.streams = not of_threads().keep(loaded_bytes(dataset, problem))
        self.shards: dict[int, Loaded] = {}
        self.kept: set[int] = set()
        ahead = MOST_AHEAD if self.streams else 0
        self.pool = ThreadPoolExecutor(threads + ahead, thread_name_prefix="scan")

    @property
    def pending(self) -> int:
        return len(self.running)

    def publish(self, version: int, w: Floats) -> None:
        self.held.publish(version, w.copy())

    def keep(self, shards: Set[int]) -> None:
        self.kept = set(shards)
        if self.streams:
            self.shards = {number: loaded for number, loaded in self.shards.items() if number in shards}

    def start(self, scans: Sequence[Scan]) -> None:
        for scan in scans:
            future = self.pool.submit(self._scan, scan, self.held.begin(scan.version))
            self.running[future] = scan.version
            future.add_done_callback(self.ended.put)

    def collect(self, wait: float) -> list[ShardReport]:
        end = time.monotonic() + wait
        while self.running:
            found = [future for future in arrived(self.ended, end - time.monotonic()) if future in self.running]
            for future in found:
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
        if len(scans) == 1:  # waking a thread can take as long as scanning a small data set
            return iter([self._scan(scans[0], self.held.by_version[scans[0].version])])
        return run_scans(self, scans)

    def map_shards(
        self, function: Any, shards: Sequence[int], *parts: Sequence[Any], keep: bool = False
    ) -> Iterator[Any]:
        w = self.held.by_version[self.held.newest]
        futures = [
            self.pool.submit(self._apply, function, w, shard, *each, keep=keep)
            for shard, *each in zip(shards, *parts, strict=True)
        ]
        return (future.result() for future in futures)

    def _apply(self, function: Any, w: Floats, shard: int, *parts: Any, keep: bool) -> Any:
        return function(self._given(shard) if keep else self.source, self.problem, w, shard, *parts)

    def close(self) -> None:
        self.drop()
        self.pool.shutdown(cancel_futures=True)

    def _scan(self, scan: Scan, w: Floats) -> ShardReport:
        given = self._given(scan.shard)
        if isinstance(given, Loaded):
            return scan_shard(self.problem, given, w, scan)
        return load_and_scan(given, self.problem, w, scan)

    def _given(self, shard: int) -> Dataset | MemoryDataset | Loaded:
        """The shard, if those in memory stay there, else where to read it."""
        if self.streams and shard not in self.kept:
            return self.source
        loaded = self.shards.get(shard)
        if loaded is None:
            loaded = load_shard(self.source, shard, partial(ready, self.problem))
            kept = is_built_in(self.problem)  # a user's problem gets copies, as it may change rows
            loaded = loaded._replace(shard=replace(loaded.shard, kept=kept))
            self.shards[shard] = loaded.paid()
        return loaded
