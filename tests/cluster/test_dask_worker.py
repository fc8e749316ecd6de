"""While a worker computes on one shard it reads the next ones, as many as there is room for, and each once."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster, get_worker

from distdual.cluster.dask_worker import FULL, load_bundle, return_freed_memory, worker_prefetch
from distdual.cluster.same_sources import HERE
from distdual.data.shard import Read, Shard
from distdual.kernels.rows import DenseRows
from distdual.problems.binary import Binary
from distdual.scan.shard_reader import MOST_AHEAD, ROOM_BYTES, streamed

READ, COMPUTE = 0.05, 0.05  # seconds
TINY = Binary(n_features=1, classes=("no", "yes"))


class Log:
    """What happened when; one for all tasks of this process, as workers here are threads of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reading = self.computing = self.held = 0
        self.most = {"reading": 0, "computing": 0, "held": 0}
        self.both = 0  # times that a shard began to be read or computed on while the other was done to another
        self.read: list[int] = []

    def change(self, **by: int) -> None:
        with self.lock:
            for name, step in by.items():
                setattr(self, name, getattr(self, name) + step)
                self.most[name] = max(self.most[name], getattr(self, name))
            if 1 in (by.get("reading"), by.get("computing")) and self.reading and self.computing:
                self.both += 1


LOG = Log()


class Slow:
    """A data set that takes its time."""

    def __init__(self, shard_bytes: int = 1000) -> None:
        self.shard_bytes = shard_bytes

    def open(self) -> "Slow":
        return self

    def read(self, number: int, *, check: bool = True) -> Read:
        LOG.change(reading=1, held=1)
        time.sleep(READ)
        LOG.read.append(number)
        LOG.change(reading=-1)
        return Read(Shard(number, 0, DenseRows(np.ones((1, 1), dtype=np.float32)), np.zeros(1)), 10, 2)


def compute_several(source: Any, *numbers: int) -> list[tuple[int, int, int]]:
    return [compute(source, number) for number in numbers]


def compute(source: Any, number: int) -> tuple[int, int, int]:
    with worker_prefetch(), streamed(source, number) as loaded:
        LOG.change(computing=1)
        time.sleep(COMPUTE)
        LOG.change(computing=-1, held=-1)
        return loaded.shard.number, loaded.bytes_read, loaded.gets


@pytest.fixture
def log() -> Log:
    LOG.__init__()  # type: ignore[misc]
    return LOG


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def client(request) -> Iterator[Client]:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=request.param, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def threads_of(client: Client) -> int:
    return sum(client.nthreads().values())


class TestOnAWorker:
    def test_shards_are_read_ahead_once_each_and_computed_on_in_turn(self, client, log):
        found = client.gather(client.map(compute, [Slow()] * 20, range(20), pure=False))
        assert found == [(number, 10, 2) for number in range(20)]
        assert sorted(log.read) == list(range(20))
        assert log.both > 5
        assert log.most["computing"] == threads_of(client)
        assert log.most["held"] <= threads_of(client) + MOST_AHEAD

    def test_large_shards_leave_room_for_one_more_than_is_computed_on(self, client, log):
        client.gather(client.map(compute, [Slow(ROOM_BYTES)] * 12, range(12), pure=False))
        assert log.most["held"] == threads_of(client) + 1
        assert log.both > 3

    def test_a_task_may_read_several_shards(self, client, log):
        tasks = [client.submit(compute_several, Slow(), k, k + 1, pure=False) for k in range(0, 8, 2)]
        assert client.gather(tasks)[3] == [(6, 10, 2), (7, 10, 2)]
        assert log.both

    def test_a_read_that_fails_gives_its_room_back(self, client, log):
        class Broken(Slow):
            def read(self, number: int, *, check: bool = True) -> Read:
                raise OSError("no")

        tasks = client.map(compute, [Broken(ROOM_BYTES)] * 6, range(6), pure=False)
        assert all("no" in str(task.exception(timeout=30)) for task in tasks)
        assert client.submit(compute, Slow(ROOM_BYTES), 1, pure=False).result(timeout=30) == (1, 10, 2)

    def test_shards_that_stay_are_read_side_by_side(self, client, log):
        tasks = client.map(load_bundle, [Slow()] * 8, [[k] for k in range(8)], sender=HERE, problem=TINY, pure=False)
        assert [number for bundle in client.gather(tasks) for number in bundle] == list(range(8))
        assert log.most["reading"] > threads_of(client)


class TestMemory:
    def test_freed_memory_goes_back_to_the_system_near_the_limit(self):
        """Dask would give no task any more to a worker whose freed memory stays in its process."""
        with (
            LocalCluster(n_workers=1, threads_per_worker=1, memory_limit="1GiB", dashboard_address="127.0.0.1:0") as c,
            Client(c, set_as_default=False) as client,
        ):
            kept = client.submit(fill_and_free, trim=False, pure=False).result(timeout=60)
            trimmed = client.submit(fill_and_free, trim=True, pure=False).result(timeout=60)
        assert kept > FULL * 2**30 > trimmed


def fill_and_free(*, trim: bool) -> int:
    """Resident bytes after many small arrays were freed but for the last, which keeps the heap from shrinking."""
    arrays = [np.ones(12_000) for _ in range(6_000)]
    last = arrays[-1]
    del arrays
    if trim:
        return_freed_memory()
    assert last.all()
    return int(get_worker().monitor.get_process_memory())
