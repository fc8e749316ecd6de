"""How does a run begin where another model ended? With that model's α, on constraints rebuilt from the data.

Starting from w alone would solve another problem; a hot start carries α. With another C, α is scaled, which keeps it
feasible; with another prior, α stays feasible as it is; appended shards bring examples whose α is 0.
"""

import logging

import numpy as np

from distdual.coordinator.solver import Solver
from distdual.data.memory import MemoryDataset
from distdual.data.store import Dataset
from distdual.errors import InputError
from distdual.model import Dual, Model, split_dual
from distdual.problems.base import Constraints, Problem
from distdual.rows import Floats
from distdual.workers.executor import Executor
from distdual.workers.scan import Source

log = logging.getLogger(__name__)

FREE_TO_CHANGE = ("class_cost",)  # of a problem's description: what changes no row


def hot_start(solver: Solver, model: Model, dataset: Dataset, executor: Executor, problem: Problem) -> None:
    """Give the solver the model's support constraints and α; what cannot be carried over is an error."""
    check_same(model, dataset, problem)
    carry_over(solver, model.dual, model.C, dataset, executor)


def carry_over(solver: Solver, dual: Dual, C: float, dataset: Dataset | MemoryDataset, executor: Executor) -> None:
    """Give the solver an α found with `C` on the same examples, or on the first of them."""
    shards = np.unique(np.searchsorted(dataset.first, dual.example, side="right") - 1).tolist()
    parts = [split_dual(dual, dataset.first, s) for s in shards]
    executor.publish(-1, solver.w)
    scale = solver.cache.C / C
    for found, part in zip(executor.map_shards(rebuild, shards, parts), parts, strict=True):
        solver.start_from(found, feasible(scale * part.alpha, found, solver.cache.C))
    carry_multipliers(solver, dual.beta, scale)
    solver.bound()
    log.info("hot start: %d support constraints, lower=%.6g", len(dual.alpha), solver.lower)


def check_same(model: Model, dataset: Dataset, problem: Problem) -> None:
    """The same rows must come out of the same examples."""
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


def rebuild(source: Source | Dataset, problem: Problem, w: Floats, shard: int, dual: Dual) -> Constraints:  # noqa: ARG001
    """Runs on a worker: the support constraints of one shard."""
    found, _ = source.open().read(shard)
    return problem.constraints(found, dual.example - found.first, dual.keys)


def feasible(alpha: Floats, constraints: Constraints, C: float) -> Floats:
    """α, scaled down within each example where Σ α would exceed C_i."""
    _, group = np.unique(constraints.example, return_inverse=True)
    used = np.bincount(group, alpha)[group]
    most = C * constraints.cost
    return np.where(used > most, alpha * most / np.where(used > 0, used, 1.0), alpha)


def carry_multipliers(solver: Solver, beta: Floats, scale: float) -> None:
    """β of w_k ≥ 0 under a full prior; without it the start is lower, but as valid."""
    if not beta.any() or not len(solver.cache):
        return
    cache = solver.cache
    own = np.flatnonzero(cache.example.view < 0)
    cache.alpha.view[own] = scale * beta[-1 - cache.example.view[own]]
    if len(own) < np.count_nonzero(beta):
        log.warning("hot start: this run has no multipliers of w_k >= 0; those of the model are left behind")
