"""Warm start of a run from a model: its α, on constraints rebuilt from the data.

Starting from w alone would solve another problem. With another C, α is scaled, which keeps it feasible; with another
prior, α stays feasible as it is; examples of appended shards have α = 0.
"""

import logging
from typing import NamedTuple

import numpy as np

from distdual.certificate.rebuild import Support
from distdual.cluster.base import Executor
from distdual.coordinator.slack_partition import SlackPartition
from distdual.data.dataset import Dataset
from distdual.data.shard import Shard
from distdual.data.storage.location import Location
from distdual.data.training_data import TrainingData
from distdual.errors import InputError
from distdual.kernels.row_sums import sum_rows
from distdual.kernels.rows import Floats, Ints
from distdual.model.dual import Dual, DualSummary, GroupDual
from distdual.model.io import Model
from distdual.problems.base import Constraints, Keys, Magnitude, Offenders, Problem
from distdual.problems.constraint_hash import identities
from distdual.scan.group_members_file import Notes
from distdual.scan.scan import DatasetRef, is_built_in
from distdual.scan.slack import Slack
from distdual.scan.slack_groups import (
    CHUNK,
    Members,
    add_margins,
    build_stored,
    fold,
    join_smaller,
    member_ranges,
    runs_of,
)
from distdual.solver.solver import Solver

NO_OFFENDERS = Offenders(np.empty(0), Keys.none(0))  # built-in problems need none to tell a magnitude

log = logging.getLogger(__name__)

FREE_TO_CHANGE = ("class_cost",)  # keys of a problem's description that change no row


class ShardStart(NamedTuple):
    """Initial constraints of one shard, and the components of those of groups."""

    constraints: Constraints
    alpha: Floats
    mixture: Members  # for groups: the recorded rows …
    indptr: Ints  # … which of them each constraint mixes …
    weight: Floats  # … and the weight of each
    magnitude: Magnitude = Magnitude()


class RebuildTask(NamedTuple):
    """The constraints a worker rebuilds, and the slack groups."""

    support: Support
    scale: float
    C: float
    slack: Slack
    notes: Notes | None


def hot_start(
    solver: Solver, partition: SlackPartition, model: Model, folder: Location, dataset: Dataset, executor: Executor
) -> None:
    """Give the solver the support constraints and α of a model.

    The caller has checked with `check_same` that the same examples give the same rows.
    """
    if isinstance(model.dual, DualSummary):
        raise InputError("solver.start: the model holds only a summary of its dual, without constraints to start from")
    carry_over(solver, partition, model.dual, model.C, dataset, executor, folder)


def carry_over(
    solver: Solver,
    partition: SlackPartition,
    dual: Dual | GroupDual,
    C: float,
    dataset: TrainingData,
    executor: Executor,
    folder: Location | None = None,
) -> None:
    """Give the solver an α found with `C` on the same examples, or on the first of them.

    `folder` is the model's, which holds the members files of a group dual.
    """
    scale, slack = solver.cache.C / C, partition.slack.within_shard
    parts = [dual.of_shard(dataset.first, s) for s in range(dataset.n_shards)]
    shards = [s for s, part in enumerate(parts) if len(part.alpha)]
    tasks = [
        RebuildTask(Support(parts[s], folder), scale, solver.cache.C, slack, partition.notes(s, slack)) for s in shards
    ]
    executor.publish(-1, solver.w)
    for start, task in zip(executor.map_shards(rebuild, shards, tasks), tasks, strict=True):
        names = partition.name_mixture(start.indptr, start.weight, task.notes) if not slack.is_example else None
        solver.meet(start.magnitude)
        solver.start_from(start.constraints, start.alpha, [] if names is None else [names])
    partition.settle(solver)
    carry_multipliers(solver, dual.beta, scale)
    solver.bound()
    log.info("hot start: %d support constraints, lower=%.6g", dual.support, solver.lower)


def check_same_problem(model: Model, dataset: Dataset, problem: Problem) -> None:
    """Check that the same examples give the same rows."""
    old, new = model.problem.describe(), problem.describe()
    for key in new:
        if key not in FREE_TO_CHANGE and old.get(key) != new[key]:
            raise InputError(f"solver.start: the model has {key} = {old.get(key)}, this run {new[key]}: rows differ")
    n_shards = len(model.data.checksum)
    if dataset.n_shards < n_shards:
        raise InputError(f"solver.start: the model saw {n_shards} shards, the data set has {dataset.n_shards}")
    differ = np.flatnonzero(dataset.checksum[:n_shards] != model.data.checksum)
    if len(differ):
        raise InputError(f"solver.start: shard {differ[0]} is not the one the model was trained on")


def rebuild(source: DatasetRef | Dataset, problem: Problem, w: Floats, shard: int, task: RebuildTask) -> ShardStart:
    """Runs on a worker: rebuild the initial constraints of one shard, and tell how large their numbers are."""
    found = problem.prepared(source.open().read(shard).shard)
    size = problem.magnitude(found, NO_OFFENDERS if is_built_in(problem) else problem.offenders(w, found))
    cost = float(problem.costs(found).max(initial=0.0))
    return constraints_of(problem, found, task)._replace(magnitude=size._replace(cost=cost))


