"""How are latent values and weights learnt together? By turns, and no turn raises the objective.

    impute   h_i ← the latent value with the smallest slack at w;  P_H(w) is then P(w), the non-convex objective
    solve    w ← a certified minimiser of the convex P_H, never worse than the w before

The convex problems are solved loosely while the objective still falls fast, and tightly at the end. Each begins where
the one before ended: with its w as the first certified upper bound, and with its α, which moves to the new rows of
those examples whose latent values have changed. Constraints of all others stay what they were.
"""

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from distdual.certificate import ShardLoss, upper_bound
from distdual.coordinator.schedule import MANY, SLACK, Ascent
from distdual.coordinator.solver import relative_gap
from distdual.coordinator.train import Outcome, Totals, Trainer
from distdual.errors import InputError
from distdual.problems.base import Constraints, Keys
from distdual.problems.completed import Completed, LatentProblem
from distdual.rows import Floats, Int32s, Ints, product
from distdual.workers.reading import Openable

log = logging.getLogger(__name__)

FIRST = 0.01  # gap of the first convex problem, and fall of the objective, relatively, from which on all are tight
LOOSE = 0.1  # largest gap of those between; each at least halves the gap that it begins with
ROUNDING = 1e-6  # relative rise of the objective that is none: rows of user's own problems are rounded to float32


class Support(NamedTuple):
    """The support constraints of one shard."""

    example: Ints
    keys: Keys
    alpha: Floats


class Look(NamedTuple):
    """What a worker finds in one shard at one w."""

    values: Int32s
    loss: float  # Σ cost_i ξ_i(w) of the shard with these latent values
    exact: bool
    constraints: Constraints  # what became of the support constraints whose latent values are others now
    alpha: Floats


class Imputed(NamedTuple):
    """What the next convex problem is, before anything is changed."""

    values: Int32s
    objective: float  # P_H(w) with these
    looks: list[Look]


@dataclass(frozen=True, slots=True)
class Turn:
    """One convex problem: a line of the trace."""

    restart: int
    objective: float  # P(w) at its end, latent values imputed anew
    upper: float
    lower: float
    target: float  # the gap that was asked for
    changed: int  # latent values that the imputation after it changed
    oracle_calls: int
    updates: int


@dataclass(slots=True)
class LatentOutcome:
    outcome: Outcome
    completed: Completed  # the last convex problem, which the certificate is of
    trace: list[Turn]
    restarts: list[float] = field(default_factory=list)  # the objective that each has reached

    def summary(self) -> dict[str, Any]:
        """What certificate.json tells of it."""
        return {
            "objective": self.trace[-1].objective,
            "restarts": self.restarts,
            "trace": [asdict(turn) for turn in self.trace],
        }


def train_latent(problem: LatentProblem, new_trainer: Callable[[], Trainer], start: Floats | None) -> LatentOutcome:
    """The best of all restarts; `start` are weights to impute the first latent values with."""
    begin, totals, reached = None, list[Totals](), list[float]()
    best: LatentOutcome | None = None
    for restart in range(problem.restarts):
        trainer = new_trainer()
        begin = trainer.begin if begin is None else begin
        trainer.begin = begin
        if best is not None and trainer.solver.should_stop():
            break
        found = run_once(problem, trainer, start if restart == 0 else None, restart)
        totals.append(found.outcome.totals)
        reached.append(found.trace[-1].objective)
        if best is None or found.trace[-1].objective < best.trace[-1].objective:
            best = found
    assert best is not None
    best.outcome.totals, best.restarts = added(totals), reached
    return best


