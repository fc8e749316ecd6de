"""The asynchronous training loop: workers scan while the coordinator ascends, and neither waits for the other.

A scan starts at the newest weights. When its report arrives, the weights have moved on, but an offender is a true
constraint whatever w it was found at: it is scored again and enters the cache if it is still violated. All scans of a
pass that certifies use one w.
"""

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from distdual.certificate.bounds import ShardLoss, shard_losses, whole_shards
from distdual.coordinator.ascender import ROUND_WORK
from distdual.coordinator.run_state import PassUnderway
from distdual.coordinator.schedule import CACHE_GAP_SHARE, INTERRUPTED, MAX_ASCENT, Pass, Piece, Stop, cut_pieces
from distdual.coordinator.trainer import Trainer
from distdual.kernels.row_copies import packed
from distdual.kernels.rows import Floats
from distdual.scan.scan import Scan, ShardReport
from distdual.scan.slack import Slack
from distdual.solver.ascent_plan import Ascent
from distdual.solver.sweep import slacks

MAX_PREFETCH = 8  # scans queued for each slot
SMOOTHING = 0.2  # weight of the last value in a running mean
LOG_INTERVAL = 0.5  # seconds between lines of the run log while a pass goes on
REPORT_TIMEOUT = 0.25  # seconds to wait for a report before checking whether to stop


@dataclass(eq=False, slots=True)
class Flight:
    """A pass with scans under way."""

    plan: Pass
    slack: Slack
    left: deque[Piece]  # not yet started
    w: Floats  # a pass that certifies scans at these weights …
    version: int = -1  # … of this version
    asked: dict[int, Scan] = field(default_factory=dict)  # started, by ticket
    losses: list[ShardLoss] = field(default_factory=list)
    held: list[tuple[Scan, ShardReport]] = field(
        default_factory=list
    )  # with one slack for all, reports form a constraint only together
    between: bool = False  # fills the time while the ascent prepares a pass that certifies
    new: float = 0.0  # loss that constraints not yet cached add to P(w)

    @property
    def over(self) -> bool:
        return not self.left and not self.asked


