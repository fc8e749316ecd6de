"""Threads and a real Dask cluster keep one contract, also when worker processes are killed."""

import itertools
import os
import pickle
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import dask.config
import numpy as np
import pytest

from distdual.cluster.dask_client import connect
from distdual.cluster.dask_executor import DaskExecutor
from distdual.cluster.open_executor import open_executor
from distdual.cluster.threads import InlineExecutor
from distdual.config import ClusterConfig, LocalCluster
from distdual.data.dataset import open_dataset
from distdual.data.in_memory import in_memory
from distdual.errors import InputError
from distdual.kernels.row_copies import WIDE, packed
from distdual.kernels.rows import CsrRows, DenseRows, ReferredRows
from distdual.problems.binary import Binary
from distdual.problems.latent.base import Completed
from distdual.problems.multiclass import Multiclass
from distdual.scan.scan import DatasetRef, Scan, load_and_scan
from distdual.scan.shard_reader import Loaded
from distdual.scan.whole_data import Cost
from distdual.testing import assert_same_constraints
from tests.build import CLASSES, examples, write
from tests.processes import wait_until

NOTHING = np.empty(0, dtype=np.uint64)
N_FEATURES = 5
PROBLEM = Binary(n_features=N_FEATURES, classes=CLASSES)
W = np.random.default_rng(0).normal(size=N_FEATURES)


@dataclass(frozen=True, kw_only=True)
class SlowBinary(Binary):
    """Scans that last long enough to be interrupted."""

    def offenders(self, w: Any, shard: Any) -> Any:
        time.sleep(0.2)
        return super().offenders(w, shard)


@dataclass(frozen=True, kw_only=True)
class MarkingBinary(Binary):
    """Leaves a file for every shard that it has scanned."""

    folder: Path

    def offenders(self, w: Any, shard: Any) -> Any:
        found = super().offenders(w, shard)
        (self.folder / str(shard.number)).touch()
        return found


@dataclass(frozen=True, kw_only=True)
class HeavyBinary(Binary):
    ballast: str = ""

    def check_latent(self, shard):
        """Any latent values are fine."""


def latent_values(source, problem, w, shard):
    assert len(getattr(problem, "problem", problem).ballast) == 1_000_000
    return problem.values if isinstance(problem, Completed) else None


SLOW = SlowBinary(n_features=N_FEATURES, classes=CLASSES)


@pytest.fixture(scope="module")
def client():
    # A LocalCluster gives up a worker that is away both now and 15 s later; here that is the next one to be killed.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        connect(ClusterConfig(local=LocalCluster(workers=2, threads=1, memory="1GiB"))) as connected,
    ):
        yield connected


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    made = examples(0, 96, N_FEATURES, cost=True)
    return open_dataset(write(tmp_path_factory.mktemp("executor") / "set", made, n_shards=8))


@pytest.fixture(scope="module")
def mostly_zeros(tmp_path_factory):
    made = examples(0, 40, WIDE)
    made = made._replace(x=made.x * (np.random.default_rng(0).random(made.x.shape) < 0.1))
    return open_dataset(write(tmp_path_factory.mktemp("wide") / "set", made, n_shards=3))


@pytest.fixture(params=["shards kept in memory", "shards read each time"])
def keep(request) -> bool:
    return request.param == "shards kept in memory"


def scans(dataset, version=0):
    return [Scan(shard, version, NOTHING) for shard in range(dataset.n_shards)]


def expected(dataset, w, version=0, problem=PROBLEM):
    """What one thread finds, shard by shard."""
    source = DatasetRef.of(dataset)
    return [load_and_scan(source, problem, w, scan) for scan in scans(dataset, version)]


def assert_same_reports(found, wanted):
    """Bit for bit, but for what it cost."""
    found = sorted(found, key=lambda report: report.shard)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a[:5] == b[:5]
        near, sent = (each.offenders._replace(rows=packed(each.offenders.rows)) for each in (a, b))
        assert_same_constraints(near, sent)


class Summed(NamedTuple):
    number: int
    total: float
    in_memory: bool
    cost: Cost


def sum_features(given: Any, problem: Any, w: Any, shard: int) -> Summed:
    loaded = (
        given
        if isinstance(given, Loaded)
        else Loaded(given.open().read(shard).shard, given.open().read(shard).n_bytes, 0.0)
    )
    total = float(loaded.shard.x.values.sum())
    return Summed(loaded.shard.number, total, given is loaded, Cost.of(loaded, time.perf_counter()))


