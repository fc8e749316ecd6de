"""The training loop: scan shards, insert offenders, ascend, certify (Ramanan, Algorithm 2, over shards).

`schedule` decides; this module carries out.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from distdual.certificate.bias_search import at_best_bias, kinks_of
from distdual.certificate.bounds import ShardLoss, objective, relaxed_part, shard_losses, upper_bound, whole_shards
from distdual.cluster.base import Executor
from distdual.config import SolverConfig
from distdual.coordinator.ascender import Ascender
from distdual.coordinator.auto_slack import check_offender_cache, choice_of, pool_of
from distdual.coordinator.outcome import Outcome
from distdual.coordinator.pass_cost import PassCost, declared_cost
from distdual.coordinator.pass_underway import NextScan, PassUnderway
from distdual.coordinator.recorder import Recorder
from distdual.coordinator.refutation import refutation
from distdual.coordinator.run_state import RunState
from distdual.coordinator.scanner import OutOfTimeError, Scanner
from distdual.coordinator.schedule import (
    INTERRUPTED,
    Cause,
    Limits,
    Pass,
    Piece,
    Progress,
    Stop,
    after_scan,
    idle_passes,
    max_rounds,
    next_step,
    out_of_time,
)
from distdual.coordinator.slack_partition import SlackPartition, unset_limit
from distdual.data.storage.location import Location
from distdual.data.training_data import TrainingData
from distdual.kernels.rows import Floats
from distdual.problems.base import BiasKinks, Problem
from distdual.report.round_log import Round
from distdual.scan.cv_folds import Fold
from distdual.scan.scan import ShardReport, is_built_in
from distdual.solver.gap import contradiction, relative_gap
from distdual.solver.growable import Room
from distdual.solver.regularizer import Prior
from distdual.solver.solver import Solver

log = logging.getLogger(__name__)

ONE_THREAD = (
    "the oracle is Python code, which a second thread does not make faster: scans take one process; "
    "cluster.local.workers = N gives them N"
)

MIN_RECENT_LIFT = 0.1  # share of the last scan's lift that recent offenders must reach to be worth a round
QUERY_STEP = 0.1  # fraction of the way from the best w to the cached optimum, with one slack for all
MAX_RECENT_ROUNDS = 10  # rounds on recent offenders between two passes


@dataclass(slots=True)
class Trainer:
    """Carries out one run: its effects on workers, solver and state."""

    problem: Problem
    dataset: TrainingData
    executor: Executor
    config: SolverConfig
    watch: Callable[[Round], None] = lambda _: None  # called with each line of the run log
    prior: Prior | None = None
    notes: Location | None = None  # folder for the members of each group's row; without it α cannot be verified
    interrupted: Callable[[], bool] = lambda: False
    between: Callable[["Trainer"], None] = lambda _: None  # called after rounds, where a checkpoint may be taken
    fold: Fold | None = None  # examples to leave out
    validation: Callable[["Trainer"], str | None] = lambda _: None  # why scores on other data ask to stop
    solver: Solver = field(init=False)
    partition: SlackPartition = field(init=False)
    state: RunState = field(init=False)
    cost: PassCost = field(init=False)
    scanner: Scanner = field(init=False)
    ascender: Ascender = field(init=False)
    recorder: Recorder = field(init=False)

    def __post_init__(self) -> None:
        self.prior = self.prior or Prior(self.problem.n_weights, free=self.problem.free_bias)
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
        if self.problem.holds_gil and self.executor.slots == 1:
            self.partition.tell(ONE_THREAD)
        check_offender_cache(self.config, choice.slack, members_files=self.notes is not None)
        self.state = RunState(self.solver.candidate())
        self.scanner = Scanner(self.executor, self.dataset.first, self.solver, self.partition, self.state, self.fold)
        self.scanner.pool = pool_of(self.config, self.problem, choice.slack)
        self.ascender = Ascender(self.solver, self.partition, self.state, self.cost)
        self.recorder = Recorder(self.state, self.solver, self.partition, self.scanner, self.watch)
        self.solver.combined = self._combined
        self.solver.should_stop = lambda: self.interrupted() or self.state.seconds >= self.config.max_seconds

    def _combined(self) -> tuple[int, int]:
        """The most examples that a row of the cache can combine, and the number of rows made of others."""
        slack, coalesced = self.partition.slack, self.partition.coalesced
        if slack.is_all:
            return self.dataset.n_examples, coalesced
        return slack.per_group or int(np.diff(self.dataset.first).max()), coalesced

    def run(self) -> Outcome:
        self.scanner.hurried = self.problem.holds_gil
        try:
            stop = self._work()
        except OutOfTimeError:
            self.state.underway = None
            self.ascender.bound()
            stop = INTERRUPTED if self.interrupted() else out_of_time(self.config.max_seconds)
        self.scanner.hurried = False
        late = self.problem.holds_gil and stop.cause == Cause.MAX_SECONDS and self.state.best_version >= 0
        if min(self._gap(), self._inexact_gap()) > self.config.gap and stop.cause != Cause.RELAXED and not late:
            self._certify_last()
        stop = self._refuted() or stop
        log.info("stop: %s", stop.reason)
        return self.outcome(stop)

    def _refuted(self) -> Stop | None:
        """Compare the scan behind the best upper bound with the cached constraints, once for all scans of the run."""
        if self.state.best_scan is not None:
            self._compare_with_cache(*self.state.best_scan)
        return Stop(Cause.CONTRADICTION, self.state.refuted) if self.state.refuted else None

    def outcome(self, stop: Stop) -> Outcome:
        """The best certified weights so far, and the costs."""
        self.solver.settle()
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
            state.best_relaxed,
            state.best_estimate,
        )

    def change_config(self, config: SolverConfig) -> None:
        """Go on with another C: α is scaled and the cached problem solved; bounds of the old C are forgotten."""
        self.config = config
        self.partition.tell(f"C is {config.C:g}")
        self.state.forget_bounds()
        self.ascender.change_capacity(config.C, config.gap, self.dataset.n_examples)
        self.state.best_w = self.solver.candidate()

    def change_problem(self, problem: Problem, gap: float) -> None:
        """Go on with another convex problem of the same weights, to be solved to this gap."""
        self.problem = self.executor.problem = problem
        self.config = replace(self.config, gap=gap)

    def publish_for(self, problem: Problem, w: Floats) -> None:
        """Make a problem and weights known to workers, for calls of `executor.map_shards`."""
        self.executor.problem = problem
        self.scanner.publish(w)

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
        sizes = np.diff(self.dataset.first)
        while isinstance(step := next_step(self._progress(), sizes, self._limits()), Pass):
            self._carry_out(step)
        return step

    def _progress(self) -> Progress:
        oracle = self.cost.per_example * self.dataset.n_examples
        return Progress(
            self.state.totals.passes,
            self.state.estimate,
            self._gap(),
            oracle / max(1, len(self.solver.cache)),
            self.state.seconds,
            self.interrupted(),
            self._inexact_gap(),
            n_filled=self.state.totals.filled,
            contradiction=self.contradiction(),
            closable=self.state.closable_gap(self.solver.lower),
            validation=self.validation(self),
        )

    def _limits(self) -> Limits:
        config = self.config
        return Limits(
            config.schedule,
            config.gap,
            config.max_passes,
            config.max_seconds,
            config.seed,
            self.partition.slack,
            self.cost.streamed_bytes,
            self.cost.visits,
            max_rounds(self.problem.oracle_work),
            config.process,
        )

    def _carry_out(self, plan: Pass) -> None:
        if self.state.underway is None:
            if self.config.offender_cache and self.state.totals.passes:
                self._use_recent(plan)
            self.state.underway = PassUnderway(plan, self.partition.slack)
        while self._round(self.state.underway):
            pass

    def _round(self, here: PassUnderway) -> bool:
        """Scan one round, ascend, and after the last one end the pass; return whether to go on."""
        turn = here.next_turn()
        w = self._weights(here, turn)
        self.executor.keep(here.reread())
        search = turn.certify and len(here.plan.rounds) == 1
        scans, reports = self.scanner.scan(turn.pieces, w, here.slack, certify=turn.certify, search=search)
        here.done += 1
        if turn.counts:
            here.add(reports, self.config.C)
        if turn.closes:
            self._close(here, reports, w)
        reached = turn.certify and self._gap() <= self.config.gap
        if not reached:
            self.ascender.improve(reports, scans, here.ascent(turn), self.config.gap, over=turn.over)
        if here.plan.prune:
            self.ascender.prune(0)
        stop = self.solver.should_stop()  # evaluated once: `lower` must belong to the final α
        last = turn.over or reached
        if (last or stop) and not reached:
            self.ascender.bound()
        if last:
            self._end_pass(here.losses, w)
        if last or stop:
            self.state.underway = None
        self.recorder.record(len(turn.pieces), certify=here.plan.certify)
        if not stop:
            self.between(self)
        return not (stop or last)

    def _weights(self, here: PassUnderway, turn: NextScan) -> Floats:
        """The weights of a scan: the same for all that certify."""
        if not turn.certify:
            return self._query(here.plan)
        if here.w is None:
            here.w, here.version = self._query(here.plan), self.state.version
        return here.w

    def _close(self, here: PassUnderway, reports: list[ShardReport], w: Floats) -> None:
        """Certify weights at which all examples have been scanned, and plan the ascent that follows."""
        here.losses = whole_shards(here.losses)
        self._certify(here.losses, w, here.version, kinks_of(reports))
        if self._gap() <= self.config.gap:
            return
        self.state.lift = self.ascender.lift(reports, w, self.config.C) if self.config.offender_cache else np.inf
        climbed = self.solver.updates / max(1.0, self.cost.per_example * self.state.totals.oracle_calls)
        last = after_scan(here.plan.last, self._learn(reports, here, w), self.config.gap, climbed)
        here.plan = replace(here.plan, last=last)

    def _query(self, plan: Pass) -> Floats:
        """The weights to scan with: the cached optimum or, with one slack for all, a step from the best w towards it.

        One row per pass describes P only near that w, and the cached optimum jumps from side to side (Franc and
        Sonnenburg's optimised cutting planes, without their line search).
        """
        w = self.solver.candidate(averaged=self.config.average)
        if (
            not plan.certify
            or not self.partition.slack.is_all
            or min(self.state.best_upper, self.state.best_estimate) == np.inf
        ):
            return w
        return self.state.best_w + QUERY_STEP * (w - self.state.best_w)

    def _learn(self, reports: list[ShardReport], here: PassUnderway, w: Floats) -> float:
        """Upper bound on the uncached share of P(w); also tells the solver its true objective there."""
        value = objective(w, here.losses, C=self.config.C, prior=self.solver.prior)
        whole = len(here.plan.rounds) == 1 and self.solver.stage == self.config.C
        self.ascender.learn(value, here.new, reports, whole=whole)
        return self._share(here.new, here.losses, w)

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
            w = self._query(plan)
            scans, reports = self.scanner.scan(whole, w, self.partition.slack, recent)
            if self.ascender.lift(reports, w, self.config.C) < MIN_RECENT_LIFT * self.state.lift:
                break
            self.state.totals.calls_saved += sum(piece.end for piece in whole)
            self.ascender.improve(reports, scans, plan.last, self.config.gap)
            self.ascender.bound()
            self.recorder.record(len(whole), certify=False)

    def _end_pass(self, losses: list[ShardLoss], w: Floats) -> None:
        self.state.totals.passes += 1
        if self._gap() > self.config.gap:
            self.ascender.prune(idle_passes(self.config.prune, self.partition.slack))
        guess = objective(w, losses, C=self.config.C, prior=self.solver.prior)
        self.state.estimate = relative_gap(guess, self.solver.lower)

    def _certify(self, losses: list[ShardLoss], w: Floats, version: int, kinks: Sequence[BiasKinks] = ()) -> None:
        """Certify an upper bound for these weights; the best weights seen become the model.

        With `kinks` of all examples, a free bias is the best for the other weights.
        """
        if not all(s.exact for s in losses):
            self.state.offer_estimate(objective(w, losses, C=self.config.C, prior=self.solver.prior), w)
            return
        scanned = w, losses
        if not is_built_in(self.problem):  # a pass over the cache is cheap beside its oracle
            self._compare_with_cache(*scanned)
        w, losses = at_best_bias(w, losses, kinks, self.solver.prior.free) if kinks else (w, losses)
        upper = upper_bound(
            w, version, losses, C=self.config.C, n_shards=self.dataset.n_shards, prior=self.solver.prior
        )
        if self.state.offer_upper(upper, version, w, relaxed_part(losses, C=self.config.C)):
            self.state.best_scan = scanned
        self.solver.meet_upper(self.state.best_upper)

    def _compare_with_cache(self, w: Floats, losses: list[ShardLoss]) -> None:
        """Look for cached constraints that are violated more than what an exact scan at w returned."""
        together = self.partition.slack.is_all
        known = self.solver.losses_between(w, self.dataset.first, together=together)
        self.state.refuted = self.state.refuted or refutation(w, losses, known, self.config.C, together=together)

    def _certify_last(self) -> None:
        """Scan once more at the last w, or at the average if configured, without ascent."""
        whole = tuple(Piece(s, 0, int(n)) for s, n in enumerate(np.diff(self.dataset.first)))
        w = self.solver.candidate(averaged=self.config.average)
        scans, reports = self.scanner.scan(whole, w, self.partition.slack, certify=True, search=True)
        self._certify(whole_shards(shard_losses(reports)), w, scans[0].version, kinks_of(reports))
        self.recorder.record(self.dataset.n_shards, certify=True)

    def _gap(self) -> float:
        return self.state.gap(self.solver.lower)

    def _inexact_gap(self) -> float:
        return self.state.inexact_gap(self.solver.lower)

    def note(self, event: str) -> None:
        """Record an event between two passes in the run log."""
        self.recorder.note(event)
