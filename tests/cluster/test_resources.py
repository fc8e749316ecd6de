"""Who keeps shards in memory, and how much of it shards need."""

from distdual.cluster.resources import IN_MEMORY, Resources, of_local, of_threads, of_workers
from distdual.config import LocalCluster

MB = 1 << 20


def test_shards_stay_while_they_fill_half_of_the_memory_of_all_workers() -> None:
    found = of_workers({"a": {"memory_limit": 100, "nthreads": 1}, "b": {"memory_limit": 300, "nthreads": 2}})
    assert found == Resources(2, 2, 100, 200.0)
    assert found.keep(200)
    assert not found.keep(201)


def test_workers_without_a_limit_promise_no_room() -> None:
    unlimited = of_workers({"a": {"memory_limit": None, "nthreads": 1}})
    assert unlimited.memory is None
    assert not unlimited.keep(1)
    assert not of_workers({}).keep(1)


def test_a_local_cluster_is_described_as_dask_will_start_it() -> None:
    assert of_local(LocalCluster(workers=3, threads=2, memory="10MiB")) == Resources(3, 2, 10 * MB, 15.0 * MB)
    assert of_local(LocalCluster(workers=3, memory="0")).memory is None


def test_threads_of_one_process_keep_a_fixed_size() -> None:
    assert of_threads().keep(IN_MEMORY)
    assert not of_threads().keep(IN_MEMORY + 1)


def test_a_worker_holds_its_part_of_all_shards_or_those_it_works_on() -> None:
    kept = Resources(4, 1, 100 * MB, 200.0 * MB)
    assert kept.needs(200 * MB, 10 * MB) == 50 * MB
    assert kept.needs(400 * MB, MB) == 9 * MB  # all that are read ahead
    assert kept.needs(400 * MB, 5 * MB) == int(12.5 * MB)  # no more than an eighth of the memory …
    assert kept.needs(400 * MB, 50 * MB) == 100 * MB  # … but one beyond those computed on
