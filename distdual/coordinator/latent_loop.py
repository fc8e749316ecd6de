"""The latent loop: impute latent values and solve for weights in turn; no turn raises the objective.

    impute   h_i ← the latent value with the smallest slack at w;  P_H(w) is then P(w), the non-convex objective
    solve    w ← a certified minimiser of the convex P_H, never worse than the w before

Convex problems are solved loosely while the objective falls fast, and tightly at the end. Each starts from the one
before: its w gives the first certified upper bound, and its α moves to the new rows of examples whose latent values
changed. Constraints of all other examples stay.
"""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from distdual.coordinator.impute import Imputed, first_values, impute, judge
from distdual.coordinator.outcome import Outcome
from distdual.coordinator.schedule import CACHE_GAP_SHARE, INTERRUPTED, Stop, out_of_time
from distdual.coordinator.trainer import Trainer
from distdual.errors import InputError
from distdual.kernels.rows import Floats
from distdual.problems.latent.base import Completed, LatentProblem, StartWeights
from distdual.report.round_log import Totals
from distdual.solver.ascent_plan import UNLIMITED_SWEEPS, Ascent
from distdual.solver.gap import relative_gap

log = logging.getLogger(__name__)

FIRST_GAP = 0.01  # gap of the first convex problem; relative decrease below which all are solved tightly
LOOSE_GAP = 0.1  # largest gap of later convex problems; each at least halves its initial gap
RISE_ALLOWED = 1e-6  # relative rise allowed for rounding: rows of user problems are float32


@dataclass(frozen=True, slots=True)
class Turn:
    """One convex problem of the trace."""

    restart: int
    objective: float  # P(w) at its end, after imputation
    upper: float
    lower: float
    target: float  # the requested gap
    changed: int  # examples whose latent values changed in the imputation after it
    oracle_calls: int
    updates: int


class Ended(NamedTuple):
    """A finished restart."""

    trainer: Trainer
    completed: Completed  # its last convex problem
    trace: list[Turn]
    stop: Stop

    @property
    def objective(self) -> float:
        return self.trace[-1].objective

    def outcome(self, totals: Totals, seconds: float) -> Outcome:
        """The outcome with the costs of all restarts."""
        return replace(self.trainer.outcome(self.stop), totals=totals, seconds=seconds)


@dataclass(slots=True)
class LatentOutcome:
    outcome: Outcome
    completed: Completed  # the last convex problem, which the certificate describes
    trace: list[Turn]
    restarts: list[float]  # the final objective of each

    def summary(self) -> dict[str, Any]:
        """The entry in certificate.json."""
        return {
            "objective": self.trace[-1].objective,
            "restarts": self.restarts,
            "trace": [asdict(turn) for turn in self.trace],
        }


class RisenError(AssertionError):
    """The objective has risen, which it cannot unless a state that a run resumed from is wrong."""


@dataclass(slots=True)
class LatentRun:
    """The state of a latent run: turns of imputing and solving, with restarts from other latent values."""

    problem: LatentProblem
    new_trainer: Callable[[], Trainer]
    start: StartWeights | None = None  # for the first restart
    trainer: Trainer = field(init=False)  # of the current restart
    target: float = field(init=False)  # the gap of the last convex problem
    restart: int = 0
    completed: Completed | None = None  # the current convex problem
    begun_at: float = np.inf  # P_H at the start weights
    gap: float = 1.0  # of the current convex problem, unless it is tight
    tight: bool = False
    trace: list[Turn] = field(default_factory=list)  # of the current restart
    calls: int = 0  # of the oracle, before this turn
    updates: int = 0
    reached: list[float] = field(default_factory=list)  # by each finished restart
    spent: list[Totals] = field(default_factory=list)
    best: Ended | None = None

    def __post_init__(self) -> None:
        self.trainer = self.new_trainer()
        self.target = self.trainer.config.gap

    def run(self) -> LatentOutcome:
        """The best of all restarts."""
        while True:
            ended = self._take_turns()
            self.reached.append(ended.objective)
            self.spent.append(self.trainer.state.totals)
            if self.best is None or ended.objective < self.best.objective:
                self.best = ended
            if self.restart + 1 == self.problem.restarts or self.trainer.solver.should_stop():
                break
            self._restart()
        best, seconds = self.best, self.trainer.state.seconds
        return LatentOutcome(best.outcome(total_of(self.spent), seconds), best.completed, best.trace, self.reached)

    def _restart(self) -> None:
        """Restart from other latent values; the clock and the run log continue."""
        before, self.trainer = self.trainer, self.new_trainer()
        self.trainer.state.continue_log(before.state)
        self.restart += 1
        self.completed, self.begun_at, self.trace = None, np.inf, []
        self.tight, self.calls, self.updates = False, 0, 0

    def _take_turns(self) -> Ended:
        """Alternate until the objective stops falling or the budget is spent."""
        now = self._first_problem() if self.completed is None else self.completed
        while True:
            self.completed = now
            self.tight = self.tight or len(self.trace) + 1 == self.problem.rounds
            outcome = solve_convex_problem(self.trainer, now, self.target if self.tight else self.gap)
            new = impute(self.trainer, now, outcome.w)
            settled = self._close_turn(outcome, new)
            spent = outcome.certificate.gap > self.trainer.config.gap or self.trainer.solver.should_stop()
            if spent or (self.tight and settled) or len(self.trace) == self.problem.rounds:
                return Ended(self.trainer, now, self.trace, why_ended(outcome, self.trainer, self.target))
            self._open_turn(new, outcome.w, settled=settled)
            now = new.completed

    def _first_problem(self) -> Completed:
        """Initial latent values; the weights of a warm start are certified first."""
        trainer, start = self.trainer, self.start if self.restart == 0 else None
        self.gap = max(FIRST_GAP, self.target)
        guesses = 0 if start and start.imputes else self.problem.guesses(self.restart)
        first = first_values(trainer, self.problem, trainer.config.seed + self.restart, guesses)
        if start is None:
            return first
        w = trainer.solver.prior.feasible(start.w)
        if start.imputes:
            first, self.begun_at, _ = impute(trainer, first, w)
        else:
            self.begun_at = judge(trainer, first, w)
        trainer.state.start_problem(w, self.begun_at)
        return first

    def _close_turn(self, outcome: Outcome, new: Imputed) -> bool:
        """Add a line to the trace; return whether the objective has stopped falling."""
        trainer, proven = self.trainer, outcome.certificate
        previous = self.trace[-1].objective if self.trace else self.begun_at
        assert self.completed is not None
        turn = Turn(
            self.restart,
            new.objective,
            proven.upper,
            proven.lower,
            trainer.config.gap,
            int(self.completed.changes(new.completed.values).sum()),
            trainer.state.totals.oracle_calls - self.calls,
            trainer.solver.updates - self.updates,
        )
        check_fall(previous, turn)
        self.trace.append(turn)
        tell(trainer, turn, len(self.trace))
        enough = self.target if self.tight else max(FIRST_GAP, self.target)
        return not turn.changed or previous - turn.objective <= enough * turn.objective

    def _open_turn(self, new: Imputed, w: Floats, *, settled: bool) -> None:
        """Start the next convex problem from the last, and choose its gap."""
        trainer = self.trainer
        assert self.completed is not None
        self.tight = self.tight or settled
        self.calls, self.updates = trainer.state.totals.oracle_calls, trainer.solver.updates
        loose = max(LOOSE_GAP, self.target)
        known = go_on(trainer, self.completed, new, w, CACHE_GAP_SHARE * (self.target if self.tight else loose))
        self.gap = max(self.target, min(loose, 0.5 * known))  # a larger gap could end the turn at once


