"""How are latent values and weights learnt together? By turns, and no turn raises the objective.

    impute   h_i ← the latent value with the smallest slack at w;  P_H(w) is then P(w), the non-convex objective
    solve    w ← a certified minimiser of the convex P_H, never worse than the w before

The convex problems are solved loosely while the objective still falls fast, and tightly at the end. Each begins where
the one before ended: with its w as the first certified upper bound, and with its α, which moves to the new rows of
those examples whose latent values have changed. Constraints of all others stay what they were.
"""

import itertools
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from distdual.certificate import ShardLoss, upper_bound
from distdual.coordinator.train import Outcome, Totals, Trainer
from distdual.errors import InputError
from distdual.problems.base import Constraints, Keys
from distdual.problems.completed import Completed, LatentProblem
from distdual.rows import Floats, Int32s, Ints, product
from distdual.workers.scan import Openable

log = logging.getLogger(__name__)

LOOSE = 0.01  # gap of convex problems until the objective falls by less than this
ROUNDING = 1e-6  # relative rise of the objective that is none: rows of user's own problems are rounded to float32


class Moving(NamedTuple):
    """Support constraints of one shard whose examples have other latent values now."""

    example: Ints
    keys: Keys
    alpha: Floats


class Moved(NamedTuple):
    loss: float  # Σ cost_i ξ_i(w) of the shard with the new latent values
    exact: bool
    constraints: Constraints  # what became of those that move


class Imputed(NamedTuple):
    """What the next convex problem is, before anything is changed."""

    values: Int32s
    objective: float  # P_H(w) with these
    stay: Ints  # slots of the cache
    parts: list[Constraints]
    alpha: Floats


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
    trace: list[Turn] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """What certificate.json tells of it."""
        return {"objective": self.trace[-1].objective, "trace": [asdict(turn) for turn in self.trace]}


def train_latent(problem: LatentProblem, new_trainer: Callable[[], Trainer], start: Floats | None) -> LatentOutcome:
    """The best of all restarts; `start` are weights to impute the first latent values with."""
    begin, totals = None, []
    best: LatentOutcome | None = None
    for restart in range(problem.restarts):
        trainer = new_trainer()
        begin = trainer.begin if begin is None else begin
        trainer.begin = begin
        if best is not None and trainer.solver.should_stop():
            break
        found = run_once(problem, trainer, start if restart == 0 else None, restart)
        totals.append(found.outcome.totals)
        if best is None or found.trace[-1].objective < best.trace[-1].objective:
            best = found
    assert best is not None
    best.outcome.totals = added(totals)
    return best


def run_once(problem: LatentProblem, trainer: Trainer, start: Floats | None, restart: int) -> LatentOutcome:
    """Turns of imputing and solving until the objective stops falling or the budget is spent."""
    target, trace = trainer.config.gap, list[Turn]()
    values = first_values(problem, trainer, start, restart)
    previous, tight = np.inf, target >= LOOSE
    while True:
        tight = tight or len(trace) + 1 == problem.rounds
        calls, updates = trainer.totals.oracle_calls, trainer.solver.updates
        outcome = solve(trainer, Completed(problem, values), target if tight else LOOSE)
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
        settled = not turn.changed or previous - turn.objective <= trainer.config.gap * turn.objective
        spent = outcome.certificate.gap > trainer.config.gap or trainer.solver.should_stop()
        if spent or (tight and settled) or len(trace) == problem.rounds:
            trainer.executor.problem = Completed(problem, values)
            return LatentOutcome(outcome, Completed(problem, values), trace)
        tight = tight or settled
        go_on(trainer, new, outcome.w)
        previous, values = turn.objective, new.values


def solve(trainer: Trainer, completed: Completed, gap: float) -> Outcome:
    trainer.problem = trainer.executor.problem = completed
    trainer.config = replace(trainer.config, gap=gap)
    return trainer.run()


def impute(problem: LatentProblem, trainer: Trainer, values: Int32s, w: Floats) -> Imputed:
    """Two passes over the data: the best latent values at w, then P_H(w) and the rows that α moves to."""
    executor, cache, first = trainer.executor, trainer.solver.cache, trainer.dataset.first
    shards = range(trainer.dataset.n_shards)
    executor.problem = problem
    executor.publish(trainer.version, w)
    found = np.concatenate(list(executor.map_shards(impute_shard, shards)))
    new = problem.settle(values, found)
    changed = np.flatnonzero(new != values)
    stale = np.isin(cache.example.view, changed)
    moving = np.flatnonzero(stale & (cache.alpha.view > 0))
    moving = moving[np.argsort(cache.example.view[moving], kind="stable")]
    bounds = np.searchsorted(cache.example.view[moving], first)
    asked = [moving[begin:end] for begin, end in itertools.pairwise(bounds)]
    executor.problem = Completed(problem, new)
    parts = [Moving(cache.example.view[s], cache.keys().take(s), cache.alpha.view[s]) for s in asked]
    moved = list(executor.map_shards(move_shard, shards, parts))
    trainer.totals.oracle_calls += 2 * trainer.dataset.n_examples
    losses = [ShardLoss(s, 0, part.loss, part.exact) for s, part in enumerate(moved)]
    objective = upper_bound(
        w, 0, losses, C=trainer.config.C, n_shards=trainer.dataset.n_shards, prior=trainer.solver.prior
    )
    there = [part.constraints for part in moved if len(part.constraints.margin)]
    return Imputed(new, objective, np.flatnonzero(~stale), there, cache.alpha.view[moving].copy())


def go_on(trainer: Trainer, new: Imputed, w: Floats) -> None:
    """Hand the next convex problem what is known of it: a feasible α, and P_H(w) as an upper bound."""
    trainer.solver.move(new.stay, new.parts, new.alpha)
    trainer.version += 1
    trainer.best_w, trainer.best_upper, trainer.best_version = w, new.objective, trainer.version
    trainer.estimate = trainer.shown = np.inf


def impute_shard(source: Openable, problem: LatentProblem, w: Floats, shard: int) -> Int32s:
    """Runs on a worker."""
    found, _ = source.open().read(shard)
    return problem.impute(w, found)


def move_shard(source: Openable, problem: Completed, w: Floats, shard: int, moving: Moving) -> Moved:
    """Runs on a worker: this shard's share of P_H(w), and the constraints that others have become."""
    found, _ = source.open().read(shard)
    local = moving.example - found.first
    keys = problem.rebase(found, local, moving.keys)
    loss = product(problem.costs(found), problem.offenders(w, found).slack)
    return Moved(loss, problem.exact, problem.constraints(found, local, keys))


def first_values(problem: LatentProblem, trainer: Trainer, start: Floats | None, restart: int) -> Int32s:
    """Latent values to begin with: imputed at `start`, or drawn at random, which some problems then improve on."""
    executor, shards = trainer.executor, range(trainer.dataset.n_shards)
    seed = trainer.config.seed + restart
    executor.problem = problem
    executor.publish(trainer.version, trainer.solver.w if start is None else start)
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
    return problem.draw(source.open().read(shard)[0], seed)


def summarise_shard(source: Openable, problem: Completed, w: Floats, shard: int) -> Floats:  # noqa: ARG001
    """Runs on a worker."""
    return problem.summary(source.open().read(shard)[0])


def guess_shard(source: Openable, problem: LatentProblem, w: Floats, shard: int, total: Floats) -> Int32s:  # noqa: ARG001
    """Runs on a worker."""
    return problem.guess(total, source.open().read(shard)[0])


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
