"""Selective sampling: of every few neighbouring examples only the one nearest to the decision boundary."""

import numpy as np

from distdual.data.shard import Shard
from distdual.kernels.rows import Bools, Floats
from distdual.problems.base import Problem


def selected(problem: Problem, w: Floats, shard: Shard, pool: int) -> Bools:
    """Which examples are the nearest to the boundary among `pool` neighbours; the first of several."""
    distance = distance_to_boundary(problem, w, shard)
    group = np.arange(shard.n_examples) // pool
    order = np.lexsort((distance, group))
    chosen = np.zeros(shard.n_examples, dtype=np.bool_)
    chosen[order[np.unique(group, return_index=True)[1]]] = True
    return chosen


def distance_to_boundary(problem: Problem, w: Floats, shard: Shard) -> Floats:
    """|⟨w, x⟩| of two classes, and the lead of the best class over the next of more."""
    decision = problem.decision(w, shard)
    assert decision is not None
    if decision.ndim == 1:
        return np.abs(decision)
    best = np.partition(decision, -2, axis=1)
    lead: Floats = best[:, -1] - best[:, -2]
    return lead
