"""Small shards are put together, as far as that costs no parallelism."""

from types import SimpleNamespace

import numpy as np
import pytest

from distdual.certificate.rebuild import Support
from distdual.cluster.dask_tasks import (
    BATCH_BYTES,
    Task,
    batches,
    bundle_size,
    reads_a_task,
    scan_tasks,
    scans_a_task,
    shrinking_chunks,
)
from distdual.data.in_memory import in_memory
from distdual.model.dual import Dual
from distdual.problems.base import Keys
from distdual.scan.scan import DatasetRef, Scan
from tests.build import examples

MB = 1 << 20


def scan(shard: int, version: int = 0, known: int = 0) -> Scan:
    return Scan(shard, version, np.zeros(known, dtype=np.uint64))


@pytest.mark.parametrize(
    ("n_shards", "shard_mb", "slots", "bundle"),
    [
        (1000, 1, 2, 16),
        (1000, 4, 2, 16),
        (1000, 16, 2, 4),
        (1000, 64, 2, 1),
        (40, 1, 2, 2),
        (15, 1, 2, 1),
        (1000, 1, 100, 1),
    ],
)
def test_small_shards_stay_together_if_there_are_enough_for_everybody(n_shards, shard_mb, slots, bundle):
    stored = SimpleNamespace(nbytes=n_shards * shard_mb * MB, n_shards=n_shards)
    assert bundle_size(stored, slots) == bundle


def test_arrays_travel_shard_by_shard():
    made = examples(0, 100, 4)
    assert bundle_size(in_memory(made.x, made.y), 2) == 1


@pytest.mark.parametrize(
    ("n_scans", "slots", "seconds", "most"),
    [(1000, 2, 0.003, 16), (1000, 2, 0.03, 3), (1000, 2, 5.0, 1), (8, 2, 0.001, 4), (3, 4, 0.001, 1), (5, 0, 0.0, 5)],
)
def test_scans_that_take_no_time_share_a_task_if_everybody_gets_one(n_scans, slots, seconds, most):
    assert scans_a_task(n_scans, slots, seconds) == most


def test_a_task_holds_neighbours_of_one_bundle_at_one_version():
    asked = [scan(0), scan(1), scan(2), scan(3, version=1), scan(2, version=1), scan(5), scan(4)]
    found = [(task.version, task.shards) for task in scan_tasks(asked, bundle=4, most=2)]
    assert found == [(0, [0, 1]), (0, [2]), (1, [3, 2]), (0, [5, 4])]


def test_what_travels_together_is_small_and_of_one_version():
    source = DatasetRef.__new__(DatasetRef)
    n = BATCH_BYTES // 8 // 3
    asked = [scan(shard, shard % 2, known=n) for shard in range(10)]
    found = list(batches(scan_tasks(asked, bundle=1, most=1), source))
    assert [len(batch) for batch in found] == [3, 2, 3, 2]
    assert sorted(task.shards[0] for batch in found for task in batch) == list(range(10))
    assert all(len({task.version for task in batch}) == 1 for batch in found)


def test_support_constraints_are_counted_among_what_travels():
    n = BATCH_BYTES // 16
    support = Support(Dual(np.zeros(n, dtype=np.int64), Keys.none(0), np.zeros(n), np.zeros(0)), None)
    tasks = [Task("check", 0, None, [shard], [(shard, 1.0, support)]) for shard in range(3)]
    assert [len(batch) for batch in batches(tasks, DatasetRef.__new__(DatasetRef))] == [1, 1, 1]


@pytest.mark.parametrize(("seconds", "most"), [(0.0, 16), (0.17, 8), (5.0, 1)])
def test_a_task_that_reads_is_over_soon(seconds, most):
    assert reads_a_task(seconds) == most


@pytest.mark.parametrize(
    ("n", "slots", "most", "sizes"),
    [(20, 1, 3, [3, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1]), (3, 2, 8, [1, 1, 1]), (0, 2, 8, [])],
)
def test_tasks_are_smaller_towards_the_end(n, slots, most, sizes):
    found = shrinking_chunks(list(range(n)), slots, most)
    assert [len(some) for some in found] == sizes
    assert [value for some in found for value in some] == list(range(n))