def constraints_of(problem: Problem, found: Shard, task: RebuildTask) -> ShardStart:
    """The initial constraints of one shard."""
    dual = task.support.dual
    if isinstance(dual, Dual) and task.slack.is_example:
        constraints = problem.rebuilt(found, dual.example - found.first, dual.keys)
        return single(constraints, feasible(task.scale * dual.alpha, constraints, task.C))
    members, share = shares(task, problem, found)
    if task.slack.is_example:
        constraints = problem.rebuilt(found, members.example, members.keys)
        return single(constraints, feasible(share * constraints.cost, constraints, task.C))
    start = mixed(problem, found, members, share, task)
    if task.notes:
        task.notes.write(start.mixture)
    return start


def single(constraints: Constraints, alpha: Floats) -> ShardStart:
    nothing = Members(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int64), Keys.none(0))
    return ShardStart(constraints, alpha, nothing, np.zeros(1, dtype=np.int64), np.empty(0))


def shares(task: RebuildTask, problem: Problem, shard: Shard) -> tuple[Members, Floats]:
    """Each constraint of a single example in the support, once, with α per unit of its cost."""
    dual = task.support.dual
    if isinstance(dual, Dual):
        local = dual.example - shard.first
        cost = problem.costs(shard)[local]
        parts = [(local, dual.keys, np.divide(dual.alpha, cost, out=np.zeros(len(cost)), where=cost > 0))]
    else:
        rows = list(task.support.rows(shard))
        parts = [(m.example, m.keys, np.repeat(alpha, np.diff(m.indptr))) for m, alpha in rows]
    example = np.concatenate([np.empty(0, dtype=np.int64), *(part[0] for part in parts)])
    share = np.concatenate([np.empty(0), *(part[2] for part in parts)])
    lengths = np.concatenate([np.empty(0, dtype=np.int64), *(np.diff(part[1].indptr) for part in parts)])
    values = np.concatenate([np.empty(0, dtype=np.int32), *(part[1].values for part in parts)])
    keys = Keys(np.concatenate([[0], np.cumsum(lengths)]), values)
    _, which, place = np.unique(identities(example, keys), return_index=True, return_inverse=True)
    total: Floats = task.scale * np.bincount(place, share, minlength=len(which)).astype(np.float64)
    order = np.argsort(example[which], kind="stable")
    chosen = which[order]
    return Members(np.arange(len(chosen) + 1), example[chosen], keys.take(chosen)), total[order]


def mixed(problem: Problem, shard: Shard, members: Members, share: Floats, task: RebuildTask) -> ShardStart:
    """One constraint per group, a mixture over its members; α is their largest Σ α per unit of cost."""
    used = np.bincount(members.example, share, minlength=shard.n_examples)
    share = share * np.minimum(1.0, task.C / np.maximum(used, task.C))[members.example]
    used = np.bincount(members.example, share, minlength=shard.n_examples)[members.example]
    group, indptr = runs_of(task.slack.first_member(members.example))
    beta = np.maximum.reduceat(used, indptr[:-1]) if len(used) else np.empty(0)
    weight = share / np.repeat(beta, np.diff(indptr))
    margin, rows = np.zeros(len(group)), []
    for begin, end in member_ranges(indptr, CHUNK):
        at = indptr[begin : end + 1]
        built = build_stored(problem, shard, members, int(at[0]), int(at[-1]))
        each = built.cost * weight[at[0] : at[-1]]
        add_margins(built.margin, each, at - at[0], margin[begin:end])
        rows.append(sum_rows(built.rows, each, at - at[0], problem.n_weights))
    folded = np.empty(len(group), dtype=np.uint64)
    fold(identities(members.example, members.keys) ^ weight.view(np.uint64), indptr, folded)
    keys = Keys(np.arange(0, 2 * len(group) + 1, 2), folded.view(np.int32))
    constraints = Constraints(
        shard.first + group, np.ones(len(group)), margin, join_smaller(rows, problem.n_weights), keys
    )
    return ShardStart(constraints, beta, members, indptr, weight)


def feasible(alpha: Floats, constraints: Constraints, C: float) -> Floats:
    """α, scaled down within each example where Σ α would exceed C_i."""
    _, group = np.unique(constraints.example, return_inverse=True)
    used = np.bincount(group, alpha)[group]
    most = C * constraints.cost
    return np.where(used > most, alpha * most / np.where(used > 0, used, 1.0), alpha)


def carry_multipliers(solver: Solver, beta: Floats, scale: float) -> None:
    """Carry over β of w_k ≥ 0 under a full prior; without it the start is lower but still valid."""
    if not beta.any() or not len(solver.cache):
        return
    cache = solver.cache
    own = np.flatnonzero(cache.example.view < 0)
    cache.alpha.view[own] = scale * beta[-1 - cache.example.view[own]]
    if len(own) < np.count_nonzero(beta):
        log.warning("hot start: this run has no multipliers of w_k >= 0; those of the model are dropped")
