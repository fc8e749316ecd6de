"""The Executor contract, and the bookkeeping of pending scans that both executors share."""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from distdual.kernels.rows import Floats
from distdual.problems.base import Problem
from distdual.scan.scan import Scan, ShardReport

T = TypeVar("T")


class Executor(Protocol):
    """Runs scans of one problem on one data set, at several versions of the weights if need be."""

    problem: Problem  # may be replaced by another one on the same examples while no scan is pending
    sends_reports: ClassVar[bool]  # whether reports come from other processes
    events: list[str]  # faults that were handled; the reader of this list empties it

    @property
    def slots(self) -> int:
        """Number of scans that can run at once; it changes as workers join and leave."""
        ...

    @property
    def pending(self) -> int:
        """Number of scans started and not yet collected."""
        ...

    def publish(self, version: int, w: Floats) -> None:
        """Make weights available to scans; they travel once per version and worker.

        Earlier versions are kept while scans at them are pending, then forgotten.
        """
        ...

    def keep(self, shards: Set[int]) -> None:
        """Let workers keep these shards in memory once they have read them, and forget those of the last call.

        Data sets that fit in memory are kept as a whole anyway.
        """
        ...

    def start(self, scans: Sequence[Scan]) -> None:
        """Start scans, each at a version that is still held."""
        ...

    def collect(self, wait: float) -> list[ShardReport]:
        """Return the scans that ended since the last call, in any order; raise if one failed.

        Waits up to `wait` seconds for the first one, and returns at once if no scan is pending.
        """
        ...

    def drop(self) -> None:
        """Cancel all pending scans."""
        ...

    def reports(self, scans: Sequence[Scan]) -> Iterator[ShardReport]:
        """Run scans while no other is pending, and yield their reports as they end."""
        ...

    def map_shards(
        self, function: Any, shards: Sequence[int], *parts: Sequence[Any], keep: bool = False
    ) -> Iterator[Any]:
        """Yield function(source, problem, w, shard, *parts of that shard), in the order of `shards`.

        w are the weights published last. With `keep`, shards stay in memory where those of scans do: the function gets
        such a shard, `Loaded`, in place of the source, and its results have a `cost`, which is paid once.
        """
        ...

    def close(self) -> None: ...


class HeldWeights(Generic[T]):
    """Weights by version: the newest, and those that pending scans need."""

    def __init__(self) -> None:
        self.by_version: dict[int, T] = {}
        self.needed: Counter[int] = Counter()
        self.newest = -1

    def publish(self, version: int, value: T) -> None:
        self.by_version[version] = value
        self.newest = version
        self._forget()

    def begin(self, version: int) -> T:
        """Return the weights of a version, and hold them until `end`."""
        if version not in self.by_version:
            raise KeyError(f"weights v{version} are not held; the newest are v{self.newest}")
        self.needed[version] += 1
        return self.by_version[version]

    def end(self, version: int) -> None:
        self.needed[version] -= 1
        self._forget()

    def _forget(self) -> None:
        for version in [v for v in self.by_version if v != self.newest and not self.needed[v]]:
            del self.by_version[version]
            del self.needed[version]


def run_scans(executor: Executor, scans: Sequence[Scan]) -> Iterator[ShardReport]:
    """Start scans and yield their reports as they end."""
    assert not executor.pending
    try:
        executor.start(scans)
        while executor.pending:
            yield from executor.collect(math.inf)
    finally:
        executor.drop()


def arrived(queue: "SimpleQueue[T]", wait: float) -> list[T]:
    """Empty a queue, after waiting up to `wait` seconds for its first item."""
    found: list[T] = []
    with contextlib.suppress(Empty):
        found.append(queue.get(timeout=min(max(wait, 0.0), TIMEOUT_MAX)))
        while True:
            found.append(queue.get_nowait())
    return found
