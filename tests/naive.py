"""Reference versions of everything, in plain loops and float64, and an independent solver for optima.

A problem is written out as four arrays: one dense row and one margin per constraint, the group whose slack the
constraint shares, and the capacity C_i of each group.
"""

from typing import Any, NamedTuple

import numpy as np
import quadprog

from distdual.data.shard import Shard
from distdual.problems.base import Constraints
from distdual.problems.binary import Binary
from distdual.problems.latent.bags import Latent
from distdual.problems.latent.multiclass import LatentMulticlass
from distdual.solver.regularizer import Prior
from distdual.testing import dense


class Program(NamedTuple):
    """1/2 ||w||² + Σ_i capacity_i · max(0, max_{k of i} margin_k − ⟨w, rows_k⟩)."""

    rows: Any  # (n, d)
    margin: Any  # (n,)
    group: Any  # (n,) numbers into capacity
    capacity: Any  # (m,)


class Optimum(NamedTuple):
    lower: float
    upper: float
    w: Any


def slacks(program: Program, w: Any) -> list[float]:
    """ξ_i of each group."""
    worst = [0.0] * len(program.capacity)
    for row, margin, group in zip(program.rows, program.margin, program.group, strict=True):
        worst[group] = max(worst[group], float(margin - row @ w))
    return worst


def primal(program: Program, w: Any) -> float:
    return 0.5 * float(w @ w) + sum(c * xi for c, xi in zip(program.capacity, slacks(program, w), strict=True))


def dual(program: Program, alpha: Any) -> float:
    v = weights(program, alpha)
    return float(sum(a * margin for a, margin in zip(alpha, program.margin, strict=True))) - 0.5 * float(v @ v)


def weights(program: Program, alpha: Any) -> Any:
    w = np.zeros(program.rows.shape[1])
    for a, row in zip(alpha, program.rows, strict=True):
        w += a * row
    return w


def prior_weights(prior: Prior, v: Any) -> Any:
    """argmax_w ⟨v, w⟩ − R(w), by weight if Λ is diagonal; with a full Λ constraints enforce signs."""
    if prior.full:
        return prior.centre + np.linalg.solve(prior.precision, v)
    w = np.zeros(prior.n_weights)
    for k in range(prior.n_weights):
        w[k] = prior.centre[k] + v[k] / (1.0 if prior.precision is None else prior.precision[k])
        if prior.nonnegative is not None and k in prior.nonnegative:
            w[k] = max(w[k], 0.0)
    return w


def penalty(prior: Prior, w: Any) -> float:
    """R(w), summed over all pairs of weights."""
    off = w - prior.centre
    matrix = prior.precision if prior.full else np.diag(1 / prior.variance)
    n = prior.n_weights
    return 0.5 * sum(float(off[i] * matrix[i, j] * off[j]) for i in range(n) for j in range(n))


def dual_under(prior: Prior, program: Program, alpha: Any) -> float:
    """D(α) = l·α − R*(Σ α x)."""
    v = weights(program, alpha)
    w = prior_weights(prior, v)
    return float(alpha @ program.margin) - (float(v @ w) - penalty(prior, w))


def used(program: Program, alpha: Any) -> Any:
    """Σ_{k of i} α_k for each group i."""
    total = np.zeros(len(program.capacity))
    for a, group in zip(alpha, program.group, strict=True):
        total[group] += a
    return total


def is_feasible(program: Program, alpha: Any, slip: float = 1e-12) -> bool:
    return bool((alpha >= 0).all() and (used(program, alpha) <= program.capacity * (1 + slip)).all())


def optimum(program: Program, precision: float = 1e-7) -> Optimum:
    """P(w*) between two bounds at most `precision` apart, relatively, from quadprog's w and multipliers.

    quadprog needs a strictly convex program in (w, ξ), so ξ gets a ridge. Its error does not matter, since P is
    evaluated at its w and D at its multipliers, exactly. If they differ too much, other ridges are tried: the best of
    all bounds is valid as well.
    """
    program = without_free_groups(program)
    if not len(program.rows):
        return Optimum(0.0, 0.0, np.zeros(program.rows.shape[1]))
    lower, upper, w = -np.inf, np.inf, np.zeros(program.rows.shape[1])
    for ridge in (1e-8, 1e-9, 1e-10, 1e-7, 1e-11, 1e-6):
        found = bounds_with(program, ridge)
        w = found.w if found.upper < upper else w
        lower, upper = max(lower, found.lower), min(upper, found.upper)
        if upper - lower <= precision * max(upper, 1e-12):
            return Optimum(lower, upper, w)
    raise AssertionError(f"quadprog did not solve it: {lower} to {upper}")


