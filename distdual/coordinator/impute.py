"""Imputation between two convex problems: initial latent values, then better ones at each new w."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from distdual.certificate.bounds import ShardLoss, upper_bound
from distdual.coordinator.trainer import Trainer
from distdual.kernels.rows import Floats, Int32s, Ints
from distdual.problems.base import Constraints, Keys
from distdual.problems.latent.base import Completed, LatentProblem, join_completed
from distdual.scan.loss_error import LossError, checked, loss_error, upper_loss
from distdual.scan.shard_reader import Openable


class LatentSupport(NamedTuple):
    """The support constraints of one shard."""

    example: Ints
    keys: Keys
    alpha: Floats


class Look(NamedTuple):
    """The result of imputing one shard at one w."""

    values: Int32s
    loss: float  # Σ cost_i ξ_i(w) of the shard with these latent values
    exact: bool
    error: LossError
    constraints: Constraints  # the moved support constraints, where latent values changed
    alpha: Floats


class Imputed(NamedTuple):
    """The next convex problem, before anything is changed."""

    completed: Completed
    objective: float  # P_H(w) with its latent values
    looks: list[Look]


def first_values(trainer: Trainer, problem: LatentProblem, seed: int, guesses: int) -> Completed:
    """Initial latent values: drawn at random, then improved `guesses` times or until time is up."""
    executor, shards = trainer.executor, range(trainer.dataset.n_shards)
    trainer.publish_for(problem, trainer.solver.w)
    drawn = values = join_completed(list(executor.map_shards(draw_shard, shards, [seed] * len(shards))))
    for _ in range(guesses):
        if trainer.solver.should_stop():
            break
        executor.problem = values
        total = np.sum(list(executor.map_shards(summarise_shard, shards)), axis=0)
        guessed = np.concatenate(list(executor.map_shards(guess_shard, shards, [total] * len(shards))))
        values = replace(values, values=problem.settle(drawn.values, guessed))
    return values


def draw_shard(source: Openable, problem: LatentProblem, w: Floats, shard: int, seed: int) -> Completed:  # noqa: ARG001
    """Runs on a worker."""
    found = source.open().read(shard).shard
    return problem.completed(found, problem.draw(found, seed))


def summarise_shard(source: Openable, problem: Completed, w: Floats, shard: int) -> Floats:  # noqa: ARG001
    """Runs on a worker."""
    return problem.summary(source.open().read(shard).shard)


def guess_shard(source: Openable, problem: Completed, w: Floats, shard: int, total: Floats) -> Int32s:  # noqa: ARG001
    """Runs on a worker."""
    return problem.problem.guess(total, source.open().read(shard).shard)


def impute(trainer: Trainer, now: Completed, w: Floats) -> Imputed:
    """The best latent values at w, in one pass; in two where the problem rejects some of them."""
    trainer.publish_for(now, w)
    support = support_of(trainer)
    looks = look(trainer, support, [None] * len(support))
    found = np.concatenate([each.values for each in looks])
    new = replace(now, values=now.problem.settle(now.values, found))
    if (new.values != found).any():
        looks = look(trainer, support, latent_by_shard(trainer, new))
    return Imputed(new, objective_of(trainer, w, looks), looks)


def judge(trainer: Trainer, now: Completed, w: Floats) -> float:
    """P_H(w) with the current latent values."""
    trainer.publish_for(now, w)
    return objective_of(trainer, w, look(trainer, support_of(trainer), latent_by_shard(trainer, now)))


def objective_of(trainer: Trainer, w: Floats, looks: list[Look]) -> float:
    losses = [ShardLoss(s, 0, each.loss, each.exact, *each.error) for s, each in enumerate(looks)]
    n_shards, prior = trainer.dataset.n_shards, trainer.solver.prior
    return upper_bound(w, 0, losses, C=trainer.config.C, n_shards=n_shards, prior=prior).high


def latent_by_shard(trainer: Trainer, completed: Completed) -> list[Int32s]:
    """The latent values of each shard."""
    return [completed.part(int(a), int(b)).values for a, b in itertools.pairwise(trainer.dataset.first)]


def support_of(trainer: Trainer) -> list[LatentSupport]:
    """The support constraints, shard by shard."""
    cache = trainer.solver.cache
    slots = cache.support()
    bounds = np.searchsorted(cache.example.view[slots], trainer.dataset.first)
    parts = [slots[begin:end] for begin, end in itertools.pairwise(bounds)]
    return [LatentSupport(cache.example.view[s], cache.keys().take(s), cache.alpha.view[s]) for s in parts]


def look(trainer: Trainer, support: list[LatentSupport], values: Sequence[Int32s | None]) -> list[Look]:
    trainer.state.totals.oracle_calls += trainer.dataset.n_examples
    return list(trainer.executor.map_shards(look_at_shard, range(trainer.dataset.n_shards), support, values))


def look_at_shard(
    source: Openable, problem: Completed, w: Floats, shard: int, support: LatentSupport, values: Int32s | None
) -> Look:
    """Runs on a worker: impute unless values are given; compute P_H(w) and the rows that α moves to."""
    found = source.open().read(shard).shard
    new = problem.problem.impute(w, found) if values is None else values
    then = problem.problem.completed(found, new)
    costs, worst = then.costs(found), then.offenders(w, found)
    worst = checked(then, found, worst, w)
    loss, _ = upper_loss(costs, worst)
    error = loss_error(then.magnitude(found, worst), costs, loss)
    local = support.example - found.first
    moves = np.flatnonzero(problem.of(found).changes(new)[local])
    keys = then.rebase(found, local[moves], support.keys.take(moves))
    return Look(new, loss, then.exact, error, then.constraints(found, local[moves], keys), support.alpha[moves])
