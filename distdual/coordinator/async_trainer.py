"""The asynchronous training loop: workers scan while the coordinator ascends, and neither waits for the other.

A scan starts at the newest weights. When its report arrives, the weights have moved on, but an offender is a true
constraint at any w: it is scored again and enters the cache if it is still violated. All scans of a
pass that certifies use one w. `flow` decides; this module carries out.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from distdual.certificate.bounds import ShardLoss, whole_shards
from distdual.coordinator.ascender import ROUND_WORK
from distdual.coordinator.flow import BeginPass, Facts, Flight, Flow, PublishWeights, StartScan
from distdual.coordinator.pass_underway import PassUnderway
from distdual.coordinator.schedule import (
    INTERRUPTED,
    MAX_ASCENT,
    MIN_PIECE,
    MIN_PYTHON_PIECE,
    Pass,
    Stop,
    counts_visits,
    cut_expensive,
    cut_pieces,
)
from distdual.coordinator.trainer import Trainer
from distdual.kernels.row_copies import packed
from distdual.kernels.rows import Floats
from distdual.scan.scan import Scan, ShardReport
from distdual.solver.ascent_plan import Ascent
from distdual.solver.sweep import slacks

LOG_INTERVAL = 0.5  # seconds between lines of the run log during a pass
REPORT_TIMEOUT = 0.25  # seconds to wait for a report before checking whether to stop


@dataclass(slots=True)
class AsyncTrainer(Trainer):
    """One asynchronous run."""

    flow: Flow = field(init=False)
    to_start: list[Scan] = field(default_factory=list)

    def __post_init__(self) -> None:
        Trainer.__post_init__(self)
        self.flow = Flow(
            np.diff(self.dataset.first),
            self.config.max_staleness,
            climbs=not counts_visits(self.config.schedule),
            overlap=not self.config.offender_cache,
        )

    def suspended(self) -> PassUnderway | None:
        return self.flow.suspended()

    def _work(self) -> Stop:
        self._resume()
        stop: Stop | None = None
        while not self._is_over():
            stop = stop or self._feed()
            if stop and not self.executor.pending and self.flow.resting:
                break
            self._turn()
            self.between(self)
        self.executor.drop()
        self.ascender.bound()
        now = self.flow.verdict(self._progress(), self._limits())
        self.flow.dropped()
        return now if isinstance(now, Stop) else stop or INTERRUPTED

    def _resume(self) -> None:
        """Continue the pass that was under way at the checkpoint."""
        here, self.state.underway = self.state.underway, None
        self.flow.resume(self.state.totals.passes, here, self.state.best_w)
        self.flow.aim(self.flow.goal, self._effort())

    def _feed(self) -> Stop | None:
        """Start scans until every slot has work; return a Stop if nothing is left to start."""
        while (step := self.flow.feed(self._facts())) is not None:
            if isinstance(step, BeginPass):
                self._begin(step)
            elif isinstance(step, PublishWeights):
                self._publish(step.flight)
            elif isinstance(step, StartScan):
                certify, slack = step.flight.plan.certify, step.flight.slack
                scan = self.scanner.scan_of(
                    step.piece, step.version, slack, ticket=step.ticket, certify=certify, search=certify
                )
                self.to_start.append(scan)
                self.flow.started(step, scan)
            else:
                self._start()
                return step
        self._start()
        return None

    def _facts(self) -> Facts:
        pending = self.executor.pending + len(self.to_start)
        return Facts(self._progress(), self._limits(), self.executor.slots, pending, self.state.version)

    def _begin(self, step: BeginPass) -> None:
        if self.config.offender_cache and self.flow.begun:
            self._use_recent(step.plan)
        slack = self.partition.slack
        least = MIN_PYTHON_PIECE if self.problem.holds_gil else MIN_PIECE
        pieces = tuple(cut_pieces(step.plan, self.executor.slots, slack, least))
        pieces = cut_expensive(pieces, self.problem.oracle_work, slack)
        self.flow.began(step, slack, self._query(step.plan), pieces)

    def _publish(self, flight: Flight) -> None:
        self._start()  # scans at earlier weights, before workers drop those
        own = flight.w if flight.plan.certify else None
        w = self.solver.candidate(averaged=self.config.average) if own is None else own
        self.flow.published(flight, self.scanner.publish(w))

    def _start(self) -> None:
        scans, self.to_start = self.to_start, []
        if scans:
            self.executor.start(scans)

    def _turn(self) -> None:
        """Absorb the reports that have arrived, then ascend; wait for reports only while the ascent rests."""
        begin = time.perf_counter()
        reports = self.executor.collect(REPORT_TIMEOUT if self.flow.resting else 0.0)
        waited = time.perf_counter()
        self.state.totals.wait_seconds += waited - begin
        if reports:
            self._take(reports)
        if not self.flow.resting:
            self._climb()
        if time.perf_counter() - self.scanner.since.seconds > LOG_INTERVAL:
            self.ascender.bound()
            self.recorder.record(sum(self.scanner.since.staleness), certify=False)
        self.flow.turned(time.perf_counter() - waited)

    def _take(self, reports: Sequence[ShardReport]) -> None:
        self.state.totals.rounds += 1
        for flight in list(self.flow.flights):
            own = flight.take(reports, self.config.C)
            for scan, report in own:
                self.scanner.count(report, scan)
                self.flow.scanned(report.read_seconds + report.compute_seconds)
            if flight.slack.is_all:
                flight.held += own
            elif own:
                self._absorb(own, flight.plan)
            if flight.complete:
                self._land(flight)

    def _absorb(self, found: list[tuple[Scan, ShardReport]], plan: Pass) -> None:
        """Insert the offenders that are still violated and take one step on each."""
        with self.ascender.timed():
            found.sort(key=lambda each: (each[0].shard, each[0].begin))
            # Rows with a members file are addressed by their position in it, so all of them are kept.
            reports = [report if scan.notes else self._without_stale(report) for scan, report in found]
            slots = self.partition.insert(self.solver, reports, [scan for scan, _ in found])
            if plan.between.revisits:
                self.solver.reprocess(slots, plan.between)
            else:
                self.solver.process(slots)
            if plan.prune:
                self.ascender.prune(0)
            self.state.totals.kept += len(slots)
        if len(slots):
            self.flow.inserted(self._effort())

    def _without_stale(self, report: ShardReport) -> ShardReport:
        if self.partition.slack.is_all:
            return report
        fresh = still_violated(report, self.solver.w)
        self.state.totals.stale += len(report.offenders.margin) - len(fresh.offenders.margin)
        return fresh

    def _land(self, flight: Flight) -> None:
        """Finish a pass whose last report has arrived."""
        self.flow.landed(flight)
        plan, losses, w = flight.plan, whole_shards(flight.losses), flight.w
        assert w is not None
        if plan.certify and self.config.offender_cache:
            self.state.lift = self.ascender.lift(losses, w, self.config.C) if flight.held else flight.new
        if flight.held:
            self._absorb(flight.held, plan)
        if flight.fills:
            self.state.totals.filled += 1
        else:
            self._settle(flight, losses, w)
        self._end_pass(losses, w)
        self.recorder.record(self.dataset.n_shards, certify=plan.certify)

    def _settle(self, flight: Flight, losses: list[ShardLoss], w: Floats) -> None:
        """Update bounds after a pass and set the goal of the ascent before the next certificate."""
        unseen = np.inf
        if flight.plan.certify:
            kinks = [part for part in flight.kinks if part is not None]
            self._certify(losses, w, flight.version, kinks if len(kinks) == len(flight.kinks) else ())
            unseen = self._share(flight.new, losses, w)
        if flight.plan.last.revisits:
            self.solver.ascend(Ascent(0.0, max_sweeps=1))
        else:
            self.flow.passed(flight.plan, unseen, self.config.gap, self._effort())
        self.ascender.bound()

    def _effort(self) -> int:
        """The number of updates that ends an ascent which no scan has replaced, as it costs so many scans."""
        oracle = self.problem.oracle_work * self.dataset.n_examples
        return self.solver.updates + int(MAX_ASCENT * (oracle + len(self.solver.cache) + ROUND_WORK))

    def _climb(self) -> None:
        with self.ascender.timed():
            gap = self.solver.ascend(Ascent(self.flow.goal, 1))
        if self.flow.climbed(gap if len(self.solver.cache) else 0.0, self.solver.updates):
            self.ascender.bound()

    def _is_over(self) -> bool:
        """Whether to stop without waiting for scans under way."""
        return min(self._gap(), self._inexact_gap()) <= self.config.gap or self.solver.should_stop()


def still_violated(report: ShardReport, w: Floats) -> ShardReport:
    """A report without the offenders that w no longer violates."""
    found = report.offenders
    if not len(found.margin):
        return report
    found = found._replace(rows=packed(found.rows))
    slack = np.empty(len(found.margin))
    slacks(found.rows, found.margin, w, slack)
    still = np.flatnonzero(slack > 0)
    return report._replace(offenders=found if len(still) == len(slack) else found.take(still))


TRAINERS: dict[str, type[Trainer]] = {"deterministic": Trainer, "async": AsyncTrainer}
