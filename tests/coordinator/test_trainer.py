"""Training encloses the optimum, says so only when it is proven, and is the same wherever scans run."""

import itertools
from typing import Any

import numpy as np
import pytest

from distdual.cluster.open_executor import open_executor
from distdual.cluster.threads import InlineExecutor
from distdual.config import ClusterConfig, LocalCluster, SolverConfig
from distdual.coordinator import schedule
from distdual.coordinator.async_trainer import TRAINERS
from distdual.coordinator.outcome import Outcome
from distdual.coordinator.pass_cost import MOST_VISITS
from distdual.coordinator.schedule import PIECE_WORK
from distdual.coordinator.trainer import Trainer
from distdual.data.dataset import Dataset, open_dataset
from distdual.data.in_memory import in_memory
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from distdual.problems.binary import Binary
from distdual.problems.multiclass import Multiclass
from distdual.solver.solver import Solver
from tests import naive
from tests.build import CLASSES, Examples, examples, shard_of, write

D = 5


def binary(**options: Any) -> Binary:
    return Binary(n_features=D, classes=CLASSES, **options)


def stored(folder: Any, made: Examples, **options: Any) -> Dataset:
    return open_dataset(write(folder, made, **options))


def run(dataset: Dataset, problem: Binary, *, interrupted: Any = lambda: False, **options: Any) -> Outcome:
    executor = InlineExecutor(dataset, problem)
    config = SolverConfig(**{"gap": 1e-3, **options})
    try:
        return TRAINERS[config.mode](problem, dataset, executor, config, lambda _: None, interrupted=interrupted).run()
    finally:
        executor.close()


def written_out(problem: Binary, made: Examples, C: float) -> naive.Program:
    return naive.binary_program(problem, shard_of(made), C)


def check(outcome: Outcome, program: naive.Program) -> None:
    """The optimum lies between the bounds, and both can be recomputed."""
    best = naive.optimum(program)
    assert outcome.certificate.lower <= best.upper * (1 + 1e-9)
    assert outcome.certificate.upper >= best.lower * (1 - 1e-9)
    check_recomputable(outcome, program)


def check_recomputable(outcome: Outcome, program: naive.Program) -> None:
    """By loops over all of the data, from the weights and from α."""
    lower, upper = outcome.certificate.lower, outcome.certificate.upper
    assert upper == pytest.approx(naive.primal(program, outcome.w), rel=1e-9)
    cache = outcome.solver.cache
    alpha = np.zeros(len(program.margin))
    np.add.at(alpha, cache.example.view, cache.alpha.view)
    assert naive.is_feasible(program, alpha)
    assert lower == pytest.approx(naive.dual(program, alpha), rel=1e-9, abs=1e-12)


CASES = {
    "plain data": (binary(), {}),
    "a bias": (binary(bias=2.0), {}),
    "costs and margins": (binary(), {"cost": True, "margin": True}),
    "class costs": (binary(class_cost={"1": 5.0, "-1": 0.2}), {}),
    "a class that costs nothing": (binary(class_cost={"1": 0.0}), {}),
    "everything at once": (binary(bias=1.0, class_cost={"1": 3.0}), {"cost": True, "margin": True}),
    "separable data": (binary(), {"flip": 0.0}),
    "labels that are noise": (binary(bias=1.0), {"flip": 0.5}),
}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("case", CASES)
def test_the_optimum_lies_between_the_bounds_for(case, sparse, tmp_path):
    problem, options = CASES[case]
    made = examples(4, 120, D, **options)
    outcome = run(stored(tmp_path / "set", made, sparse=sparse), problem, C=0.5)
    assert outcome.certificate.gap <= 1e-3
    assert outcome.stop.reason.endswith("is at most the target 1.00e-03")
    check(outcome, written_out(problem, made, 0.5))


@pytest.mark.parametrize("C", [1e-6, 1e-2, 1e2, 1e4], ids=lambda C: f"C of {C:g}")
@pytest.mark.parametrize("flip", [0.0, 0.1], ids=["separable", "not separable"])
def test_the_optimum_lies_between_the_bounds_with(C, flip, tmp_path):
    made = examples(5, 60, D, flip=flip)
    outcome = run(stored(tmp_path / "set", made), binary(bias=1.0), C=C, max_passes=2000)
    assert outcome.certificate.gap <= 1e-3
    check(outcome, written_out(binary(bias=1.0), made, C))


