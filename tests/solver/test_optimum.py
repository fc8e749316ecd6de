"""The solver against an independent QP solver: shared slacks, every kind of prior, weights that may not be negative."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import quadprog

from distdual.problems.base import Constraints, Keys
from distdual.solver.ascent_plan import Ascent
from distdual.solver.regularizer import Prior
from distdual.solver.solver import Solver
from tests.build import rows_of
from tests.naive import Program, program_of, slacks

TIGHT = Ascent(tolerance=1e-9, max_sweeps=200_000)


class Case(NamedTuple):
    constraints: Constraints
    program: Program
    prior: Prior
    C: float


def make_prior(rng: np.random.Generator, kind: str, d: int) -> Prior:
    mean = rng.normal(size=d)
    chosen = np.flatnonzero(rng.random(d) < 0.6)
    if kind == "plain":
        return Prior(d)
    if kind == "non-negative":
        return Prior(d, nonnegative=chosen)
    if kind.startswith("diagonal"):
        precision = rng.uniform(0.3, 3.0, d)
    else:
        root = rng.normal(size=(d, d))
        precision = root @ root.T + 0.5 * np.eye(d)
    return Prior(d, mean, precision, chosen if "non-negative" in kind else None)


def make_case(seed: int, kind: str) -> Case:
    """Groups of one to six constraints, a zero row now and then, capacities of their own."""
    rng = np.random.default_rng([seed, len(kind)])
    d, n_groups = int(rng.integers(1, 6)), int(rng.integers(1, 8))
    group = np.repeat(np.arange(n_groups), rng.integers(1, 7, n_groups))
    x = rng.normal(size=(len(group), d)) * (rng.random((len(group), d)) < 0.8)
    key = np.concatenate([np.arange(count) for count in np.bincount(group)]).astype(np.int32)
    constraints = Constraints(
        group.astype(np.int64),
        rng.uniform(0.1, 2.0, n_groups)[group],
        rng.uniform(-0.2, 2.0, len(group)),
        rows_of(x, sparse=bool(rng.integers(2))),
        Keys(np.arange(len(group) + 1), key),
    )
    C = float(rng.choice([0.1, 1.0, 10.0]))
    return Case(constraints, program_of(constraints, d, C), make_prior(rng, kind, d), C)


def primal(case: Case, w: Any) -> float:
    return case.prior.penalty(w) + float(case.program.capacity @ slacks(case.program, w))


def independent_optimum(case: Case) -> float:
    """P at quadprog's w. ξ gets a ridge of 1e-9, because quadprog wants a strictly convex program; P is then exact."""
    rows, margin, group, capacity = case.program
    prior, d, m = case.prior, rows.shape[1], len(capacity)
    precision = np.diag(1 / prior.variance) if not prior.full else prior.precision
    matrix = np.zeros((d + m, d + m))
    matrix[:d, :d], matrix[d:, d:] = precision, 1e-9 * np.eye(m)
    signs = np.eye(d + m)[np.flatnonzero(prior.floor == 0)]
    left = np.vstack([np.hstack([rows, np.eye(m)[group]]), np.eye(d + m)[d:], signs])
    right = np.r_[margin, np.zeros(m + len(signs))]
    found = quadprog.solve_qp(matrix, np.r_[precision @ prior.centre, -capacity], left.T, right)[0]
    return primal(case, prior.feasible(found[:d]))


KINDS = [
    "plain",
    "non-negative",
    "diagonal",
    "diagonal, non-negative",
    "full",
    "full, non-negative",
]


@pytest.mark.parametrize("kind", KINDS)
def test_the_solver_agrees_with_an_independent_qp_solver(kind):
    for seed in range(60):
        case = make_case(seed, kind)
        best = independent_optimum(case)
        solver = Solver(case.C, seed, case.prior)
        solver.process(solver.insert(case.constraints))
        solver.ascend(TIGHT)
        lower, w = solver.bound(), solver.candidate()
        assert lower <= best * (1 + 1e-9) + 1e-9, seed
        assert lower == pytest.approx(best, rel=1e-6, abs=1e-6), seed
        assert primal(case, w) == pytest.approx(best, rel=1e-6, abs=1e-6), seed
        assert (w >= case.prior.floor).all(), seed


def test_a_partner_that_has_little_to_give_makes_way_for_the_next():
    """One partner a visit left D at 3.46 after a thousand sweeps, because the one with the least gradient held no α."""
    x = np.zeros((5, 4))
    x[0] = [-2.741379, -8.905918, -4.546708, -9.916466]
    x[1, :2] = [0.060144, 1.340215]
    x[4] = [-0.190122, -0.128954, -0.184174, -0.023509]
    margin = np.array([1.68291, 0.933483, 1.667248, 2.438523, 0.324338])
    keys = Keys(np.arange(6), np.arange(5, dtype=np.int32))
    constraints = Constraints(np.zeros(5, dtype=np.int64), np.full(5, 2.0), margin, rows_of(x, sparse=False), keys)
    solver = Solver(1.0, 0, Prior(4))
    solver.process(solver.insert(constraints))
    solver.ascend(Ascent(tolerance=1e-9, max_sweeps=50))
    case = Case(constraints, program_of(constraints, 4, 1.0), Prior(4), 1.0)
    assert solver.bound() == pytest.approx(independent_optimum(case), rel=1e-6)