def shard_and_parts(source, problem, w, shard, first, second):
    return shard, first, second, float(w[0]), problem.kind


def fail_at_shard_2(source, problem, w, shard):
    if shard == 2:
        raise InputError("shard 2 is not to its taste")
    return shard


class ExecutorContract:
    def make(self, dataset: Any, problem: Any, *, keep: bool = True) -> Any:
        raise NotImplementedError

    def test_every_scan_gives_the_report_of_a_single_thread(self, dataset, keep):
        executor = self.make(dataset, PROBLEM, keep=keep)
        for version in range(3):
            w = W * version
            executor.publish(version, w)
            assert_same_reports(executor.reports(scans(dataset, version)), expected(dataset, w, version))
        executor.close()

    def test_zeros_are_left_out_wherever_shards_are(self, mostly_zeros, keep):
        problem = Multiclass(n_features=WIDE, classes=CLASSES)
        w = np.random.default_rng(0).normal(size=2 * WIDE)
        executor = self.make(mostly_zeros, problem, keep=keep)
        executor.publish(0, w)
        found = list(executor.reports(scans(mostly_zeros)))
        assert_same_reports(found, expected(mostly_zeros, w, problem=problem))
        features = [packed(report.offenders.rows).x for report in found]
        assert {type(x) for x in features} == {CsrRows}
        executor.close()

    def test_weights_are_those_of_the_moment_they_were_published(self, dataset):
        executor = self.make(dataset, PROBLEM)
        w = W.copy()
        executor.publish(0, w)
        w[:] = 0.0  # the solver goes on with its own array
        assert_same_reports(executor.reports(scans(dataset)), expected(dataset, W))
        executor.close()

    def test_some_of_the_shards_can_be_scanned_in_any_order(self, dataset, keep):
        executor = self.make(dataset, PROBLEM, keep=keep)
        executor.publish(0, W)
        wanted = expected(dataset, W)
        found = list(executor.reports([scans(dataset)[shard] for shard in (5, 1, 3)]))
        assert_same_reports(found, [wanted[shard] for shard in (1, 3, 5)])
        assert list(executor.reports([])) == []
        executor.close()

    def test_reading_is_paid_for_when_it_happens(self, dataset, keep):
        executor = self.make(dataset, PROBLEM, keep=keep)
        costs = []
        for version in range(2):
            executor.publish(version, W)
            costs.append(sum(report.bytes_read for report in executor.reports(scans(dataset, version))))
        once = sum(report.bytes_read for report in expected(dataset, W))
        assert costs == [once, 0 if keep else once]
        executor.close()

    def test_a_function_of_each_shard_comes_back_in_order_with_its_parts(self, dataset):
        executor = self.make(dataset, PROBLEM)
        executor.publish(0, W)
        found = list(executor.map_shards(shard_and_parts, [6, 0, 3], ["a", "b", "c"], [1, 2, 3]))
        assert found == [(6, "a", 1, W[0], "binary"), (0, "b", 2, W[0], "binary"), (3, "c", 3, W[0], "binary")]
        executor.close()

    def test_a_function_of_each_shard_may_find_it_in_memory(self, dataset, keep):
        executor = self.make(dataset, PROBLEM, keep=keep)
        costs = []
        for version in range(2):
            executor.publish(version, W)
            found = list(executor.map_shards(sum_features, range(dataset.n_shards), keep=True))
            assert [part.number for part in found] == list(range(dataset.n_shards))
            assert sum(part.total for part in found) == pytest.approx(
                sum(dataset.read(number).shard.x.values.sum() for number in range(dataset.n_shards))
            )
            assert {part.in_memory for part in found} == {keep}
            costs.append(sum(part.cost.bytes_read for part in found))
        once = sum(report.bytes_read for report in expected(dataset, W))
        assert costs == [once, 0 if keep else once]
        executor.close()

    def test_a_function_that_fails_on_one_shard_raises(self, dataset):
        executor = self.make(dataset, PROBLEM)
        executor.publish(0, W)
        with pytest.raises(InputError, match="shard 2 is not to its taste"):
            list(executor.map_shards(fail_at_shard_2, range(dataset.n_shards)))
        executor.close()

    def test_a_shard_that_cannot_be_read_raises_and_is_never_an_empty_report(self, tmp_path, keep):
        folder = tmp_path / "set"
        dataset = open_dataset(write(folder, examples(0, 40, N_FEATURES), n_shards=4))
        (folder / "x" / "c" / "2" / "0").unlink()
        executor = self.make(dataset, PROBLEM, keep=keep)
        executor.publish(0, W)
        with pytest.raises(InputError, match=r"shard 2, array 'x': the chunk is missing"):
            list(executor.reports(scans(dataset)))
        executor.close()

    def test_a_loss_that_is_not_a_number_raises(self, dataset, keep):
        executor = self.make(dataset, PROBLEM, keep=keep)
        executor.publish(0, np.full(N_FEATURES, np.nan))
        with pytest.raises(InputError, match=r"shard \d, row 0: the loss is nan"):
            list(executor.reports(scans(dataset)))
        executor.close()

    def test_scans_run_while_the_caller_does_something_else(self, dataset, keep, tmp_path):
        marking = MarkingBinary(n_features=N_FEATURES, classes=CLASSES, folder=tmp_path)
        executor = self.make(dataset, marking, keep=keep)
        executor.publish(0, W)
        executor.start(scans(dataset))
        assert executor.pending == dataset.n_shards
        wait_until(lambda: len(list(tmp_path.iterdir())) == dataset.n_shards, "a scan of every shard")
        found = []
        while executor.pending:
            found += executor.collect(60)
            assert executor.pending == dataset.n_shards - len(found)
        assert_same_reports(found, expected(dataset, W))
        executor.close()

    def test_collecting_waits_no_longer_than_told_and_not_at_all_for_nothing(self, dataset, keep):
        executor = self.make(dataset, SLOW, keep=keep)
        executor.publish(0, W)
        executor.start(scans(dataset))
        assert len(executor.collect(0)) < dataset.n_shards
        collected(executor)
        begin = time.monotonic()
        assert executor.collect(60) == []
        assert time.monotonic() - begin < 30
        executor.close()

    def test_scans_keep_the_weights_they_were_started_with(self, dataset, keep):
        executor = self.make(dataset, SLOW, keep=keep)
        half = dataset.n_shards // 2
        for version, begin in enumerate([0, half]):
            executor.publish(version, W * (version + 1))
            executor.start(scans(dataset, version)[begin : begin + half])
        executor.publish(2, W * 3)
        found = collected(executor)
        wanted = expected(dataset, W, 0)[:half] + expected(dataset, 2 * W, 1)[half:]
        assert_same_reports(found, wanted)
        assert set(executor.held.by_version) == {2}
        executor.start(scans(dataset, 2))
        assert_same_reports(collected(executor), expected(dataset, 3 * W, 2))
        with pytest.raises(KeyError, match="weights v1 are not held; the newest are v2"):
            executor.start(scans(dataset, 1))
        executor.close()

    def test_scans_that_are_dropped_are_never_reported(self, dataset):
        executor = self.make(dataset, SLOW)
        executor.publish(0, W)
        executor.start(scans(dataset))
        executor.publish(1, 2 * W)
        executor.drop()
        assert executor.pending == 0
        assert set(executor.held.by_version) == {1}
        executor.start(scans(dataset, 1))
        assert_same_reports(collected(executor), expected(dataset, 2 * W, 1))
        executor.close()

    def test_what_a_scan_raises_is_raised_where_it_is_collected(self, dataset):
        executor = self.make(dataset, PROBLEM)
        executor.publish(0, np.full(N_FEATURES, np.nan))
        executor.start(scans(dataset))
        with pytest.raises(InputError, match=r"shard \d, row 0: the loss is nan"):
            collected(executor)
        assert executor.events == []
        executor.close()