def bounds_with(program: Program, ridge: float) -> Optimum:
    """P at quadprog's w and D at its multipliers, scaled down to be feasible."""
    rows, margin, group, capacity = program
    n, d = rows.shape
    matrix = np.diag(np.r_[np.ones(d), np.full(len(capacity), ridge)])
    of_group = np.eye(len(capacity))[group]
    left = np.vstack([np.hstack([rows, of_group]), np.hstack([np.zeros((len(capacity), d)), np.eye(len(capacity))])])
    found, _, _, _, multipliers, _ = quadprog.solve_qp(
        matrix, np.r_[np.zeros(d), -capacity], left.T, np.r_[margin, np.zeros(len(capacity))]
    )
    w, alpha = found[:d], np.maximum(multipliers[:n], 0.0)
    over = np.maximum(used(program, alpha) / capacity, 1.0)
    return Optimum(dual(program, alpha / over[group]), primal(program, w), w)


def without_free_groups(program: Program) -> Program:
    """The same program without groups of capacity 0."""
    kept = np.flatnonzero(program.capacity > 0)
    which = np.isin(program.group, kept)
    group = np.searchsorted(kept, program.group[which])
    return Program(program.rows[which], program.margin[which], group, program.capacity[kept])


def program_of(constraints: Constraints, n_weights: int, C: float) -> Program:
    """The solver's constraints as a Program; groups are numbered by example, in ascending order."""
    examples, group = np.unique(constraints.example, return_inverse=True)
    capacity = np.zeros(len(examples))
    capacity[group] = C * constraints.cost
    return Program(dense(constraints.rows, n_weights), constraints.margin, group, capacity)


def binary_constraint(problem: Binary, shard: Shard, i: int) -> tuple[Any, float, float]:
    """Row, margin and cost of example i."""
    features = dense(shard.x, problem.n_features)[i]
    if problem.bias:
        features = np.append(features, float(np.float32(problem.bias)))
    sign = 1.0 if shard.y[i] == 1 else -1.0
    cost = float(problem.class_cost.get(problem.classes[shard.y[i]], 1.0))
    cost *= 1.0 if shard.cost is None else float(shard.cost[i])
    return sign * features, 1.0 if shard.margin is None else float(shard.margin[i]), cost


def bag_constraints(problem: Latent, shard: Shard, i: int, h: int) -> dict[tuple[int, ...], tuple[Any, float, float]]:
    """Row, margin and cost of each constraint of bag i with latent value h, by key."""
    assert shard.tokens is not None
    features = dense(shard.x, problem.n_features)[shard.tokens[i] : shard.tokens[i + 1]]
    if problem.bias:
        features = np.hstack([features, np.full((len(features), 1), float(np.float32(problem.bias)))])
    label = shard.y[shard.tokens[i]]
    cost = float(problem.class_cost.get(problem.classes[label], 1.0))
    cost *= 1.0 if shard.cost is None else float(shard.cost[i])
    if label == 1:
        return {(h,): (features[h], 1.0, cost)}
    return {(c,): (-row, 1.0, cost) for c, row in enumerate(features)}


def mixture_constraints(
    problem: LatentMulticlass, shard: Shard, i: int, h: int
) -> dict[tuple[int, ...], tuple[Any, float, float]]:
    """The same for example i of a mixture of components."""
    features = dense(shard.x, problem.n_features)[i]
    if problem.bias:
        features = np.append(features, float(np.float32(problem.bias)))
    y, m = int(shard.y[i]), problem.components
    cost = float(problem.class_cost.get(problem.classes[y], 1.0))
    cost *= 1.0 if shard.cost is None else float(shard.cost[i])
    found = {}
    for k in range(len(problem.classes)):
        for j in range(k * m, k * m + m):
            if k != y:
                row = np.zeros((len(problem.classes) * m, len(features)))
                row[h] += features
                row[j] -= features
                found[(h, j)] = (row.ravel(), float(problem.loss[y][k]) if problem.loss else 1.0, cost)
    return found


def binary_program(problem: Binary, shard: Shard, C: float) -> Program:
    """A whole binary problem: one constraint per example."""
    each = [binary_constraint(problem, shard, i) for i in range(shard.n_examples)]
    rows, margin, cost = (np.array(part) for part in zip(*each, strict=True))
    return Program(rows, margin, np.arange(shard.n_examples), C * cost)


def spans(tags: list[str]) -> set[tuple[int, int, str]]:
    """(first token, end, type) of each span of one sequence."""
    found, begin = set(), 0
    for t, tag in enumerate(tags):
        before = tags[t - 1] if t else "O"
        if tag != "O" and (tag[0] == "B" or before == "O" or before[2:] != tag[2:]):
            begin = t
        after = tags[t + 1] if t + 1 < len(tags) else "O"
        if tag != "O" and (after[0] in "OB" or after[2:] != tag[2:]):
            found.add((begin, t + 1, tag[2:]))
    return found


def token_features(sentence: list[dict[str, str]], t: int, templates: Any) -> set[str]:
    """The names of a token's features, in the order of templates."""
    names = set()
    for template in templates:
        values = []
        for column, views, offset in template:
            at = t + offset
            value: str | None = "<BOS>" if at < 0 else "<EOS>" if at >= len(sentence) else sentence[at][column]
            for view in views if 0 <= at < len(sentence) else ():
                value = None if value is None else view.see(value)
            values.append(value)
        if None not in values:
            names.add("|".join(map(str, template)) + "=" + "|".join(values))
    return names