def run_once(problem: LatentProblem, trainer: Trainer, start: Floats | None, restart: int) -> LatentOutcome:
    """Turns of imputing and solving until the objective stops falling or the budget is spent."""
    target, trace = trainer.config.gap, list[Turn]()
    values = first_values(problem, trainer, start, restart)
    previous, gap, calls, updates = np.inf, max(FIRST, target), 0, 0
    tight = False  # from when on the target is the gap
    while True:
        tight = tight or len(trace) + 1 == problem.rounds
        outcome = solve(trainer, Completed(problem, values), target if tight else gap)
        new = impute(problem, trainer, values, outcome.w)
        turn = Turn(
            restart,
            new.objective,
            outcome.certificate.upper,
            outcome.certificate.lower,
            trainer.config.gap,
            int((new.values != values).sum()),
            trainer.totals.oracle_calls - calls,
            trainer.solver.updates - updates,
        )
        check_fall(previous, turn)
        trace.append(turn)
        tell(trainer, turn, len(trace))
        enough = target if tight else max(FIRST, target)
        settled = not turn.changed or previous - turn.objective <= enough * turn.objective
        spent = outcome.certificate.gap > trainer.config.gap or trainer.solver.should_stop()
        if spent or (tight and settled) or len(trace) == problem.rounds:
            trainer.executor.problem = Completed(problem, values)
            return LatentOutcome(outcome, Completed(problem, values), trace)
        tight, gap = tight or settled, max(LOOSE, target)
        calls, updates = trainer.totals.oracle_calls, trainer.solver.updates
        known = go_on(trainer, values, new, outcome.w, SLACK * (target if tight else gap))
        gap = max(target, min(gap, 0.5 * known))  # else the turn could end before it has begun
        previous, values = turn.objective, new.values


def solve(trainer: Trainer, completed: Completed, gap: float) -> Outcome:
    trainer.problem = trainer.executor.problem = completed
    trainer.config = replace(trainer.config, gap=gap)
    return trainer.run()


def impute(problem: LatentProblem, trainer: Trainer, values: Int32s, w: Floats) -> Imputed:
    """The best latent values at w, in one pass; in a second one where the problem does not settle for all of them."""
    trainer.publish(w)
    support = support_of(trainer)
    looks = look(trainer, support, [None] * len(support))
    found = np.concatenate([each.values for each in looks])
    settled = problem.settle(values, found)
    if (settled != found).any():
        looks = look(trainer, support, np.split(settled, trainer.dataset.first[1:-1]))
    losses = [ShardLoss(s, 0, each.loss, each.exact) for s, each in enumerate(looks)]
    objective = upper_bound(
        w, 0, losses, C=trainer.config.C, n_shards=trainer.dataset.n_shards, prior=trainer.solver.prior
    )
    return Imputed(settled, objective, looks)


def support_of(trainer: Trainer) -> list[Support]:
    """The support constraints, shard by shard."""
    cache = trainer.solver.cache
    slots = cache.members[(cache.alpha.view[cache.members] > 0) & (cache.example.view[cache.members] >= 0)]
    bounds = np.searchsorted(cache.example.view[slots], trainer.dataset.first)
    parts = [slots[begin:end] for begin, end in itertools.pairwise(bounds)]
    return [Support(cache.example.view[s], cache.keys().take(s), cache.alpha.view[s]) for s in parts]


def look(trainer: Trainer, support: list[Support], values: Sequence[Int32s | None]) -> list[Look]:
    trainer.totals.oracle_calls += trainer.dataset.n_examples
    return list(trainer.executor.map_shards(look_at_shard, range(trainer.dataset.n_shards), support, values))


def look_at_shard(
    source: Openable, problem: Completed, w: Floats, shard: int, support: Support, values: Int32s | None
) -> Look:
    """Runs on a worker: new latent values unless they are given, P_H(w) with them, and the rows that α moves to."""
    found = source.open().read(shard).shard
    new = problem.problem.impute(w, found) if values is None else values
    then = Completed(problem.problem, new, found.first)
    loss = product(then.costs(found), then.offenders(w, found).slack)
    local = support.example - found.first
    moves = np.flatnonzero(new[local] != problem.values_of(found)[local])
    keys = then.rebase(found, local[moves], support.keys.take(moves))
    return Look(new, loss, then.exact, then.constraints(found, local[moves], keys), support.alpha[moves])