def collected(executor):
    found = []
    while executor.pending:
        found += executor.collect(60)
    return found


class TestInlineExecutor(ExecutorContract):
    def make(self, dataset, problem, *, keep=True):
        executor = InlineExecutor(dataset, problem)
        executor.streams = not keep
        return executor


class TestDaskExecutor(ExecutorContract):
    @pytest.fixture(autouse=True)
    def connected(self, client):
        self.client = client

    def make(self, dataset, problem, *, keep=True):
        executor = DaskExecutor(self.client, dataset, problem)
        executor.streams = not keep
        return executor

    def test_shards_share_a_task_once_a_phase_is_known_to_be_short(self, dataset, monkeypatch):
        executor = self.make(dataset, PROBLEM)
        executor.bundle, executor.seconds = 2, 10.0  # a wrong guess
        begin, sizes = executor._begin, []

        def counting(flight, tasks):
            sizes.append(max(len(task.shards) for task in tasks))
            begin(flight, tasks)

        monkeypatch.setattr(executor, "_begin", counting)
        for version in range(2):
            executor.publish(version, W)
            list(executor.map_shards(sum_features, range(dataset.n_shards), keep=True))
        executor.close()
        assert sizes == [1, 2]


def test_rows_of_a_problem_that_builds_on_ours_are_copies_which_it_may_look_into(dataset):
    for problem, kind in ((PROBLEM, ReferredRows), (SLOW, DenseRows)):
        executor = InlineExecutor(dataset, problem)
        executor.publish(0, W)
        assert {type(report.offenders.rows) for report in executor.reports(scans(dataset))} == {kind}
        executor.close()


