"""The monitor of a Dask cluster: polls the scheduler for its workers once a second, while the coordinator waits.

`liveness.Watch` interprets the answers.
"""

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from distdual.cluster.dask_client import scheduler_state
from distdual.cluster.liveness import SignsOfLife
from distdual.cluster.same_sources import check_sources, differs, is_same, sources
from distdual.config import ClusterConfig
from distdual.errors import ClusterError

POLL_SECONDS = 1.0  # seconds between two polls
AWAY = 2.0  # seconds without a poll that mean the coordinator was busy
ANSWER = 10.0  # seconds to wait for a worker to say what it runs; a busy worker may not answer
PAUSE = 0.5  # seconds before a retry, where no worker was available


class Attended:
    """The cluster of a client: its workers at the last poll, and the events since."""

    def __init__(self, client: Any, limits: ClusterConfig, prepare: Callable[[], None]) -> None:
        self.client = client
        self.prepare = prepare
        self.events: list[str] = []
        now = time.monotonic()
        self.watch = SignsOfLife(limits, answered=now, manned=now, progress=now)
        self.looking: Future[Any] | None = None
        self.looked = self.called = now
        about = scheduler_state(client)
        self.scheduler: str = about["id"]
        self.workers: dict[str, Any] = about["workers"]
        self.watch.look(now, heartbeats(self.workers))
        self._check_sources()

    def in_background(self, coroutine: Any) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop)

    def ask(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Await a call to the cluster, for as long as the cluster is alive."""

        async def answer() -> Any:
            return await call(*args, **options)

        future = self.in_background(answer())
        try:
            while True:
                try:
                    return future.result(POLL_SECONDS)
                except TimeoutError:
                    if future.done():
                        raise
                    self.look()
        finally:
            future.cancel()

    def _check_sources(self) -> None:
        """Raise if a worker runs another distdual; one that does not answer now is asked by its first task."""
        asked = {address: self.in_background(self._sources(address)) for address in self.workers}
        check_sources({address: found for address, answer in asked.items() if (found := answer.result()) is not None})

    async def _sources(self, address: str) -> Any:
        """What a worker runs; None if it does not answer in time."""
        try:
            answer = self.client._run(sources, workers=[address], on_error="return")
            found = (await asyncio.wait_for(answer, ANSWER)).get(address)
        except (OSError, TimeoutError):
            return None
        return None if isinstance(found, OSError) else found

    async def _check_joined(self, address: str) -> None:
        found = await self._sources(address)
        if found is not None and not is_same(found):
            self.refuse(differs(address, found), address)

    def refuse(self, why: str, address: str) -> None:
        """Remove a worker from the cluster."""
        self.events.append(f"{why}, and is refused")
        self.in_background(self._give_up(address))

    def look(self) -> None:
        """Poll the scheduler in the background; raise ClusterError if its last answers exceed a limit."""
        now = time.monotonic()
        if now - self.called > AWAY:
            self.watch.away(now - self.called)
        self.called = now
        if self.looking is not None and self.looking.done():
            looking, self.looking = self.looking, None
            if looking.exception() is None:
                self._see(now, looking.result())
        if self.client.status == "closed":
            raise ClusterError("the connection to the scheduler was lost and not restored in time")
        if self.looking is None and now - self.looked >= POLL_SECONDS:
            self.looked = now
            self.looking = self.in_background(self._identity())
        self.watch.check(now)

    async def _identity(self) -> Any:
        return await self.client.scheduler.identity()

    def _see(self, now: float, about: dict[str, Any]) -> None:
        if about["id"] != self.scheduler:
            self.scheduler = about["id"]
            self.events.append("the scheduler was restarted")
            self.prepare()
        workers = about["workers"]
        change = self.watch.look(now, heartbeats(workers))
        self.workers = {address: worker for address, worker in workers.items() if address not in change.silent}
        self.events += [f"worker {address} joined" for address in change.joined]
        for address in change.joined:
            self.in_background(self._check_joined(address))
        self.events += [f"worker {address} left" for address in change.left]
        for address in change.silent:
            self.events.append(f"worker {address} was silent for {self.watch.limits.silence:g} s and is given up")
            self.in_background(self._give_up(address))

    async def _give_up(self, address: str) -> None:
        """Remove a worker, so that the scheduler runs its tasks elsewhere."""
        await self.client.scheduler.unregister(address=address, stimulus_id="distdual-silent", expected=True)

    def wait_for_worker(self) -> None:
        self.workers = {}  # the last poll may be outdated
        while not self.workers or self.client.status != "running":
            self.looked = -math.inf
            self.look()
            time.sleep(PAUSE / 10)


def heartbeats(workers: dict[str, Any]) -> dict[str, float]:
    return {address: worker["last_seen"] for address, worker in workers.items()}
