"""The loop: scan shards, insert offenders, ascend, certify (Ramanan, Algorithm 2, over shards).

Decisions come from `schedule`; this file carries them out.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from distdual.certificate import Certificate, ShardLoss, upper_bound
from distdual.config import SolverConfig
from distdual.coordinator.schedule import Pass, Progress, Stop, next_step
from distdual.coordinator.solver import Solver, relative_gap
from distdual.data.store import Dataset
from distdual.problems.base import Constraints, Problem
from distdual.rows import Floats
from distdual.workers.executor import Executor
from distdual.workers.scan import Scan, ShardReport

log = logging.getLogger(__name__)

ROUND_PASSES = 3  # ascent passes after a round at most; more would perfect a w that the next round outdates
PASS_PASSES = 20  # after the last round of a pass


@dataclass(slots=True)
class Totals:
    """What the run has cost so far."""

    passes: int = 0
    rounds: int = 0
    oracle_calls: int = 0
    offenders: int = 0
    bytes_read: int = 0
    read_seconds: float = 0.0
    scan_seconds: float = 0.0
    wait_seconds: float = 0.0
    ascent_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Round:
    """One line of the run log."""

    seconds: float
    version: int
    shards: int
    certify: bool
    lower: float
    upper: float  # the lowest certified so far; infinity before the first
    gap: float
    estimate: float  # of the gap, from losses at different weights
    cache_rows: int
    cache_bytes: int
    support: int
    totals: dict[str, Any]


@dataclass(slots=True)
class Outcome:
    """The best certified weights, the bounds, and how it went."""

    w: Floats
    certificate: Certificate
    reason: str
    seconds: float
    history: list[Round]
    totals: Totals
    solver: Solver


@dataclass(slots=True)
class Trainer:
    """The state of one run."""

    problem: Problem
    dataset: Dataset
    executor: Executor
    config: SolverConfig
    watch: Callable[[Round], None]
    solver: Solver = field(init=False)
    totals: Totals = field(default_factory=Totals)
    history: list[Round] = field(default_factory=list)
    version: int = 0
    begin: float = field(default_factory=time.perf_counter)
    best_w: Floats = field(init=False)
    best_upper: float = np.inf
    best_version: int = -1
    since_certified: int = 0
    estimate: float = np.inf

    def __post_init__(self) -> None:
        self.solver = Solver(self.problem.n_weights, self.config.C, self.config.seed)
        self.best_w = self.solver.w.copy()

    def run(self) -> Outcome:
        while isinstance(step := self._next(), Pass):
            self._carry_out(step)
        if self._gap() > self.config.gap:
            self._certify_last()
        log.info("stop: %s", step.reason)
        seconds = time.perf_counter() - self.begin
        certificate = Certificate(self.solver.lower, self.best_upper, self.best_version)
        return Outcome(self.best_w, certificate, step.reason, seconds, self.history, self.totals, self.solver)

    def _next(self) -> Pass | Stop:
        progress = Progress(
            self.totals.passes,
            self.since_certified,
            self.estimate,
            self._gap(),
            time.perf_counter() - self.begin,
        )
        return next_step(
            progress,
            n_shards=self.dataset.n_shards,
            target=self.config.gap,
            max_passes=self.config.max_passes,
            max_seconds=self.config.max_seconds,
            seed=self.config.seed,
        )

    def _carry_out(self, plan: Pass) -> None:
        losses: list[ShardLoss] = []
        for number, shards in enumerate(plan.rounds, start=1):
            reports = self._scan(shards)
            losses += [ShardLoss(r.shard, r.version, r.loss, r.exact) for r in reports]
            if plan.certify:
                self._certify(losses)
            last = number == len(plan.rounds)
            self._improve(reports, plan.tolerance, PASS_PASSES if last else ROUND_PASSES)
            if last:
                self.totals.passes += 1
                self.since_certified = 0 if plan.certify else self.since_certified + 1
                self._estimate(losses)
            self._record(len(shards), certify=plan.certify)

    def _scan(self, shards: tuple[int, ...]) -> list[ShardReport]:
        """Scan these shards at the current w; reports come back in the order of shards, whoever was first."""
        self.executor.publish(self.version, self.solver.w)
        scans = [Scan(s, self.version, self._known(s)) for s in shards]
        begin = time.perf_counter()
        reports = sorted(self.executor.reports(scans), key=lambda report: report.shard)
        self.totals.wait_seconds += time.perf_counter() - begin
        self.totals.rounds += 1
        for report in reports:
            self.totals.oracle_calls += report.n_examples
            self.totals.offenders += len(report.offenders.margin)
            self.totals.bytes_read += report.bytes_read
            self.totals.read_seconds += report.read_seconds
            self.totals.scan_seconds += report.compute_seconds
        return reports

    def _known(self, shard: int) -> Any:
        return self.solver.cache.known(int(self.dataset.first[shard]), int(self.dataset.first[shard + 1]))

    def _improve(self, reports: list[ShardReport], tolerance: float, max_passes: int) -> None:
        begin = time.perf_counter()
        found = [report.offenders for report in reports if len(report.offenders.margin)]
        if found:
            self.solver.insert(Constraints.join(found))
        self.solver.ascend(tolerance, max_passes)
        self.solver.bound()
        self.version += 1
        self.totals.ascent_seconds += time.perf_counter() - begin

    def _certify(self, losses: list[ShardLoss]) -> None:
        """An upper bound for the current w; the model to return is the best one seen."""
        w = self.solver.w
        upper = upper_bound(w, self.version, losses, C=self.config.C, n_shards=self.dataset.n_shards)
        if upper < self.best_upper:
            self.best_upper, self.best_version, self.best_w = upper, self.version, w.copy()

    def _certify_last(self) -> None:
        """One more scan, so that the last w, too, may be the model; it is not followed by ascent."""
        reports = self._scan(tuple(range(self.dataset.n_shards)))
        self._certify([ShardLoss(r.shard, r.version, r.loss, r.exact) for r in reports])
        self._record(self.dataset.n_shards, certify=True)

    def _estimate(self, losses: list[ShardLoss]) -> None:
        guess = 0.5 * float(self.solver.w @ self.solver.w) + self.config.C * sum(s.loss for s in losses)
        self.estimate = relative_gap(guess, self.solver.lower)

    def _gap(self) -> float:
        return Certificate(self.solver.lower, self.best_upper, 0).gap if self.best_version >= 0 else np.inf

    def _record(self, n_shards: int, *, certify: bool) -> None:
        line = Round(
            time.perf_counter() - self.begin,
            self.version,
            n_shards,
            certify,
            self.solver.lower,
            self.best_upper,
            self._gap(),
            self.estimate,
            len(self.solver.cache),
            self.solver.cache.nbytes,
            len(self.solver.support()),
            asdict(self.totals),
        )
        self.history.append(line)
        log.info(
            "round=%d version=%d lower=%.6g upper=%.6g gap=%.2e rows=%d scanned=%d/%d solve=%.1fs scan=%.1fs",
            self.totals.rounds,
            line.version,
            line.lower,
            line.upper,
            line.gap,
            line.cache_rows,
            n_shards,
            self.dataset.n_shards,
            self.totals.ascent_seconds,
            self.totals.wait_seconds,
        )
        self.watch(line)