def test_a_report_says_who_made_it(client, dataset):
    with open_executor(ClusterConfig(), dataset, PROBLEM, client) as executor:
        executor.publish(0, W)
        assert {report.worker for report in executor.reports(scans(dataset))} <= {"0", "1"}
        assert executor.slots == 2
    assert {report.worker for report in expected(dataset, W)} == {""}


def kill(client: Any, n_workers: int) -> None:
    """kill −9 worker processes of our own cluster; their nannies start new ones."""
    for pid in list(client.run(os.getpid).values())[:n_workers]:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("n_killed", [1, 2], ids=["one worker", "all workers"])
def test_scans_survive_the_death_of(n_killed, client, dataset, keep):
    """With all workers the scattered weights die, too, and are scattered again."""
    client.wait_for_workers(2, timeout=30)
    executor = DaskExecutor(client, dataset, SLOW)
    executor.streams = not keep
    executor.publish(0, W)
    running = executor.reports(scans(dataset))
    found = [next(running)]
    kill(client, n_killed)
    found += running
    assert_same_reports(found, expected(dataset, W))
    executor.publish(1, 2 * W)
    assert_same_reports(executor.reports(scans(dataset, 1)), expected(dataset, 2 * W, 1))
    executor.close()
    client.wait_for_workers(2, timeout=30)


def test_shards_lost_with_their_workers_are_read_again(client, dataset):
    client.wait_for_workers(2, timeout=30)
    executor = DaskExecutor(client, dataset, PROBLEM)
    executor.publish(0, W)
    list(executor.reports(scans(dataset)))
    kill(client, 2)
    executor.publish(1, 2 * W)
    assert_same_reports(executor.reports(scans(dataset, 1)), expected(dataset, 2 * W, 1))
    executor.close()
    client.wait_for_workers(2, timeout=30)


def test_verification_survives_the_death_of_all_workers(client, dataset):
    client.wait_for_workers(2, timeout=30)
    executor = DaskExecutor(client, dataset, SLOW)
    executor.publish(0, W)
    kill(client, 2)
    numbers = range(dataset.n_shards)
    assert [found[0] for found in executor.map_shards(shard_and_parts, numbers, numbers, numbers)] == list(numbers)
    executor.close()
    client.wait_for_workers(2, timeout=30)


