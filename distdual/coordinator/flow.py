"""The decisions of an asynchronous run: which pass to begin, what to publish and scan, and when the ascent rests.

Pure: no clock, no workers, no solver. The trainer tells what happened, and `Flow.feed` answers with one instruction at
a time; `schedule` plans the passes, as it does for synchronous runs.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from distdual.coordinator.pass_underway import PassUnderway
from distdual.coordinator.schedule import CACHE_GAP_SHARE, Limits, Pass, Piece, Progress, Stop, next_step
from distdual.kernels.rows import Floats, Ints
from distdual.problems.base import BiasKinks
from distdual.scan.scan import Scan, ShardReport
from distdual.scan.slack import Slack

MAX_PREFETCH = 8  # scans queued for each slot
SMOOTHING = 0.2  # weight of the last value in a running mean


@dataclass(eq=False, slots=True)
class Flight(PassUnderway):
    """A pass with scans under way."""

    left: deque[Piece] = field(default_factory=deque)  # not yet started
    asked: dict[int, Scan] = field(default_factory=dict)  # started, by ticket
    held: list[tuple[Scan, ShardReport]] = field(
        default_factory=list
    )  # with one slack for all, reports form a constraint only together
    kinks: list[BiasKinks | None] = field(default_factory=list)  # of its reports, where it certifies
    fills: bool = False  # only keeps workers busy while the ascent prepares a pass that certifies

    @property
    def complete(self) -> bool:
        """Whether all its reports have arrived."""
        return not self.left and not self.asked

    def take(self, reports: Sequence[ShardReport], C: float) -> list[tuple[Scan, ShardReport]]:
        """Count the reports that belong to this pass, and return them with their scans."""
        own = [(self.asked.pop(report.ticket), report) for report in reports if report.ticket in self.asked]
        self.add([report for _, report in own], C)
        self.kinks += [report.kinks for _, report in own]
        return own


class BeginPass(NamedTuple):
    """Begin a pass: cut it into pieces, and choose the weights that it certifies."""

    plan: Pass
    fills: bool


class PublishWeights(NamedTuple):
    """Publish weights for the scans of a pass: its own if it certifies, else the newest."""

    flight: Flight


class StartScan(NamedTuple):
    """Start the scan of a piece at published weights."""

    flight: Flight
    piece: Piece
    version: int
    ticket: int


class Facts(NamedTuple):
    """The facts that the next instruction rests on."""

    progress: Progress
    limits: Limits
    slots: int
    pending: int  # scans started and not yet collected
    version: int  # of the weights published next


@dataclass(slots=True)
class Flow:
    """The state of the decisions."""

    sizes: Ints  # examples of each shard
    max_staleness: int  # versions that may be published during a scan
    climbs: bool  # whether the ascent continues between reports; schedules that count visits do not
    overlap: bool  # whether passes may overlap at all
    flights: list[Flight] = field(default_factory=list)
    begun: int = 0  # passes
    tickets: int = 0
    moved: bool = True  # whether w has changed since the last publication
    goal: float = 0.1  # gap of the cached problem at which the ascent rests
    effort: float = math.inf  # number of updates at which it rests regardless
    resting: bool = False
    settled: bool = False  # whether the ascent reached that gap since the last pass
    turn_seconds: float = 0.0  # between two starts of scans: the recent maximum
    scan_seconds: float = 0.0  # of a scan: a running mean

    # Instructions

    def feed(self, facts: Facts) -> BeginPass | PublishWeights | StartScan | Stop | None:
        """The next thing to do: None if every slot has work or nothing may start, a Stop if no pass is left."""
        if facts.pending >= ahead(self.turn_seconds, self.scan_seconds) * facts.slots:
            return None
        flight = self.flights[-1] if self.flights else None
        if flight is None or not flight.left:
            return self._next_pass(flight, facts)
        if self._needs_weights(flight, facts.version):
            return PublishWeights(flight)
        version = flight.version if flight.version >= 0 else facts.version - 1
        return StartScan(flight, flight.left[0], version, self.tickets + 1)

    def verdict(self, progress: Progress, limits: Limits) -> Pass | Stop:
        """What the schedule says after the passes begun so far."""
        progress = replace(progress, n_passes=self.begun, n_filled=self._filled(progress))
        return next_step(progress, self.sizes, limits)

    def suspended(self) -> PassUnderway | None:
        """The missing scans of the newest pass; a pass that certifies starts again at better weights."""
        if not self.flights or self.flights[-1].plan.certify:
            return None
        last = self.flights[-1]
        missing = (*(Piece(scan.shard, scan.begin, scan.end or 0) for scan in last.asked.values()), *last.left)
        return PassUnderway(replace(last.plan, rounds=(missing,)), last.slack, list(last.losses))

    def _needs_weights(self, flight: Flight, version: int) -> bool:
        if flight.plan.certify:
            return flight.version < 0
        return (flight.version < 0 or self.moved) and self._may_publish(version)

    def _next_pass(self, last: Flight | None, facts: Facts) -> BeginPass | Stop | None:
        """The pass to begin now, if any; all scans of `last` have started."""
        if last is not None and not (last.plan.overlap and self.overlap):
            return None
        plan = self.verdict(replace(facts.progress, settled=self.settled), facts.limits)
        if isinstance(plan, Stop):
            return plan
        if not plan.certify or self._may_certify(plan, facts):
            return BeginPass(plan, fills=False)
        if plan.overlap and 2 * self._filled(facts.progress) < facts.limits.max_passes:
            return BeginPass(replace(plan, certify=False), fills=True)  # rather than wait
        return None

    def _filled(self, progress: Progress) -> int:
        """Passes begun only to keep workers busy."""
        return progress.n_filled + sum(flight.fills for flight in self.flights)

    def _may_publish(self, version: int) -> bool:
        """Whether a new version keeps every scan under way within solver.max_staleness."""
        under_way = [scan.version for flight in self.flights for scan in flight.asked.values()]
        return not under_way or version - min(under_way) <= self.max_staleness

    def _may_certify(self, plan: Pass, facts: Facts) -> bool:
        """Whether the cached problem is solved well enough: no scan can close its gap."""
        near = self.settled or facts.progress.estimate <= facts.limits.target
        ready = near if plan.overlap else self.resting
        return self._may_publish(facts.version) and (ready or not self.begun)

    # Events

    def resume(self, n_passes: int, underway: PassUnderway | None, w: Floats) -> None:
        """Continue after so many passes, with the pass that was under way at the checkpoint."""
        self.begun = n_passes
        self.settled = not self.climbs
        if underway:
            pieces = underway.plan.rounds[0] if underway.plan.rounds else ()
            self.begun += 1
            self.flights.append(Flight(underway.plan, underway.slack, underway.losses, w=w, left=deque(pieces)))

    def began(self, step: BeginPass, slack: Slack, w: Floats, pieces: Sequence[Piece]) -> None:
        self.begun += 1
        self.flights.append(Flight(step.plan, slack, w=w, left=deque(pieces), fills=step.fills))
        if not (step.plan.certify or step.plan.between.revisits or step.fills):
            self.goal = step.plan.between.tolerance

    def published(self, flight: Flight, version: int) -> None:
        flight.version, self.moved = version, False
        if flight.plan.certify:
            self.settled = not self.climbs  # before the next certificate

    def started(self, start: StartScan, scan: Scan) -> None:
        self.tickets = start.ticket
        start.flight.asked[start.ticket] = scan
        start.flight.left.popleft()

    def scanned(self, seconds: float) -> None:
        """A worker spent so long on a scan."""
        self.scan_seconds += SMOOTHING * (seconds - self.scan_seconds)

    def turned(self, seconds: float) -> None:
        """The coordinator spent so long between two starts of scans."""
        self.turn_seconds = max(seconds, self.turn_seconds + SMOOTHING * (seconds - self.turn_seconds))

    def inserted(self, effort: float) -> None:
        """New constraints have moved the cached problem's optimum."""
        self.moved = True
        self.aim(self.goal, effort)

    def climbed(self, gap: float, updates: int) -> bool:
        """The ascent reached this gap of the cached problem after so many updates; return whether it rests now."""
        self.moved = True
        if gap <= self.goal or updates > self.effort:
            self.resting = self.settled = True
        return self.resting

    def landed(self, flight: Flight) -> None:
        """All reports of a pass have arrived."""
        self.flights.remove(flight)

    def dropped(self) -> None:
        """The run is over, and scans under way are not waited for."""
        self.flights.clear()

    def passed(self, plan: Pass, unseen: float, target: float, effort: float) -> None:
        """A pass ended; at most the share `unseen` of P(w) was not cached."""
        self.aim(max(CACHE_GAP_SHARE * target, min(plan.last.tolerance, unseen)), effort)
        self.settled = False

    def aim(self, goal: float, effort: float) -> None:
        """Ascend to this gap of the cached problem, or up to so many updates."""
        self.goal, self.effort, self.resting = goal, effort, not self.climbs


def ahead(turn_seconds: float, scan_seconds: float) -> int:
    """Scans to queue for each slot so that none idles while the coordinator is busy."""
    return 1 + min(MAX_PREFETCH, max(1, math.ceil(turn_seconds / scan_seconds))) if scan_seconds > 0 else 2
