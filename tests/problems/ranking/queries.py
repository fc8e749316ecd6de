"""Small rankings, and all of their constraints, pairs and measures in plain loops."""

import itertools
from typing import Any

import numpy as np
from sklearn.svm import LinearSVC

from distdual.data.shard import Shard
from distdual.problems.ranking.problem import Ranking
from distdual.testing import dense
from tests.build import rows_of


def queries(seed: int, sizes: list[int], *, width: int = 3, grades: int = 3, cost: bool = False) -> Shard:
    """Features are eighths: sums of them are exact in single precision."""
    rng = np.random.default_rng(seed)
    x = np.round(8 * rng.normal(size=(sum(sizes), width))) / 8 * (rng.random((sum(sizes), width)) < 0.7)
    x[:, 0] += x[:, 0] == 0.0
    y = rng.integers(grades, size=sum(sizes)).astype(np.float64)
    costs = rng.uniform(0, 2, len(sizes)) if cost else None
    return Shard(2, 30, rows_of(x, sparse=False), y, costs, None, np.concatenate([[0], np.cumsum(sizes)]))


def pairs_of(y: Any) -> list[tuple[int, int]]:
    return [(i, j) for i in range(len(y)) for j in range(len(y)) if y[i] > y[j]]


def weight_of(problem: Ranking, better: float, worse: float) -> float:
    if problem.gain == "none":
        return 1.0
    return better - worse if problem.gain == "linear" else 2.0**better - 2.0**worse


def divisor_of(problem: Ranking, y: Any) -> float:
    total = sum(weight_of(problem, y[i], y[j]) for i, j in pairs_of(y))
    return total if problem.normalise and total else 1.0


def every_set(problem: Ranking, shard: Shard, q: int) -> dict[tuple[int, ...], tuple[Any, float, float]]:
    """Row, margin and cost of each place and reach that documents may have."""
    assert shard.tokens is not None
    own = slice(shard.tokens[q], shard.tokens[q + 1])
    x, y = dense(shard.x, problem.n_features)[own], shard.y[own]
    cost, found = 1.0 if shard.cost is None else float(shard.cost[q]), {}
    for place in itertools.permutations(range(len(y))):
        for reach in itertools.product(range(len(y) + 1), repeat=len(y)):
            row, margin = np.zeros(problem.n_features), 0.0
            for i, j in pairs_of(y):
                if place[j] < reach[i]:
                    weight = weight_of(problem, y[i], y[j]) / divisor_of(problem, y)
                    row, margin = row + weight * (x[i] - x[j]), margin + weight
            found[(*place, *reach)] = (row, margin, cost)
    return found


def pair_rows(problem: Ranking, shard: Shard) -> tuple[Any, Any]:
    """features_i − features_j of all pairs of all queries, and the cost of each."""
    assert shard.tokens is not None
    rows, costs = [], []
    for q in range(shard.n_examples):
        own = slice(shard.tokens[q], shard.tokens[q + 1])
        x, y = dense(shard.x, problem.n_features)[own], shard.y[own]
        for i, j in pairs_of(y):
            rows.append(x[i] - x[j])
            costs.append(problem.costs(shard)[q] * weight_of(problem, y[i], y[j]) / divisor_of(problem, y))
    return np.array(rows), np.array(costs)


def pairwise_objective(problem: Ranking, shard: Shard, C: float) -> float:
    """P(w*) of LinearSVC on all pairs, each in a random direction."""
    rows, costs = pair_rows(problem, shard)
    sign = np.where(np.arange(len(rows)) % 2, 1.0, -1.0)
    peer = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-8, max_iter=1_000_000)
    w = peer.fit(sign[:, None] * rows, sign, sample_weight=costs).coef_[0]
    return 0.5 * float(w @ w) + C * float(costs @ np.maximum(0.0, 1.0 - rows @ w))
