"""The ascent of a run: insert what scans found into the cached problem, solve it further, and bound it."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distdual.certificate.bounds import ShardLoss
from distdual.coordinator.pass_cost import PassCost
from distdual.coordinator.run_state import RunState
from distdual.coordinator.schedule import CACHE_GAP_SHARE, MAX_ASCENT
from distdual.coordinator.slack_partition import SlackPartition
from distdual.kernels.rows import Floats, Ints
from distdual.scan.scan import Scan, ShardReport
from distdual.solver.ascent_plan import UNLIMITED_SWEEPS, Ascent
from distdual.solver.solver import EASY, Solver

ROUND_WORK = 10_000  # fixed cost of a round, in ascent updates of one row
VERY_LARGE = 256.0  # mean C ||x||² above which stages of C pay where each takes a pass: shards stay in memory
MAX_UNCACHED_SHARE = 0.25  # share of a gap up to which uncached loss is neglected


@dataclass(slots=True)
class Ascender:
    """Changes the solver; the time that takes goes into the run's state."""

    solver: Solver
    partition: SlackPartition
    state: RunState
    cost: PassCost

    def improve(
        self, reports: list[ShardReport], scans: list[Scan], plan: Ascent, gap: float, *, over: bool = True
    ) -> None:
        """Insert offenders and ascend; `gap` is the target of the run, `over` ends a pass."""
        with self.timed():
            self._improve(reports, scans, plan, gap, over=over)
            self.solver.settle()

    def _improve(self, reports: list[ShardReport], scans: list[Scan], plan: Ascent, gap: float, *, over: bool) -> None:
        cold = not len(self.solver.cache)
        slots = self.partition.insert(self.solver, reports, scans)
        if cold and plan.slope:
            self.solver.ease(EASY if self.cost.streamed_bytes else VERY_LARGE)
        self.state.totals.kept += len(slots)
        if plan.revisits:
            self._revisit(slots, plan)
            return
        gained = self.solver.process(slots)
        oracle = self.cost.per_example * sum(report.n_examples for report in reports)
        if over:
            self.solver.harden(gap, fully=bool(self.cost.streamed_bytes))
        self.solver.ascend(plan, gained, len(slots) + oracle + ROUND_WORK)

    def _revisit(self, slots: Ints, plan: Ascent) -> None:
        self.solver.reprocess(slots, plan)
        if plan.revisits * len(slots) < self.solver.cache.n_groups:  # few new constraints: sweep the old ones
            self.solver.ascend(Ascent(0.0, max_sweeps=1))

    def bound(self) -> None:
        """Update `lower` from a rebuilt v."""
        with self.timed():
            self.solver.bound()

    def prune(self, idle: int | None) -> None:
        """Drop constraints whose α was 0 for so many passes; None drops none."""
        if idle is not None:
            self.state.totals.pruned += self.solver.prune(idle)

    def change_capacity(self, C: float, gap: float, n_examples: int) -> None:
        """Scale α to another C and solve the cached problem."""
        with self.timed():
            self.solver.change_capacity(C)
            if len(self.solver.cache):
                scan = self.cost.per_example * n_examples + ROUND_WORK
                plan = Ascent(CACHE_GAP_SHARE * gap, UNLIMITED_SWEEPS, patience=MAX_ASCENT)
                self.state.estimate = self.solver.ascend(plan, spent=scan)
                self.solver.bound()

    def learn(self, value: float, new: float, reports: Sequence[ShardReport], *, whole: bool) -> None:
        """Tell the solver P(w) = `value`, of which `new` is loss of constraints that were not cached.

        `whole`: the scan was of all examples at one w, and of the same problem as the cached one.
        """
        if not whole:
            self.solver.distrust()
        elif not any(self.solver.cache.holds_any(report.offenders.example) for report in reports):
            self.solver.learn(value - new)
        elif new < MAX_UNCACHED_SHARE * (value - self.solver.lower):  # older constraints of these examples cover a part
            self.solver.learn(value)
        else:
            self.solver.distrust()

    def lift(self, found: Sequence[ShardReport | ShardLoss], w: Floats, C: float) -> float:
        """Loss found at w over all shards, minus the cached problem's loss there."""
        return C * sum(each.loss for each in found) - self.solver.cached_loss(w)

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time of a block as time of the ascent."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.state.totals.ascent_seconds += time.perf_counter() - begin
