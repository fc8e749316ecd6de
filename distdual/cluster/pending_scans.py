"""What is kept of scans that are under way, wherever they run?"""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX
from typing import Generic, Protocol, TypeVar

from distdual.scan.scan import Scan, ShardReport

T = TypeVar("T")


class Held(Generic[T]):
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
        """What a scan at this version takes."""
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


class Starts(Protocol):
    @property
    def pending(self) -> int: ...

    def start(self, scans: Sequence[Scan]) -> None: ...

    def collect(self, wait: float) -> list[ShardReport]: ...

    def drop(self) -> None: ...


def run_all(executor: Starts, scans: Sequence[Scan]) -> Iterator[ShardReport]:
    """Start these scans and yield their reports as they end."""
    assert not executor.pending
    try:
        executor.start(scans)
        while executor.pending:
            yield from executor.collect(math.inf)
    finally:
        executor.drop()


def arrived(queue: "SimpleQueue[T]", wait: float) -> list[T]:
    """All that is in the queue; waits for the first one."""
    found: list[T] = []
    with contextlib.suppress(Empty):
        found.append(queue.get(timeout=min(max(wait, 0.0), TIMEOUT_MAX)))
        while True:
            found.append(queue.get_nowait())
    return found