class Recorder:
    """A client that notes what is handed to it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.scattered: list[Any] = []
        self.submitted: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def scatter(self, value: Any, **options: Any) -> Any:
        self.scattered += value.values()
        return self.client.scatter(value, **options)

    def map(self, *args: Any, **options: Any) -> Any:
        self.submitted.append((args, options))
        return self.client.map(*args, **options)


def labels_of(source, problem, w, shard):
    return source.open().read(shard).shard.y.tolist()


def test_many_shards_of_arrays_travel_one_by_one(client, monkeypatch):
    made = examples(3, 400, 4)
    monkeypatch.setattr("distdual.data.in_memory.PIECE_BYTES", 100)
    arrays = in_memory(made.x, made.y)
    executor = DaskExecutor(client, arrays, PROBLEM)
    assert arrays.n_shards > 20 * executor.slots
    executor.publish(0, W)
    found = list(executor.map_shards(labels_of, range(arrays.n_shards)))
    assert found == [shard.y.tolist() for shard in arrays.shards]


def task_keys(run: str, dask_scheduler: Any) -> list[str]:
    """Runs on the scheduler: all that it knows of a run."""
    return [str(key) for key in dask_scheduler.tasks if run in str(key)]


@pytest.fixture
def wide(tmp_path):
    """A data set with so many features that weights in a task would show."""
    made = examples(0, 16, 4)
    return open_dataset(write(tmp_path / "wide", made, sparse=True, n_features=100_000))


def test_weights_travel_once_a_version_and_worker_and_never_inside_a_task(client, wide, keep):
    recorder = Recorder(client)
    problem = Binary(n_features=100_000, classes=CLASSES)
    executor = DaskExecutor(recorder, wide, problem)
    executor.streams = not keep
    for version in range(3):
        executor.publish(version, np.full(100_000, version / 7))
        weights = executor.held.by_version[version].future
        assert len(client.who_has(weights)[weights.key]) == 2
        for _ in range(2):
            list(executor.reports(scans(wide, version)))
    assert len([value for value in recorder.scattered if isinstance(value, np.ndarray)]) == 3
    assert sum(value is problem for value in recorder.scattered) == 1
    for args, _ in recorder.submitted:
        assert sum(len(pickle.dumps(part)) for part in args) < 2_000 * wide.n_shards
    executor.close()


@pytest.mark.parametrize("latent", [False, True])
def test_a_large_problem_travels_once_a_run_and_never_inside_a_task(latent, client, dataset):
    recorder = Recorder(client)
    problem = HeavyBinary(n_features=N_FEATURES, classes=CLASSES, ballast="x" * 1_000_000)
    executor = DaskExecutor(recorder, dataset, problem)
    for version in range(3):
        if latent:
            executor.problem = Completed(problem, np.arange(dataset.n_examples, dtype=np.int32))
        executor.publish(version, W)
        list(executor.reports(scans(dataset, version)))
        parts = list(executor.map_shards(latent_values, range(dataset.n_shards)))
        wanted = [np.arange(a, b) if latent else None for a, b in itertools.pairwise(dataset.first)]
        for found, values in zip(parts, wanted, strict=True):
            assert found is None if values is None else (found == values).all()
    assert sum(value is problem for value in recorder.scattered) == 1
    for args, options in recorder.submitted:
        assert len(pickle.dumps(args)) < 20_000
        assert not options.keys() - {"key", "pure", "problem", "w", "sender"}
    executor.close()


def test_tasks_have_names_that_no_other_run_uses(client, dataset):
    first, second = (DaskExecutor(client, dataset, SLOW) for _ in range(2))
    for executor in (first, second):
        executor.publish(7, W)
        executor.start(scans(dataset, 7))
    for executor in (first, second):
        run, n_tasks = executor.run, 2 * dataset.n_shards + 2
        assert eventually(lambda run=run, n=n_tasks: len(client.run_on_scheduler(task_keys, run)) == n)
        mine = client.run_on_scheduler(task_keys, run)
        assert {key.split("-")[0] for key in mine} == {"scan", "read", "weights", "problem"}
        assert sum(key.startswith("scan-v7-shard3-") for key in mine) == 1
        assert_same_reports(collected(executor), expected(dataset, W, 7))
        executor.close()
        assert eventually(lambda run=run: not client.run_on_scheduler(task_keys, run))


def test_old_weights_are_forgotten(client, dataset):
    executor = DaskExecutor(client, dataset, PROBLEM)
    for version in range(4):
        executor.publish(version, W * version)
        list(executor.reports(scans(dataset, version)))
    found = lambda: client.run_on_scheduler(task_keys, executor.run)  # noqa: E731
    assert eventually(lambda: sum("weights" in key for key in found()) == 1)
    executor.close()
    assert eventually(lambda: not found())


def eventually(holds: Any, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_a_data_set_larger_than_the_cluster_is_not_kept(client, dataset, monkeypatch):
    assert not DaskExecutor(client, dataset, PROBLEM).streams
    monkeypatch.setattr(type(dataset), "nbytes", 1 << 40)
    assert DaskExecutor(client, dataset, PROBLEM).streams
    assert InlineExecutor(dataset, PROBLEM).streams


@pytest.mark.parametrize("given", ["a client", "no cluster"])
def test_the_executor_is_the_one_asked_for(given, client, dataset):
    with open_executor(ClusterConfig(), dataset, PROBLEM, client if given == "a client" else None) as executor:
        assert isinstance(executor, DaskExecutor if given == "a client" else InlineExecutor)
        executor.publish(0, W)
        assert_same_reports(executor.reports(scans(dataset)), expected(dataset, W))
