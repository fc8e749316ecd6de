"""The training loop: scan shards, insert offenders, ascend, certify (Ramanan, Algorithm 2, over shards).

`schedule` decides; this module carries out.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from distdual.certificate.bounds import Certificate, ShardLoss, objective, shard_losses, upper_bound, whole_shards
from distdual.cluster.base import Executor
from distdual.config import SolverConfig
from distdual.coordinator.auto_slack import Choice, choose
from distdual.coordinator.pass_cost import PassCost, declared_cost
from distdual.coordinator.report_checks import check_report
from distdual.coordinator.run_state import PassUnderway, RunState
from distdual.coordinator.schedule import (
    CACHE_GAP_SHARE,
    MAX_ASCENT,
    Cause,
    Limits,
    Pass,
    Piece,
    Progress,
    Stop,
    after_scan,
    cut_expensive,
    next_step,
)
from distdual.coordinator.slack_partition import SlackPartition, unset_limit
from distdual.data.dataset import TrainingData
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rounding import norm_bound
from distdual.kernels.row_copies import rows_nbytes
from distdual.kernels.rows import Floats
from distdual.problems.base import Problem
from distdual.report.round_log import Round, Since, Totals
from distdual.scan.cv_folds import Fold
from distdual.scan.group_members_file import Notes
from distdual.scan.scan import Scan, ShardReport
from distdual.scan.slack import Slack
from distdual.solver.ascent_plan import UNLIMITED_SWEEPS, Ascent
from distdual.solver.gap import contradiction, relative_gap
from distdual.solver.growable import Room
from distdual.solver.regularizer import Prior
from distdual.solver.solver import Solver

log = logging.getLogger(__name__)

ROUND_WORK = 10_000  # fixed cost of a round, in ascent updates of one row
NOTHING: Any = np.empty(0, dtype=np.uint64)
NO_NOTES: Mapping[int, tuple[Notes, ...]] = {}
MIN_RECENT_LIFT = 0.1  # share of the last scan's lift that recent offenders must reach to be worth a round
QUERY_STEP = 0.1  # fraction of the way from the best w to the cached optimum, with one slack for all
SINGLE_GROUP_IDLE = 8  # factor on idle passes before pruning, where a pass adds a single constraint
MAX_UNCACHED_SHARE = 0.25  # share of a gap up to which uncached loss is neglected
KNOWN_ERROR = 1e-9  # relative difference between two losses of the same constraints that rounding may cause
MAX_RECENT_ROUNDS = 10  # rounds on recent offenders between two passes


@dataclass(slots=True)
class Outcome:
    """The best certified weights, the bounds, and the costs."""

    w: Floats
    certificate: Certificate
    stop: Stop
    seconds: float
    history: list[Round]
    totals: Totals
    solver: Solver
    partition: SlackPartition
    estimate: float = np.inf  # of P(w), where inexact inference proves no `upper`; else infinity


@dataclass(slots=True)
class Trainer:
    """Carries out one run: its effects on workers, solver and state."""

    problem: Problem
    dataset: TrainingData
    executor: Executor
    config: SolverConfig
    watch: Callable[[Round], None]
    prior: Prior | None = None
    notes: Location | None = None  # folder for the members of each group's row; without it α cannot be verified
    interrupted: Callable[[], bool] = lambda: False
    between: Callable[["Trainer"], None] = lambda _: None  # called after rounds, where a checkpoint may be taken
    fold: Fold | None = None  # examples to leave out
    solver: Solver = field(init=False)
    partition: SlackPartition = field(init=False)
    state: RunState = field(init=False)
    cost: PassCost = field(init=False)
    since: Since = field(default_factory=lambda: Since(time.perf_counter()))

    def __post_init__(self) -> None:
        self.prior = self.prior or Prior(self.problem.n_weights)
        budget = self.config.cache_bytes
        choice = choice_of(self.config, self.dataset, self.problem)
        room = Room(bool(np.isfinite(budget)), self.dataset.n_examples if choice.slack.is_example else 0)
        self.solver = Solver(self.config.C, self.config.seed, self.prior, room)
        self.partition = SlackPartition(choice.slack, self.dataset.first, budget, self.notes)
        self.partition.check_budget(self.solver.cache)
        log.info("cache: at most %.0f bytes of constraints", min(budget, unset_limit()))
        self.partition.tell(choice.why)
        self.cost = declared_cost(self.config, self.dataset, self.problem)
        self.partition.tell(self.cost.why)
        self._check_offender_cache()
        self.state = RunState(self.solver.candidate())
        self.solver.combined = self._combined
        self.solver.should_stop = lambda: self.interrupted() or self.state.seconds >= self.config.max_seconds

    def _combined(self) -> tuple[int, int]:
        """The most examples that a row of the cache can combine, and the number of rows made of others."""
        slack, coalesced = self.partition.slack, self.partition.coalesced
        if slack.is_all:
            return self.dataset.n_examples, coalesced
        return slack.per_group or int(np.diff(self.dataset.first).max()), coalesced

    def _check_offender_cache(self) -> None:
        """The offender cache lives in members files, which only groups of examples have."""
        if self.config.offender_cache and (self.partition.slack.is_example or self.notes is None):
            found = f"slack {self.partition.slack}" if self.notes else "no members files"
            raise InputError(
                'solver.offender_cache needs groups of examples and output.dual = "full", this run has '
                f'{found}; set solver.slack = "all", for example'
            )

    def run(self) -> Outcome:
        stop = self._work()
        if min(self._gap(), self._inexact_gap()) > self.config.gap:
            self._certify_last()
        log.info("stop: %s", stop.reason)
        return self.outcome(stop)

    def outcome(self, stop: Stop) -> Outcome:
        """The best certified weights so far, and the costs."""
        state = self.state
        return Outcome(
            state.best_w,
            state.certificate(self.solver),
            stop,
            state.seconds,
            state.history,
            state.totals,
            self.solver,
            self.partition,
            state.best_estimate,
        )

    def change_config(self, config: SolverConfig) -> None:
        """Go on with another C: α is scaled and the cached problem solved; bounds of the old C are forgotten."""
        self.config = config
        self.partition.tell(f"C is {config.C:g}")
        self.state.forget_bounds()
        begin = time.perf_counter()
        self.solver.change_capacity(config.C)
        if len(self.solver.cache):
            scan = self.cost.per_example * self.dataset.n_examples + ROUND_WORK
            self.state.estimate = self.solver.ascend(
                Ascent(CACHE_GAP_SHARE * config.gap, UNLIMITED_SWEEPS, patience=MAX_ASCENT), spent=scan
            )
            self.solver.bound()
        self.state.best_w = self.solver.candidate()
        self.state.totals.ascent_seconds += time.perf_counter() - begin

    def change_problem(self, problem: Problem, gap: float) -> None:
        """Go on with another convex problem of the same weights, to be solved to this gap."""
        self.problem = self.executor.problem = problem
        self.config = replace(self.config, gap=gap)

    def publish_for(self, problem: Problem, w: Floats) -> None:
        """Make a problem and weights known to workers, for calls of `executor.map_shards`."""
        self.executor.problem = problem
        self.publish(w)

    def contradiction(self) -> str | None:
        """What the run has met that cannot be if problem, data and dual are right."""
        return self.state.refuted or contradiction(self.solver.lower, self.state.best_upper)

    def suspended(self) -> PassUnderway | None:
        """The pass that a resumed run has to finish first."""
        return self.state.underway

    def _work(self) -> Stop:
        """Pass over the data until there is a reason to stop."""
        if self.state.underway:
            self._carry_out(self.state.underway.plan)
        while isinstance(step := self._next(self.state.totals.passes), Pass):
            self._carry_out(step)
        return step

    @property
    def filled(self) -> int:
        """Passes that solver.max_passes does not count."""
        return 0

    def _next(self, n_passes: int, *, settled: bool = True) -> Pass | Stop:
        config = self.config
        if self.contradiction():
            return Stop(Cause.CONTRADICTION, self.contradiction() or "")
        oracle = self.cost.per_example * self.dataset.n_examples
        progress = Progress(
            n_passes,
            self.state.estimate,
            self._gap(),
            oracle / max(1, len(self.solver.cache)),
            self.state.seconds,
            self.interrupted(),
            self._inexact_gap(),
            settled,
            self.filled,
        )
        limits = Limits(
            config.schedule,
            config.gap,
            config.max_passes,
            config.max_seconds,
            config.seed,
            self.partition.slack,
            self.cost.streamed_bytes,
            self.cost.visits,
        )
        return next_step(progress, np.diff(self.dataset.first), limits)

    def _carry_out(self, plan: Pass) -> None:
        if self.state.underway is None:
            if self.config.offender_cache and self.state.totals.passes:
                self._use_recent(plan)
            self.state.underway = PassUnderway(plan, self.partition.slack)
        while self._round(self.state.underway):
            pass

    def _round(self, here: PassUnderway) -> bool:
        """Scan one round, ascend, and after the last one end the pass; return whether to go on."""
        plan = here.plan
        turn, visit = divmod(here.done, plan.visits)
        certify = plan.certify and visit == 0
        if certify and here.w is None:
            here.w, here.version = self._query(plan), self.state.version
        w = here.w if certify and here.w is not None else self._query(plan)
        self.executor.keep(here.reread())
        scans, reports, w = self._scan(plan.rounds[turn], w, here.slack)
        if visit == 0:
            here.add(reports, self.config.C)
        here.done += 1
        over = here.done == len(plan.rounds) * plan.visits
        ascent = plan.last if over else plan.between
        if certify and turn + 1 == len(plan.rounds):
            here.losses = whole_shards(here.losses)
            self._certify(here.losses, w, here.version)
            if self._gap() > self.config.gap:
                self.state.lift = self._lift(reports, w) if self.config.offender_cache else np.inf
                climbed = self.solver.updates / max(1.0, self.cost.per_example * self.state.totals.oracle_calls)
                here.plan = plan = replace(
                    plan, last=after_scan(plan.last, self._learn(reports, here, w), self.config.gap, climbed)
                )
                ascent = plan.last if over else plan.between
        done = certify and self._gap() <= self.config.gap
        if not done:
            self._improve(reports, scans, ascent, over=over)
        if plan.prune:
            self.state.totals.pruned += self.solver.prune(0)
        stop = self.solver.should_stop()  # evaluated once: `lower` must belong to the final α
        last = over or done
        if (last or stop) and not done:
            self._bound()
        if last:
            self._end_pass(here.losses, w)
        if last or stop:
            self.state.underway = None
        self._record(len(plan.rounds[turn]), certify=plan.certify)
        if not stop:
            self.between(self)
        return not (stop or last)

    def _query(self, plan: Pass) -> Floats:
        """The weights to scan with: the cached optimum or, with one slack for all, a step from the best w towards it.

        One row per pass describes P only near that w, and the cached optimum jumps from side to side (Franc and
        Sonnenburg's optimised cutting planes, without their line search).
        """
        w = self.solver.candidate()
        if (
            not plan.certify
            or not self.partition.slack.is_all
            or min(self.state.best_upper, self.state.best_estimate) == np.inf
        ):
            return w
        return self.state.best_w + QUERY_STEP * (w - self.state.best_w)

    def _learn(self, reports: list[ShardReport], here: PassUnderway, w: Floats) -> float:
        """Upper bound on the uncached share of P(w); also tells the solver its true objective there."""
        new, losses = here.new, here.losses
        value = objective(w, losses, C=self.config.C, prior=self.solver.prior)
        if len(here.plan.rounds) > 1 or self.solver.stage < self.config.C:  # another problem than the one scanned
            self.solver.trust = np.inf
        elif not any(self.solver.cache.holds_any(report.offenders.example) for report in reports):
            self.solver.learn(value - new)
        elif new < MAX_UNCACHED_SHARE * (
            value - self.solver.lower
        ):  # older constraints of these examples cover a part of it
            self.solver.learn(value)
        else:
            self.solver.trust = np.inf
        return self._share(new, losses, w)

    def _share(self, loss: float, losses: list[ShardLoss], w: Floats) -> float:
        """The loss as a share of P(w)."""
        value = objective(w, losses, C=self.config.C, prior=self.solver.prior)
        return loss / value if value > 0 else 0.0

    def _use_recent(self, plan: Pass) -> None:
        """Run rounds on recent offenders while they lift the cached problem enough compared with the oracle."""
        sizes = np.diff(self.dataset.first)
        for _ in range(MAX_RECENT_ROUNDS):
            recent = self.partition.recent(self.config.offender_cache)
            whole = tuple(Piece(s, 0, int(sizes[s])) for s in sorted(recent))
            if not whole or self.solver.should_stop():
                break
            scans, reports, w = self._scan(whole, self._query(plan), self.partition.slack, recent)
            if self._lift(reports, w) < MIN_RECENT_LIFT * self.state.lift:
                break
            self.state.totals.calls_saved += sum(piece.end for piece in whole)
            self._improve(reports, scans, plan.last)
            self._bound()
            self._record(len(whole), certify=False)

    def _lift(self, found: Sequence[ShardReport | ShardLoss], w: Floats) -> float:
        """Loss found at w over all shards, minus the cached problem's loss there."""
        return self.config.C * sum(each.loss for each in found) - self.solver.cached_loss(w)

    def _bound(self) -> None:
        """Update `lower` from a rebuilt v."""
        begin = time.perf_counter()
        self.solver.bound()
        self.state.totals.ascent_seconds += time.perf_counter() - begin

    def _end_pass(self, losses: list[ShardLoss], w: Floats) -> None:
        self.state.totals.passes += 1
        idle = idle_passes(self.config.prune, self.partition.slack)
        if idle is not None and self._gap() > self.config.gap:
            self.state.totals.pruned += self.solver.prune(idle)
        guess = self.solver.prior.penalty(w) + self.config.C * sum(s.loss for s in losses)
        self.state.estimate = relative_gap(guess, self.solver.lower)

    def _scan(
        self, pieces: tuple[Piece, ...], w: Floats, slack: Slack, recent: Mapping[int, tuple[Notes, ...]] = NO_NOTES
    ) -> tuple[list[Scan], list[ShardReport], Floats]:
        """Scan the pieces at w, cut where the oracle is expensive; scans and reports are in the order of examples.

        `recent` maps a shard to members files to search instead of calling the oracle.
        """
        version = self.publish(w)
        if not recent:
            pieces = cut_expensive(pieces, self.problem.oracle_work, slack)
        scans = [
            self._scan_of(p, version, slack, recent.get(p.shard, ()), ticket) for ticket, p in enumerate(sorted(pieces))
        ]
        begin = time.perf_counter()
        reports = sorted(self.executor.reports(scans), key=lambda report: report.ticket)
        self.state.totals.wait_seconds += time.perf_counter() - begin
        self.state.totals.rounds += 1
        for scan, report in zip(scans, reports, strict=True):
            self._count(report, scan)
        return scans, reports, w

    def publish(self, w: Floats) -> int:
        """Send weights to workers; return their version."""
        version = self.state.next_version()
        self.executor.publish(version, w)
        self.state.totals.published_bytes += w.nbytes
        return version

    def _scan_of(
        self, piece: Piece, version: int, slack: Slack, recent: tuple[Notes, ...] = (), ticket: int = 0
    ) -> Scan:
        notes = self.partition.notes(piece.shard, slack)
        known = self._known(piece)
        return Scan(piece.shard, version, known, piece.begin, piece.end, slack, notes, recent, self.fold, ticket)

    def _count(self, report: ShardReport, scan: Scan) -> None:
        check_report(report, scan, self.dataset.first, self.problem.n_weights)
        self.solver.meet(report.magnitude)
        self.state.totals.oracle_calls += report.n_examples
        self.state.totals.offenders += len(report.offenders.margin)
        self.state.totals.wire_bytes += rows_nbytes(report.offenders.rows)
        self.state.totals.bytes_read += report.bytes_read
        self.state.totals.gets += report.gets
        self.state.totals.read_seconds += report.read_seconds
        self.state.totals.scan_seconds += report.compute_seconds
        self.since.add(report, self.state.version - 1 - report.version)

    def _known(self, piece: Piece) -> Any:
        if self.partition.slack.is_all:  # each report is one part of a row: all are needed
            return NOTHING
        first = int(self.dataset.first[piece.shard])
        return self.solver.cache.known(first + piece.begin, first + piece.end)

    def _improve(self, reports: list[ShardReport], scans: list[Scan], plan: Ascent, *, over: bool = True) -> None:
        begin = time.perf_counter()
        cold = not len(self.solver.cache)
        slots = self.partition.insert(self.solver, reports, scans)
        if cold and plan.slope:
            self.solver.ease()
        self.state.totals.kept += len(slots)
        if plan.revisits:
            self.solver.reprocess(slots, plan)
            if plan.revisits * len(slots) < self.solver.cache.n_groups:  # few new constraints: sweep the old ones
                self.solver.ascend(Ascent(0.0, max_sweeps=1))
        else:
            gained = self.solver.process(slots)
            oracle = self.cost.per_example * sum(report.n_examples for report in reports)
            spent = len(slots) + oracle + ROUND_WORK
            if over:
                self.solver.harden(self.config.gap, fully=bool(self.cost.streamed_bytes))
            self.solver.ascend(plan, gained, spent)
        self.state.totals.ascent_seconds += time.perf_counter() - begin

    def _certify(self, losses: list[ShardLoss], w: Floats, version: int) -> None:
        """Certify an upper bound for these weights; the best weights seen become the model."""
        if not all(s.exact for s in losses):
            self.state.offer_estimate(objective(w, losses, C=self.config.C, prior=self.solver.prior), w)
            return
        upper = upper_bound(
            w, version, losses, C=self.config.C, n_shards=self.dataset.n_shards, prior=self.solver.prior
        )
        self.state.refuted = self.state.refuted or self._missed(losses, w)
        self.state.offer_upper(upper, version, w)

    def _missed(self, losses: list[ShardLoss], w: Floats) -> str | None:
        """Say so if cached constraints are violated more than what the oracle returned, which is then not exact."""
        known = self.solver.losses_between(w, self.dataset.first, together=self.partition.slack.is_all)
        if self.partition.slack.is_all:
            losses = [ShardLoss(0, 0, sum(s.loss for s in losses), True, *np.sum([s.error for s in losses], axis=0))]
        norm = norm_bound(w)
        for s in losses:
            found, allowed = self.config.C * s.loss, self.config.C * 2.0 * s.error.at(norm)
            if known[s.shard] > found + allowed + KNOWN_ERROR * abs(found):
                return (
                    f"the oracle is not exact: constraints of shard {s.shard} that it returned before are violated by "
                    f"{known[s.shard]:.10g}, what it returned now by {found:.10g}"
                )
        return None

    def _certify_last(self) -> None:
        """Scan once more at the last w, or at the average if configured, without ascent."""
        whole = tuple(Piece(s, 0, int(n)) for s, n in enumerate(np.diff(self.dataset.first)))
        w = self.solver.candidate(averaged=self.config.average)
        scans, reports, w = self._scan(whole, w, self.partition.slack)
        self._certify(whole_shards(shard_losses(reports)), w, scans[0].version)
        self._record(self.dataset.n_shards, certify=True)

    def _gap(self) -> float:
        return self.state.gap(self.solver.lower)

    def _inexact_gap(self) -> float:
        return self.state.inexact_gap(self.solver.lower)

    def note(self, event: str) -> None:
        """Record an event between two passes in the run log."""
        self.partition.events.append(event)
        self._record(0, certify=False)

    def _faults(self) -> list[str]:
        """Faults on the cluster since the last line of the run log, all of them recovered."""
        events, self.executor.events = self.executor.events, []
        return events

    def _record(self, n_shards: int, *, certify: bool) -> None:
        self.state.totals.coalesced = self.partition.coalesced
        now, since = time.perf_counter(), self.since
        self.state.totals.idle_seconds += max(0.0, self.executor.slots * (now - since.seconds) - since.busy)
        self.since = Since(now)
        line = Round(
            self.state.seconds,
            self.state.version,
            n_shards,
            certify,
            self.solver.lower,
            self.state.best_upper,
            self._gap(),
            self.state.estimate,
            len(self.solver.cache),
            self.solver.cache.nbytes,
            self.solver.n_support,
            self.state.totals.as_dict(),
            str(self.partition.slack),
            [*self.partition.take_events(), *self._faults()],
            since.staleness,
            since.workers,
        )
        self.state.history.append(line)
        log.info(
            "round=%d version=%d lower=%.6g upper=%.6g gap=%.2e rows=%d scanned=%d/%d solve=%.1fs scan=%.1fs",
            self.state.totals.rounds,
            line.version,
            line.lower,
            line.upper,
            line.gap,
            line.cache_rows,
            n_shards,
            self.dataset.n_shards,
            self.state.totals.ascent_seconds,
            self.state.totals.wait_seconds,
        )
        self.watch(line)


def choice_of(config: SolverConfig, dataset: TrainingData, problem: Problem) -> Choice:
    """The initial slack partition of a run."""
    sizes = np.diff(dataset.first)
    return choose(
        config.slack, sizes, dataset.nbytes, problem.n_weights, problem.oracle_work, float(config.cache_bytes)
    )


def idle_passes(policy: str, slack: Slack) -> int | None:
    """Passes with α = 0 after which a constraint is dropped; None for never."""
    if policy == "never":
        return None
    patience = SINGLE_GROUP_IDLE if slack.is_all else 1
    return 0 if policy == "aggressive" else patience * int(policy.partition(":")[2])