def test_examples_that_are_there_many_times_each_count(tmp_path):
    few = examples(6, 20, D)
    made = Examples(np.repeat(few.x, 5, axis=0), np.repeat(few.y, 5))
    outcome = run(stored(tmp_path / "set", made), binary(), C=0.3)
    check(outcome, written_out(binary(), made, 0.3))
    once = naive.optimum(written_out(binary(), few, 5 * 0.3))
    assert outcome.certificate.upper == pytest.approx(once.upper, rel=1e-3)


@pytest.mark.parametrize(
    "made",
    [
        examples(0, 40, D)._replace(margin=np.full(40, -1.0)),
        examples(0, 40, D)._replace(margin=np.zeros(40)),
        examples(0, 40, D)._replace(cost=np.zeros(40)),
    ],
    ids=["margins below 0", "margins of 0", "costs of 0"],
)
def test_an_optimum_of_zero_has_gap_zero_with(made, tmp_path):
    outcome = run(stored(tmp_path / "set", made), binary(bias=1.0))
    assert (outcome.certificate.lower, outcome.certificate.upper, outcome.certificate.gap) == (0.0, 0.0, 0.0)
    assert not outcome.w.any()


def test_features_that_are_all_zero_leave_the_loss_to_the_margins(tmp_path):
    made = examples(0, 40, D)._replace(x=np.zeros((40, D), dtype=np.float32))
    outcome = run(stored(tmp_path / "set", made), binary(), C=0.5)
    assert (outcome.certificate.lower, outcome.certificate.upper) == pytest.approx((20.0, 20.0), rel=1e-12)


@pytest.fixture
def dataset(tmp_path):
    return stored(tmp_path / "set", examples(7, 300, D, cost=True), n_shards=6)


def test_lower_never_falls_and_upper_is_the_lowest_so_far(dataset):
    outcome = run(dataset, binary(bias=1.0), gap=1e-5)
    lowers = [line.lower for line in outcome.history]
    assert all(b >= a - 1e-12 * abs(a) for a, b in itertools.pairwise(lowers))
    uppers = [line.upper for line in outcome.history]
    assert all(b <= a for a, b in itertools.pairwise(uppers))
    assert outcome.certificate.upper == uppers[-1]
    assert outcome.certificate.lower == pytest.approx(lowers[-1], rel=1e-12)
    assert [line.version for line in outcome.history] == sorted(line.version for line in outcome.history)


def test_the_model_is_the_best_that_was_certified_not_the_last(dataset):
    """Certificates on the way are recomputed from the weights that were published for them."""
    problem = binary(bias=1.0)
    program = naive.binary_program(problem, shard_of(examples(7, 300, D, cost=True)), 1.0)
    published = []

    class Watching(InlineExecutor):
        def publish(self, version, w):
            published.append(naive.primal(program, w))
            super().publish(version, w)

    executor = Watching(dataset, problem)
    config = SolverConfig(gap=1e-9, max_passes=12, schedule="batch")  # every scan of this schedule certifies
    outcome = Trainer(problem, dataset, executor, config, lambda _: None).run()
    executor.close()
    assert outcome.certificate.upper == pytest.approx(min(published), rel=1e-12)
    assert naive.primal(program, outcome.w) == pytest.approx(min(published), rel=1e-12)


def test_passes_that_run_out_end_it_without_a_claim(dataset):
    outcome = run(dataset, binary(bias=1.0), gap=1e-9, max_passes=2, schedule="ratio:1")
    assert outcome.stop.reason == "2 passes are done"
    assert outcome.totals.passes == 2
    assert np.isfinite(outcome.certificate.upper)  # what there is, is certified once at the end
    assert outcome.certificate.gap > 1e-9
    check(outcome, written_out(binary(bias=1.0), examples(7, 300, D, cost=True), 1.0))


def test_time_that_runs_out_ends_it_without_a_claim(dataset):
    outcome = run(dataset, binary(bias=1.0), gap=1e-12, max_seconds=1e-6, max_passes=10**6)
    assert outcome.stop.reason == "1e-06 seconds are over"
    assert outcome.certificate.gap > 1e-12
    check(outcome, written_out(binary(bias=1.0), examples(7, 300, D, cost=True), 1.0))


