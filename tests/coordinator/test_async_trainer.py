"""Without rounds: the same bounds, whenever reports come and in whatever order."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdual.certificate.bounds import CertificateError, ShardLoss, upper_bound, whole_shards
from distdual.cluster.open_executor import open_executor
from distdual.cluster.threads import InlineExecutor
from distdual.config import ClusterConfig, LocalCluster, SolverConfig
from distdual.coordinator.async_trainer import AsyncTrainer, still_violated
from distdual.coordinator.outcome import Outcome
from distdual.coordinator.schedule import Pass, Piece, cut_pieces, cut_rounds
from distdual.data.dataset import open_dataset
from distdual.kernels.row_copies import packed
from distdual.report.round_log import Round
from distdual.scan.scan import Scan, ShardReport
from distdual.scan.slack import Slack
from distdual.solver.ascent_plan import Ascent
from tests.build import examples, write
from tests.coordinator.test_trainer import CASES, D, binary, check, check_recomputable, run, stored, written_out


class Late(InlineExecutor):
    """Reports come late and in any order, as on a cluster whose workers are not equally fast."""

    def __init__(self, *args: Any, seed: int) -> None:
        super().__init__(*args)
        self.random = np.random.default_rng(seed)
        self.kept_back: list[ShardReport] = []

    @property
    def pending(self) -> int:
        return super().pending + len(self.kept_back)

    def collect(self, wait: float) -> list[ShardReport]:
        self.kept_back += super().collect(wait)
        self.random.shuffle(self.kept_back)
        n = int(self.random.integers(len(self.kept_back) + 1))
        out, self.kept_back = self.kept_back[:n], self.kept_back[n:]
        return out

    def drop(self) -> None:
        super().drop()
        self.kept_back.clear()


def late_run(dataset: Any, problem: Any, seed: int, **options: Any) -> tuple[Outcome, AsyncTrainer]:
    executor = Late(dataset, problem, seed=seed)
    config = SolverConfig(**{"gap": 1e-3, "mode": "async", **options})
    try:
        trainer = AsyncTrainer(problem, dataset, executor, config, lambda _: None)
        return trainer.run(), trainer
    finally:
        executor.close()


@pytest.mark.parametrize("case", CASES)
def test_the_optimum_lies_between_the_bounds_for(case, tmp_path):
    problem, options = CASES[case]
    made = examples(4, 120, D, **options)
    outcome = run(stored(tmp_path / "set", made), problem, C=0.5, mode="async")
    assert outcome.certificate.gap <= 1e-3
    assert outcome.stop.reason.endswith("is at most the target 1.00e-03")
    check(outcome, written_out(problem, made, 0.5))


@pytest.mark.parametrize("schedule", ["slope", "gap", "ratio:3", "reprocess:3", "mine", "batch"])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_late_reports_change_nothing_with_schedule(schedule, seed, tmp_path):
    made = examples(7, 700, D)
    dataset = stored(tmp_path / "set", made, n_shards=6)
    outcome, _ = late_run(dataset, binary(bias=1.0), seed, C=0.3, schedule=schedule)
    assert outcome.certificate.gap <= 1e-3
    check(outcome, written_out(binary(bias=1.0), made, 0.3))


@pytest.mark.parametrize("slack", ["block:4", "block:64", "shard", "all"])
def test_late_reports_change_nothing_with_slack(slack, tmp_path):
    made = examples(7, 300, D)
    dataset = stored(tmp_path / "set", made, n_shards=5)
    alone = run(dataset, binary(), C=0.3, gap=1e-4)
    outcome, _ = late_run(dataset, binary(), 2, C=0.3, slack=slack, gap=1e-3)
    assert outcome.certificate.gap <= 1e-3
    assert outcome.certificate.lower <= alone.certificate.upper
    assert outcome.certificate.upper >= alone.certificate.lower


def test_one_pass_is_one_pass(tmp_path):
    made = examples(7, 700, D)
    dataset = stored(tmp_path / "set", made, n_shards=6)
    outcome, _ = late_run(dataset, binary(), 0, schedule="one-pass", gap=1e-9)
    assert outcome.stop.reason == "the one pass is done"
    assert outcome.totals.passes == 1
    assert outcome.totals.oracle_calls == 2 * 700  # and once more to certify
    check_recomputable(outcome, written_out(binary(), made, 1.0))


def test_lower_never_falls_and_upper_is_the_lowest_so_far(tmp_path):
    dataset = stored(tmp_path / "set", examples(5, 3000, D), n_shards=7)
    outcome, _ = late_run(dataset, binary(), 3, gap=1e-6)
    lowers = [line.lower for line in outcome.history]
    uppers = [line.upper for line in outcome.history]
    assert lowers == sorted(lowers)
    assert uppers == sorted(uppers, reverse=True)
    assert outcome.certificate.gap <= 1e-6


@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_report_is_staler_than_it_may_be(most, tmp_path):
    dataset = stored(tmp_path / "set", examples(5, 6000, D), n_shards=12)
    outcome, _ = late_run(dataset, binary(), 4, gap=1e-4, max_staleness=most)
    ages = [age for line in outcome.history for age, n in enumerate(line.staleness) if n]
    assert max(ages) <= most
    assert outcome.certificate.gap <= 1e-4


def test_every_offender_received_is_kept_stale_or_known(tmp_path):
    dataset = stored(tmp_path / "set", examples(5, 6000, D), n_shards=12)
    outcome, _ = late_run(dataset, binary(), 5, gap=1e-4)
    totals = outcome.totals
    assert totals.stale > 0
    assert 0 < totals.kept <= totals.offenders - totals.stale
    assert sum(n for line in outcome.history for n in line.staleness) >= totals.oracle_calls / 6000


def test_an_offender_that_w_has_overtaken_is_not_kept(tmp_path):
    dataset = stored(tmp_path / "set", examples(5, 40, D), n_shards=1)
    executor = InlineExecutor(dataset, binary())
    executor.publish(0, np.zeros(D))
    (report,) = executor.reports([Scan(0, 0, np.empty(0, dtype=np.uint64))])
    assert len(report.offenders.margin) == 40
    x = packed(report.offenders.rows).values.astype(np.float64)
    w = 100 * x[0]
    slack = report.offenders.margin - x @ w
    left = still_violated(report, w).offenders
    assert left.example.tolist() == np.flatnonzero(slack > 0).tolist()
    assert 0 < len(left.margin) < 40
    executor.close()


def test_passes_that_run_out_end_it_without_a_claim(tmp_path):
    made = examples(5, 900, D)
    dataset = stored(tmp_path / "set", made, n_shards=6)
    outcome, _ = late_run(dataset, binary(), 6, gap=1e-12, max_passes=2)
    assert outcome.stop.reason == "2 passes are done"
    assert outcome.certificate.gap > 1e-12
    check_recomputable(outcome, written_out(binary(), made, 1.0))


@pytest.mark.parametrize("told", [{"max_seconds": 1e-9}, {}])
def test_a_run_that_is_stopped_has_bounds_that_hold(told, tmp_path):
    made = examples(5, 900, D)
    dataset = stored(tmp_path / "set", made, n_shards=6)
    asked = Counter[str]()

    def interrupted() -> bool:
        asked["times"] += 1
        return not told and asked["times"] > 20

    outcome = run(dataset, binary(), mode="async", gap=1e-12, interrupted=interrupted, **told)
    assert outcome.stop.reason in ("interrupted", "1e-09 seconds are over")
    check_recomputable(outcome, written_out(binary(), made, 1.0))


def test_recent_offenders_serve_here_too(tmp_path):
    from distdual.coordinator.run import train

    write(tmp_path / "set", examples(5, 400, D), n_shards=4)
    config = {
        "data": {"url": str(tmp_path / "set")},
        "problem": {"kind": "binary"},
        "solver": {"slack": "all", "offender_cache": 3, "mode": "async", "gap": 1e-2},
        "output": {"url": str(tmp_path / "model")},
    }
    result = train(config)
    assert result.certificate["certified"]
    assert result.certificate["calls_saved"] > 0


def test_a_cluster_of_processes_reaches_the_same_optimum(tmp_path):
    made = examples(5, 400, D)
    dataset = open_dataset(write(tmp_path / "set", made, n_shards=8))
    lines: list[Round] = []
    with open_executor(ClusterConfig(local=LocalCluster(workers=2)), dataset, binary()) as executor:
        config = SolverConfig(mode="async", gap=1e-4)
        outcome = AsyncTrainer(binary(), dataset, executor, config, lines.append).run()
    assert outcome.certificate.gap <= 1e-4
    check(outcome, written_out(binary(), made, 1.0))
    assert len({name for line in lines for name in line.workers}) == 2


@given(
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=8),
    slots=st.integers(1, 9),
    per_group=st.sampled_from([1, 8, 100]),
    first=st.integers(1, 5000),
)
@settings(deadline=None)
def test_pieces_are_a_partition_that_cuts_no_group(sizes, slots, per_group, first):
    whole = [Piece(s, 0, n) for s, n in enumerate(sizes)]
    nothing = Ascent(0.0, 0)
    for rounds in ((tuple(whole),), cut_rounds(whole, first, sum(sizes), Slack(per_group))):
        pieces = cut_pieces(Pass(False, rounds, nothing, nothing), slots, Slack(per_group))
        for s, n in enumerate(sizes):
            own = sorted(piece for piece in pieces if piece.shard == s)
            assert [piece.begin for piece in own] == [0, *(piece.end for piece in own[:-1])]
            assert own[-1].end == n
            assert all(piece.begin % per_group == 0 for piece in own)


def test_pieces_of_different_weights_prove_nothing():
    pieces = [ShardLoss(0, 4, 1.0, True), ShardLoss(0, 5, 2.0, True), ShardLoss(1, 5, 4.0, True)]
    assert [each.loss for each in whole_shards(pieces)] == [3.0, 4.0]
    with pytest.raises(CertificateError, match="losses at different weights"):
        upper_bound(np.zeros(2), 5, whole_shards(pieces), C=1.0, n_shards=2)
    same = [piece._replace(version=5) for piece in pieces]
    assert upper_bound(np.zeros(2), 5, whole_shards(same), C=1.0, n_shards=2).value == 7.0