@dataclass(slots=True)
class AsyncTrainer(Trainer):
    """One asynchronous run."""

    flights: list[Flight] = field(default_factory=list)
    begun: int = 0  # passes
    tickets: int = 0
    to_start: list[Scan] = field(default_factory=list)
    moved: bool = True  # whether w has changed since the last publication
    goal: float = 0.1  # gap of the cached problem at which the ascent rests
    resting: bool = False
    settled: bool = False  # whether the ascent reached that gap since the last pass
    turn_seconds: float = 0.0  # between two starts of scans: the recent maximum
    scan_seconds: float = 0.0  # of a scan: a running mean
    fresh: bool = True  # whether newer weights may be published
    effort: int = 0  # value of solver.updates at which the ascent rests regardless

    def _work(self) -> Stop:
        self._take_up()
        step: Stop | None = None
        while not self._is_over():
            step = step or self._feed()
            if step and not self.executor.pending and self.resting:
                break
            self._turn()
            self.between(self)
        self.executor.drop()
        self.ascender.bound()
        now = self._next(self.begun)
        self.flights.clear()
        return now if isinstance(now, Stop) else step or INTERRUPTED

    def suspended(self) -> PassUnderway | None:
        """The missing scans of the newest pass; a pass that certifies starts again at better weights."""
        if not self.flights or self.flights[-1].plan.certify:
            return None
        last = self.flights[-1]
        missing = (*(Piece(scan.shard, scan.begin, scan.end or 0) for scan in last.asked.values()), *last.left)
        return PassUnderway(replace(last.plan, rounds=(missing,)), last.slack, list(last.losses))

    def _take_up(self) -> None:
        """Continue the pass that was under way at the checkpoint."""
        self.begun = self.state.totals.passes
        self.settled = not self.climbs
        self._rest_at(self.goal)
        if self.state.underway:
            here, self.state.underway = self.state.underway, None
            self.begun += 1
            pieces = here.plan.rounds[0] if here.plan.rounds else ()
            self.flights.append(Flight(here.plan, here.slack, deque(pieces), self.state.best_w, losses=here.losses))

    def _feed(self) -> Stop | None:
        """Start scans until every slot has work; return a Stop if nothing is left to start."""
        room = ahead(self.turn_seconds, self.scan_seconds) * self.executor.slots - self.executor.pending
        self.fresh = self._may_publish()
        stop = None
        for _ in range(room):
            flight = self.flights[-1] if self.flights else None
            if flight is None or not flight.left:
                step = self._next_flight(flight)
                if not isinstance(step, Flight):
                    stop = step
                    break
                flight = step
            self._scan_next(flight)
        self._start()
        return stop

    def _next_flight(self, last: Flight | None) -> Flight | Stop | None:
        """The pass to begin now, if any; all scans of `last` have started."""
        if last is not None and (not last.plan.overlap or self.config.offender_cache):
            return None
        step = self._next(self.begun, settled=self.settled)
        if isinstance(step, Stop):
            return step
        if not step.certify or self._may_certify(step):
            return self._begin(step)
        return self._begin(replace(step, certify=False), between=True) if self._may_fill(step) else None

    def _may_fill(self, plan: Pass) -> bool:
        """Whether to scan on instead of waiting; adds at most half of solver.max_passes."""
        return plan.overlap and 2 * self.filled < self.config.max_passes

    @property
    def filled(self) -> int:
        """Passes begun only to keep workers busy."""
        return self.state.totals.filled + sum(flight.between for flight in self.flights)

    def _start(self) -> None:
        scans, self.to_start = self.to_start, []
        if scans:
            self.executor.start(scans)

    def _begin(self, plan: Pass, *, between: bool = False) -> Flight:
        if self.config.offender_cache and self.begun:
            self._use_recent(plan)
        self.begun += 1
        flight = Flight(plan, self.partition.slack, deque(), self._query(plan), between=between)
        flight.left.extend(cut_pieces(plan, self.executor.slots, flight.slack))
        self.flights.append(flight)
        if plan.certify:
            flight.version = self._publish_newest(flight.w)
            self.settled = not self.climbs  # before the next certificate
        elif not plan.between.revisits and not between:
            self.goal = plan.between.tolerance
        return flight

    def _scan_next(self, flight: Flight) -> None:
        if not flight.plan.certify and (flight.version < 0 or self.moved) and self.fresh:
            flight.version = self._publish_newest(self.solver.candidate())
        version = flight.version if flight.version >= 0 else self.state.version - 1
        self.tickets += 1
        scan = self.scanner.scan_of(flight.left.popleft(), version, flight.slack, ticket=self.tickets)
        flight.asked[self.tickets] = scan
        self.to_start.append(scan)

    def _may_publish(self) -> bool:
        """Whether a new version keeps every scan under way within solver.max_staleness."""
        under_way = [scan.version for flight in self.flights for scan in flight.asked.values()]
        return not under_way or self.state.version - min(under_way) <= self.config.max_staleness

    def _may_certify(self, plan: Pass) -> bool:
        """Whether the cached problem is solved well enough: no scan can close its gap."""
        ready = self.settled or self.state.estimate <= self.config.gap if plan.overlap else self.resting
        return self.fresh and (ready or not self.begun)

    def _publish_newest(self, w: Floats) -> int:
        self._start()  # scans at earlier weights, before workers drop those
        self.moved = False
        version = self.scanner.publish(w)
        self.fresh = self._may_publish()
        return version

    def _turn(self) -> None:
        """Absorb the reports that have arrived, then ascend; wait for reports only while the ascent rests."""
        begin = time.perf_counter()
        reports = self.executor.collect(REPORT_TIMEOUT if self.resting else 0.0)
        waited = time.perf_counter()
        self.state.totals.wait_seconds += waited - begin
        if reports:
            self._take(reports)
        if not self.resting:
            self._climb()
        if time.perf_counter() - self.scanner.since.seconds > LOG_INTERVAL:
            self.ascender.bound()
            self.recorder.record(sum(self.scanner.since.staleness), certify=False)
        seconds = time.perf_counter() - waited
        self.turn_seconds = max(seconds, self.turn_seconds + SMOOTHING * (seconds - self.turn_seconds))

    def _take(self, reports: Sequence[ShardReport]) -> None:
        self.state.totals.rounds += 1
        for flight in list(self.flights):
            own = [(flight.asked.pop(r.ticket), r) for r in reports if r.ticket in flight.asked]
            for scan, report in own:
                self.scanner.count(report, scan)
                seconds = report.read_seconds + report.compute_seconds
                self.scan_seconds += SMOOTHING * (seconds - self.scan_seconds)
                flight.losses += shard_losses([report])
                if flight.plan.certify:
                    flight.new += self.config.C * report.new_loss
            if flight.slack.is_all:  # reports form a constraint only together
                flight.held += own
            elif own:
                self._absorb(own, flight.plan)
            if flight.over:
                self._land(flight)

    def _absorb(self, found: list[tuple[Scan, ShardReport]], plan: Pass) -> None:
        """Insert the offenders that are still violated and take one step on each."""
        with self.ascender.timed():
            self._insert(found, plan)

    def _insert(self, found: list[tuple[Scan, ShardReport]], plan: Pass) -> None:
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
            self.moved = True
            self._rest_at(self.goal)

    def _without_stale(self, report: ShardReport) -> ShardReport:
        if self.partition.slack.is_all:
            return report
        fresh = still_violated(report, self.solver.w)
        self.state.totals.stale += len(report.offenders.margin) - len(fresh.offenders.margin)
        return fresh

    def _land(self, flight: Flight) -> None:
        """Finish a pass whose last report has arrived."""
        self.flights.remove(flight)
        plan = flight.plan
        losses = whole_shards(flight.losses)
        if plan.certify and self.config.offender_cache:
            self.state.lift = self.ascender.lift(losses, flight.w, self.config.C) if flight.held else flight.new
        if flight.held:
            self._absorb(flight.held, plan)
        if flight.between:
            self.state.totals.filled += 1
        else:
            self._settle(flight, losses)
        self._end_pass(losses, flight.w)
        self.recorder.record(self.dataset.n_shards, certify=plan.certify)

    def _settle(self, flight: Flight, losses: list[ShardLoss]) -> None:
        """Update bounds after a pass and set the goal of the ascent before the next certificate."""
        plan = flight.plan
        goal = plan.last.tolerance
        if plan.certify:
            self._certify(losses, flight.w, flight.version)
            goal = min(goal, self._share(flight.new, losses, flight.w))
        if plan.last.revisits:
            self.solver.ascend(Ascent(0.0, max_sweeps=1))
        else:
            self._rest_at(max(CACHE_GAP_SHARE * self.config.gap, goal))
            self.settled = False
        self.ascender.bound()

    def _rest_at(self, goal: float) -> None:
        """Ascend to this gap of the cached problem, within a budget tied to the cost of a pass."""
        self.goal, self.resting = goal, not self.climbs
        oracle = self.problem.oracle_work * self.dataset.n_examples
        self.effort = self.solver.updates + int(MAX_ASCENT * (oracle + len(self.solver.cache) + ROUND_WORK))

    @property
    def climbs(self) -> bool:
        """Whether the ascent continues between reports; schedules that count visits do not."""
        return not self.config.schedule.startswith(("ratio:", "reprocess:"))

    def _climb(self) -> None:
        with self.ascender.timed():
            gap = self.solver.ascend(Ascent(self.goal, 1))
        self.moved = True
        if gap <= self.goal or not len(self.solver.cache) or self.solver.updates > self.effort:
            self.resting = self.settled = True
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


def ahead(turn_seconds: float, scan_seconds: float) -> int:
    """Scans to queue for each slot so that none idles while the coordinator is busy."""
    return 1 + min(MAX_PREFETCH, max(1, math.ceil(turn_seconds / scan_seconds))) if scan_seconds > 0 else 2


MODES: dict[str, type[Trainer]] = {"deterministic": Trainer, "async": AsyncTrainer}