@pytest.fixture
def many_rounds(monkeypatch):
    """A first pass of several rounds, as on data that is not small."""
    monkeypatch.setattr(schedule, "FIRST_PIECE", 32)


@pytest.mark.parametrize("at", range(0, 24, 4), ids=lambda n: f"question {n} and the next ones")
def test_an_interruption_leaves_bounds_that_hold_at(at, dataset, many_rounds):
    """Whenever it comes: `lower` is D of the α that is kept, not of an earlier one."""
    program = written_out(binary(bias=1.0), examples(7, 300, D, cost=True), 1.0)
    for asked in range(at, at + 4):
        count = itertools.count()
        outcome = run(dataset, binary(bias=1.0), gap=1e-10, interrupted=lambda: next(count) >= asked)  # noqa: B023
        assert outcome.stop.reason == "interrupted" or outcome.certificate.gap <= 1e-10
        check_recomputable(outcome, program)


@pytest.mark.parametrize("slack", ["example", "block:3"])
@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_a_streamed_pass_reads_each_shard_once_however_often_it_scans_it(kind, slack, tmp_path, many_rounds):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, D)).astype(np.float32)
    y = (x @ rng.normal(size=(D, 4)) + rng.normal(size=(300, 4))).argmax(axis=1)
    problem = Multiclass(n_features=D, classes=tuple("0123")) if kind == "multiclass" else binary()
    place = Location(str(tmp_path / "set"))
    prepare_arrays(x, y if kind == "multiclass" else np.where(y > 1, 1, -1), place, kind, shard_bytes=2000)
    dataset = open_dataset(place)
    executor = InlineExecutor(dataset, problem)
    executor.streams = True
    config = SolverConfig(gap=1e-4, stream="yes", slack=slack)
    outcome = Trainer(problem, dataset, executor, config, lambda _: None).run()
    executor.close()
    visits = MOST_VISITS if kind == "multiclass" else 1
    totals, once = outcome.totals, sum(dataset.read(number).n_bytes for number in range(dataset.n_shards))
    assert dataset.n_shards == 3
    assert outcome.certificate.gap <= 1e-4
    assert outcome.certificate.upper == pytest.approx(whole_objective(problem, dataset, outcome.w, 1.0))
    assert (totals.passes - 2) * once < totals.bytes_read <= totals.passes * once  # the last window may still be there
    assert 300 * (totals.passes - 1) * visits < totals.oracle_calls <= 300 * totals.passes * visits


def test_a_large_C_is_reached_by_doubling_and_its_bounds_are_those_of_the_whole_problem(dataset):
    outcome = run(dataset, binary(bias=1.0), C=1000.0, gap=1e-4)
    assert outcome.certificate.gap <= 1e-4
    assert outcome.solver.stage == 1000.0
    check(outcome, written_out(binary(bias=1.0), examples(7, 300, D, cost=True), 1000.0))
    lowers = [line.lower for line in outcome.history]
    assert lowers == sorted(lowers)


def test_what_it_cost_is_counted(dataset):
    outcome = run(dataset, binary(), gap=1e-4)
    totals = outcome.totals
    assert totals.oracle_calls == 300 * outcome.totals.passes  # the last pass certified: no scan came after it
    assert totals.rounds == len(outcome.history)
    assert totals.bytes_read == outcome.history[0].totals["bytes_read"] > 0  # shards stay in memory
    assert 0 < outcome.solver.n_support <= len(outcome.solver.cache) <= totals.offenders


def weights(dataset: Dataset, cluster: ClusterConfig, **options: Any) -> tuple[Any, Any]:
    problem = binary(bias=1.0)
    with open_executor(cluster, dataset, problem) as executor:
        config = SolverConfig(**{"gap": 1e-4, "seed": 3, **options})
        outcome = Trainer(problem, dataset, executor, config, lambda _: None).run()
    return outcome.w, outcome.certificate


