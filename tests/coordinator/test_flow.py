"""The decisions of an asynchronous run, against a world without workers, clock and solver."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdual.coordinator.flow import BeginPass, Facts, Flight, Flow, PublishWeights, StartScan, ahead
from distdual.coordinator.schedule import Cause, Limits, Pass, Piece, Progress, Stop, cut_pieces
from distdual.problems.base import Constraints, Keys
from distdual.scan.scan import Scan, ShardReport
from distdual.scan.slack import ALL, EXAMPLE
from distdual.solver.ascent_plan import Ascent

SIZES = np.array([700, 300, 900, 400])
NONE: Any = np.empty(0, dtype=np.uint64)
W = np.zeros(2)
BEGIN = Progress(n_passes=0, estimate=np.inf, gap=np.inf, oracle_sweeps=1.0, seconds=0.0)
LIMITS = Limits(schedule="slope", target=1e-3, max_passes=6, max_seconds=np.inf, seed=0)
PLAN = Pass(False, ((Piece(0, 0, 700),),), Ascent(0.1, 1), Ascent(0.01, 1))


def flow_of(**options: Any) -> Flow:
    return Flow(SIZES, **{"max_staleness": 3, "climbs": True, "overlap": True, **options})


def facts(progress: Progress = BEGIN, *, slots: int = 2, pending: int = 0, version: int = 0, **limits: Any) -> Facts:
    return Facts(progress, replace(LIMITS, **limits), slots, pending, version)


def report_of(scan: Scan) -> ShardReport:
    empty = np.empty(0)
    found = Constraints(np.empty(0, dtype=np.int64), empty, empty, None, Keys(np.zeros(1, dtype=np.int64), NONE))
    n = (scan.end or 0) - scan.begin
    return ShardReport(scan.shard, scan.version, True, n, 1.0, found, 0.5, 0, 0.0, 0.0, ticket=scan.ticket)


class World:
    """Carries out what a Flow decides; reports arrive late, in any order."""

    def __init__(self, flow: Flow, seed: int, slots: int, **limits: Any) -> None:
        self.flow, self.slots, self.limits = flow, slots, replace(LIMITS, **limits)
        self.random = np.random.default_rng(seed)
        self.version = 0
        self.pending: list[Scan] = []
        self.progress = BEGIN
        self.stale = Counter[int]()  # scans by versions published while they were under way
        self.passes: list[tuple[Flight, list[Scan]]] = []
        self.filled = 0

    def facts(self) -> Facts:
        return Facts(self.progress, self.limits, self.slots, len(self.pending), self.version)

    def feed(self) -> Stop | None:
        while (step := self.flow.feed(self.facts())) is not None:
            if isinstance(step, Stop):
                return step
            if isinstance(step, BeginPass):
                pieces = cut_pieces(step.plan, self.slots, EXAMPLE)
                self.flow.began(step, EXAMPLE, W, pieces)
                self.passes.append((self.flow.flights[-1], []))
            elif isinstance(step, PublishWeights):
                self.flow.published(step.flight, self.version)
                self.version += 1
            else:
                self.start(step)
        return None

    def start(self, step: StartScan) -> None:
        piece = step.piece
        scan = Scan(piece.shard, step.version, NONE, piece.begin, piece.end, ticket=step.ticket)
        self.flow.started(step, scan)
        self.pending.append(scan)
        next(scans for flight, scans in self.passes if flight is step.flight).append(scan)

    def arrive(self) -> None:
        self.random.shuffle(self.pending)  # type: ignore[arg-type]
        n = int(self.random.integers(len(self.pending) + 1))
        arrived, self.pending = self.pending[:n], self.pending[n:]
        for scan in arrived:
            self.stale[self.version - 1 - scan.version] += 1
        for flight in list(self.flow.flights):
            if flight.take([report_of(scan) for scan in arrived], 1.0):
                self.flow.inserted(effort=np.inf)
            if flight.complete:
                self.land(flight)

    def land(self, flight: Flight) -> None:
        self.flow.landed(flight)
        self.progress = replace(self.progress, estimate=0.02, n_filled=self.progress.n_filled + flight.fills)
        if not (flight.fills or flight.plan.last.revisits):
            self.flow.passed(flight.plan, 0.1, self.limits.target, effort=np.inf)

    def climb(self) -> None:
        if not self.flow.resting:
            self.flow.climbed(float(self.random.choice([1.0, 0.0])), 0)

    def run(self) -> Stop:
        stop = None
        self.flow.resume(0, None, W)
        self.flow.aim(0.1, effort=np.inf)
        for _ in range(2_000):
            stop = stop or self.feed()
            if stop and not self.pending:
                return stop
            self.arrive()
            self.climb()
        raise AssertionError("the run does not end")


@given(
    seed=st.integers(0, 99),
    slots=st.integers(1, 5),
    most=st.integers(1, 4),
    schedule=st.sampled_from(["slope", "gap", "ratio:3", "mine", "batch"]),
)
@settings(deadline=None, max_examples=60)
def test_whatever_arrives_when_every_pass_scans_each_example_once_and_no_scan_is_too_stale(seed, slots, most, schedule):
    flow = flow_of(max_staleness=most, climbs=not schedule.startswith("ratio"))
    world = World(flow, seed, slots, schedule=schedule)
    stop = world.run()
    assert stop.cause == Cause.MAX_PASSES
    assert max(world.stale) <= most
    for flight, scans in world.passes:
        scanned = Counter(shard for scan in scans for shard in [scan.shard] * ((scan.end or 0) - scan.begin))
        assert [scanned[shard] for shard in range(len(SIZES))] == SIZES.tolist()
        if flight.plan.certify:
            assert {scan.version for scan in scans} == {flight.version}
    assert sum(not flight.fills for flight, _ in world.passes) == LIMITS.max_passes
    assert sum(flight.fills for flight, _ in world.passes) <= LIMITS.max_passes // 2


def test_nothing_begins_while_every_slot_has_work():
    flow = flow_of()
    assert flow.feed(facts(slots=2, pending=4)) is None
    assert isinstance(flow.feed(facts(slots=2, pending=3)), BeginPass)


def test_a_slot_gets_as_many_scans_as_last_while_the_coordinator_is_busy():
    assert [ahead(*each) for each in ((0.0, 1.0), (0.9, 1.0), (3.1, 1.0), (100.0, 1.0), (1.0, 0.0))] == [2, 2, 5, 9, 2]
    flow = flow_of()
    flow.scanned(1.0)
    flow.turned(1.0)
    assert flow.feed(facts(slots=1, pending=5)) is not None
    assert flow.feed(facts(slots=1, pending=6)) is None


def begun(flow: Flow, plan: Pass = PLAN, n: int = 3) -> Flight:
    flow.began(BeginPass(plan, fills=False), EXAMPLE, W, [Piece(0, k, k + 1) for k in range(n)])
    return flow.flights[-1]


def test_scans_start_at_the_newest_weights_that_staleness_allows():
    flow = flow_of(max_staleness=2)
    flight = begun(flow)
    for version in range(3):
        step = flow.feed(facts(version=version))
        if version < 3 and isinstance(step, PublishWeights):
            flow.published(flight, version)
            step = flow.feed(facts(version=version + 1))
        assert isinstance(step, StartScan)
        assert step.version == min(version, 2)
        flow.started(step, Scan(0, step.version, NONE, 0, 1, ticket=step.ticket))
        flow.inserted(effort=np.inf)
    assert [scan.version for scan in flight.asked.values()] == [0, 1, 2]
    flight.left.append(Piece(0, 3, 4))
    step = flow.feed(facts(version=3))
    assert isinstance(step, StartScan)  # another version would make the first scan three versions old
    assert step.version == 2


def test_scans_of_a_pass_that_certifies_wait_for_its_own_weights_and_share_them():
    flow = flow_of()
    flight = begun(flow, replace(PLAN, certify=True))
    assert flow.feed(facts(version=4)) == PublishWeights(flight)
    flow.published(flight, 4)
    assert not flow.settled
    for _ in range(3):
        flow.inserted(effort=np.inf)  # newer weights there are, but this pass does not use them
        step = flow.feed(facts(version=9))
        assert isinstance(step, StartScan)
        assert step.version == 4
        flow.started(step, Scan(0, 4, NONE, 0, 1, ticket=step.ticket))


def test_while_the_ascent_prepares_a_certificate_passes_fill_the_time():
    near = replace(BEGIN, estimate=0.02)
    flow = flow_of()
    flow.resume(3, None, W)
    flow.passed(PLAN, 0.1, 1e-3, effort=np.inf)
    step = flow.feed(facts(near))
    assert isinstance(step, BeginPass)
    assert step.fills
    assert not step.plan.certify
    assert isinstance(flow.feed(facts(replace(near, n_filled=2))), BeginPass)
    assert flow.feed(facts(replace(near, n_filled=3))) is None  # half of max_passes
    flow.climbed(0.0, 0)
    step = flow.feed(facts(near))
    assert isinstance(step, BeginPass)
    assert step.plan.certify


def test_the_next_pass_waits_for_the_last_report_where_passes_do_not_overlap():
    for flow, plan in ((flow_of(overlap=False), PLAN), (flow_of(), replace(PLAN, overlap=False))):
        flight = begun(flow, plan, n=1)
        step = flow.feed(facts(version=0))
        assert step == PublishWeights(flight)
        flow.published(flight, 0)
        step = flow.feed(facts(version=1))
        assert isinstance(step, StartScan)
        flow.started(step, Scan(0, 0, NONE, 0, 1, ticket=1))
        assert flow.feed(facts(version=1)) is None
        flight.take([report_of(Scan(0, 0, NONE, 0, 1, ticket=1))], 2.0)
        assert flight.complete
        assert flight.new == 1.0
        flow.landed(flight)
        assert isinstance(flow.feed(facts(version=1)), BeginPass)


def test_the_ascent_rests_at_its_goal_or_after_enough_effort():
    flow = flow_of()
    flow.aim(0.1, effort=100)
    assert not flow.climbed(0.2, 100)
    assert flow.climbed(0.2, 101)
    assert flow.settled
    flow.inserted(effort=300)
    assert not flow.resting
    assert flow.climbed(0.1, 0)
    counting = flow_of(climbs=False)
    counting.aim(0.1, effort=100)
    assert counting.resting


@pytest.mark.parametrize(("unseen", "goal"), [(np.inf, 0.01), (0.004, 0.004), (0.0, 5e-4)])
def test_after_a_pass_the_ascent_closes_what_no_scan_can(unseen, goal):
    flow = flow_of()
    flow.passed(PLAN, unseen, 1e-3, effort=np.inf)
    assert flow.goal == goal
    assert not flow.settled


def test_a_suspended_pass_has_the_pieces_whose_reports_are_missing():
    flow = flow_of()
    assert flow.suspended() is None
    flight = begun(flow)
    flow.published(flight, 0)
    for _ in range(2):
        step = flow.feed(facts(version=1))
        assert isinstance(step, StartScan)
        flow.started(step, Scan(0, 0, NONE, step.piece.begin, step.piece.end, ticket=step.ticket))
    flight.take([report_of(flight.asked[1])], 1.0)
    underway = flow.suspended()
    assert underway is not None
    assert underway.plan.rounds == ((Piece(0, 1, 2), Piece(0, 2, 3)),)
    assert [loss.loss for loss in underway.losses] == [1.0]
    other = flow_of()
    other.resume(2, underway, W)
    assert other.begun == 3
    assert list(other.flights[0].left) == [Piece(0, 1, 2), Piece(0, 2, 3)]
    begun(flow, replace(PLAN, certify=True))
    assert flow.suspended() is None


def test_a_contradiction_stops_the_run():
    stop = flow_of().feed(facts(replace(BEGIN, contradiction="the bounds cross")))
    assert stop == Stop(Cause.CONTRADICTION, "the bounds cross")


def test_passes_that_are_alike_are_told_apart():
    """Their weights are arrays, which do not say whether they are equal."""
    flow = flow_of()
    first, second = begun(flow), begun(flow)
    flow.landed(second)
    assert flow.flights[0] is first


def test_losses_of_a_pass_that_certifies_have_its_version_and_others_their_own():
    for certify, version in ((True, 7), (False, 3)):
        flight = Flight(replace(PLAN, certify=certify), ALL, version=7)
        flight.asked[1] = scan = Scan(0, 3, NONE, 0, 1, ticket=1)
        flight.take([report_of(scan)], 1.0)
        assert [loss.version for loss in flight.losses] == [version]