def train_latent(
    problem: LatentProblem, new_trainer: Callable[[], Trainer], start: StartWeights | None = None
) -> LatentOutcome:
    """Train a latent problem; `new_trainer` makes a fresh trainer for each restart."""
    return LatentRun(problem, new_trainer, start).run()


def solve_convex_problem(trainer: Trainer, completed: Completed, gap: float) -> Outcome:
    trainer.change_problem(completed, gap)
    return trainer.run()


def go_on(trainer: Trainer, now: Completed, new: Imputed, w: Floats, tolerance: float) -> float:
    """Give the solver a feasible α of the next convex problem, and P_H(w) as upper bound; return the gap."""
    changed = np.flatnonzero(now.changes(new.completed.values))
    moved = [each for each in new.looks if len(each.alpha)]
    stay = np.flatnonzero(~np.isin(trainer.solver.cache.example.view, changed))
    alpha = np.concatenate([np.empty(0), *(each.alpha for each in moved)])
    trainer.solver.move(stay, [each.constraints for each in moved], alpha)
    trainer.state.start_problem(w, new.objective)
    if len(changed):  # solve the cached problem before the first scan
        trainer.solver.ascend(Ascent(tolerance, UNLIMITED_SWEEPS))
        trainer.solver.bound()
    return relative_gap(new.objective, trainer.solver.lower)


def why_ended(outcome: Outcome, trainer: Trainer, target: float) -> Stop:
    """The reason for the end; a loose last problem means that the run was cut short."""
    if not target < outcome.certificate.gap <= trainer.config.gap:
        return outcome.stop
    return INTERRUPTED if trainer.interrupted() else out_of_time(trainer.config.max_seconds)


def check_fall(previous: float, turn: Turn) -> None:
    """Check that the objective does not rise; a failure would mean a wrong certificate."""
    if not turn.objective <= turn.upper * (1 + RISE_ALLOWED) or not turn.upper <= previous * (1 + RISE_ALLOWED):
        raise RisenError(f"the objective must not rise: {previous}, then {turn.upper}, imputed {turn.objective}")


def tell(trainer: Trainer, turn: Turn, number: int) -> None:
    """Write a line to the log and the run log."""
    event = (
        f"latent restart={turn.restart} turn={number} objective={turn.objective:.10g} upper={turn.upper:.10g} "
        f"gap={turn.target:g} changed={turn.changed} oracle_calls={turn.oracle_calls} updates={turn.updates}"
    )
    log.info("%s", event)
    trainer.note(event)


def total_of(parts: list[Totals]) -> Totals:
    """The total cost of all restarts."""
    return Totals(**{f.name: sum(getattr(part, f.name) for part in parts) for f in fields(Totals)})


def check_possible(problem: LatentProblem, slack: str, cache_bytes: float) -> None:
    """Refuse shared slacks: rows summed over examples cannot follow a changed latent value."""
    if not problem.exact:
        raise InputError(f"{problem.kind}: a latent problem needs exact inference, otherwise P(w) cannot be compared")
    if slack not in ("auto", "example") or np.isfinite(cache_bytes):
        raise InputError('a latent problem needs solver.slack = "example" and no solver.cache_bytes')