@pytest.mark.parametrize("stream", ["no", "yes"])
def test_the_same_seed_gives_the_same_bits_on_threads_and_on_clusters_of_any_size(stream, dataset):
    options = {"stream": stream, "C": 50.0}
    w, certificate = weights(dataset, ClusterConfig(), **options)
    for _ in range(3):
        again, same = weights(dataset, ClusterConfig(), **options)
        np.testing.assert_array_equal(again, w)
        assert same == certificate
    for n_workers in (1, 2):
        cluster = ClusterConfig(local=LocalCluster(workers=n_workers, threads=2, memory="1GiB"))
        again, same = weights(dataset, cluster, **options)
        np.testing.assert_array_equal(again, w)
        assert same == certificate


class Expensive(Binary):
    """Declares an oracle so expensive that each shard is cut into pieces of 16 examples."""

    oracle_work = PIECE_WORK / 16


def test_pieces_of_an_expensive_oracle_give_the_same_bits_for_any_number_of_threads(dataset):
    problem, found = Expensive(n_features=D, classes=CLASSES), []
    for threads in (1, 3, 3):
        executor = InlineExecutor(dataset, problem, threads=threads)
        config = SolverConfig(gap=1e-3)
        found.append(Trainer(problem, dataset, executor, config, lambda _: None).run())
        assert max(line.totals["rounds"] for line in found[-1].history) > 1
        executor.close()
    for other in found[1:]:
        np.testing.assert_array_equal(other.w, found[0].w)
        assert other.certificate == found[0].certificate
    assert found[0].certificate.gap <= 1e-3


def test_another_seed_gives_other_bits_and_the_same_optimum(dataset):
    w, certificate = weights(dataset, ClusterConfig())
    other, second = weights(dataset, ClusterConfig(), seed=4)
    assert (w != other).any()
    assert second.upper == pytest.approx(certificate.upper, rel=1e-4)


def test_the_cut_into_shards_does_not_change_the_optimum(tmp_path):
    made = examples(8, 100, D)
    bounds = [run(stored(tmp_path / f"{n}", made, n_shards=n), binary(), gap=1e-5).certificate for n in (1, 7, 100)]
    for certificate in bounds[1:]:
        assert certificate.upper == pytest.approx(bounds[0].upper, rel=2e-5)


def test_nothing_follows_the_scan_that_closes_the_gap(tmp_path):
    made = examples(0, 60, D)
    outcome = run(stored(tmp_path, made), binary(), C=1.0, gap=0.05)
    last = outcome.history[-1]
    assert last.certify
    assert last.gap == outcome.certificate.gap <= 0.05
    seconds = [line.totals["ascent_seconds"] for line in outcome.history]
    assert seconds[-1] == seconds[-2], "no ascent after the last scan"
    assert all(a < b for a, b in itertools.pairwise(seconds[:-1])), "one after every other round"
    assert last.totals["kept"] == outcome.history[-2].totals["kept"]
    check(outcome, written_out(binary(), made, 1.0))


def whole_objective(problem: Any, dataset: Any, w: Any, C: float) -> float:
    shards = [dataset.read(s).shard for s in range(dataset.n_shards)]
    losses = [float(problem.costs(shard) @ problem.offenders(w, shard).slack) for shard in shards]
    return 0.5 * float(w @ w) + C * sum(losses)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_what_scans_tell_of_the_cached_problem_is_never_less_than_its_objective(kind, monkeypatch):
    """Exact where every example has but one constraint; else a loss may be due to what is not cached, or not."""
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(300, D)).astype(np.float32), rng.normal(size=(D, 4))
    y = (x @ labels + rng.normal(size=(300, 4))).argmax(axis=1)
    problem = Multiclass(n_features=D, classes=tuple("0123")) if kind == "multiclass" else binary()
    dataset = in_memory(x, y if kind == "multiclass" else np.where(y > 1, 1, -1))
    known, learn = [], Solver.learn

    def noting(self: Solver, upper: float) -> None:
        w = self.candidate()
        known.append((upper, self.cached_objective(w), whole_objective(problem, dataset, w, self.cache.C)))
        learn(self, upper)

    monkeypatch.setattr(Solver, "learn", noting)
    for C in (0.01, 0.1, 1.0):
        run(dataset, problem, C=C, gap=1e-5)
    assert any(upper != cached for upper, cached, _ in known), "scans tell, not only looks at the cache"
    for upper, cached, whole in known:
        assert cached * (1 - 1e-12) <= upper <= whole * (1 + 1e-12)
        assert kind == "multiclass" or upper == pytest.approx(cached, rel=1e-9)