def go_on(trainer: Trainer, values: Int32s, new: Imputed, w: Floats, tolerance: float) -> float:
    """Hand the next convex problem what is known of it: a feasible α, and P_H(w) as an upper bound. Returns the gap."""
    changed = np.flatnonzero(new.values != values)
    moved = [each for each in new.looks if len(each.alpha)]
    stay = np.flatnonzero(~np.isin(trainer.solver.cache.example.view, changed))
    alpha = np.concatenate([np.empty(0), *(each.alpha for each in moved)])
    trainer.solver.move(stay, [each.constraints for each in moved], alpha)
    trainer.best_w, trainer.best_upper, trainer.best_version = w, new.objective, trainer.version
    trainer.estimate = trainer.shown = np.inf
    if len(changed):  # what is cached can be solved before anything is scanned
        trainer.solver.ascend(Ascent(tolerance, MANY, confirm=False))
        trainer.solver.bound()
    return relative_gap(new.objective, trainer.solver.lower)


def impute_shard(source: Openable, problem: LatentProblem, w: Floats, shard: int) -> Int32s:
    """Runs on a worker."""
    found = source.open().read(shard).shard
    return problem.impute(w, found)


def first_values(problem: LatentProblem, trainer: Trainer, start: Floats | None, restart: int) -> Int32s:
    """Latent values to begin with: imputed at `start`, or drawn at random, which some problems then improve on."""
    executor, shards = trainer.executor, range(trainer.dataset.n_shards)
    seed = trainer.config.seed + restart
    executor.problem = problem
    trainer.publish(trainer.solver.w if start is None else start)
    drawn = np.concatenate(list(executor.map_shards(draw_shard, shards, [seed] * len(shards))))
    if start is not None:
        return problem.settle(drawn, np.concatenate(list(executor.map_shards(impute_shard, shards))))
    values = drawn
    for _ in range(problem.guesses(restart)):
        executor.problem = Completed(problem, values)
        total = np.sum(list(executor.map_shards(summarise_shard, shards)), axis=0)
        executor.problem = problem
        values = np.concatenate(list(executor.map_shards(guess_shard, shards, [total] * len(shards))))
        values = problem.settle(drawn, values)
    return values


def draw_shard(source: Openable, problem: LatentProblem, w: Floats, shard: int, seed: int) -> Int32s:  # noqa: ARG001
    """Runs on a worker."""
    return problem.draw(source.open().read(shard).shard, seed)


def summarise_shard(source: Openable, problem: Completed, w: Floats, shard: int) -> Floats:  # noqa: ARG001
    """Runs on a worker."""
    return problem.summary(source.open().read(shard).shard)


def guess_shard(source: Openable, problem: LatentProblem, w: Floats, shard: int, total: Floats) -> Int32s:  # noqa: ARG001
    """Runs on a worker."""
    return problem.guess(total, source.open().read(shard).shard)


def check_fall(previous: float, turn: Turn) -> None:
    """Were this to fail, a certificate would be wrong."""
    if not turn.objective <= turn.upper * (1 + ROUNDING) or not turn.upper <= previous * (1 + ROUNDING):
        raise AssertionError(f"the objective must not rise: {previous}, then {turn.upper}, imputed {turn.objective}")


def tell(trainer: Trainer, turn: Turn, number: int) -> None:
    """A line of the log and of the run log."""
    event = (
        f"latent restart={turn.restart} turn={number} objective={turn.objective:.10g} upper={turn.upper:.10g} "
        f"gap={turn.target:g} changed={turn.changed} oracle_calls={turn.oracle_calls} updates={turn.updates}"
    )
    log.info("%s", event)
    trainer.note(event)


def added(parts: list[Totals]) -> Totals:
    """What all restarts have cost together."""
    return Totals(**{f.name: sum(getattr(part, f.name) for part in parts) for f in fields(Totals)})


def check_possible(problem: LatentProblem, slack: str, cache_bytes: float) -> None:
    """Rows that are sums over examples would have to be undone where one of them changes its latent value."""
    if not problem.exact:
        raise InputError(f"{problem.kind}: a latent problem needs exact inference, else nothing tells if P(w) falls")
    if slack not in ("auto", "example") or np.isfinite(cache_bytes):
        raise InputError('a latent problem needs solver.slack = "example" and no solver.cache_bytes')
