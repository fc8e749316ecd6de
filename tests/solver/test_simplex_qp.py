"""The optimum of a single slack group, against quadprog, from any feasible start."""

import numpy as np
import pytest

from distdual.solver.simplex_qp import best_alpha
from tests import naive


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_is_that_of_quadprog(seed, C):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 12)), int(rng.integers(1, 6))
    rows, margin = rng.normal(size=d) + 0.3 * rng.normal(size=(n, d)), rng.normal(size=n) + 0.5
    rows[-1] = rows[0]  # dependent rows
    program = naive.Program(rows, margin, np.zeros(n, dtype=np.int64), np.array([C]))
    expected = naive.optimum(program)
    start = rng.random(n)
    for alpha in (np.zeros(n), start * C / start.sum()):
        found = best_alpha(rows, margin, alpha, C)
        assert naive.is_feasible(program, found)
        assert naive.dual(program, found) == pytest.approx(expected.lower, rel=1e-6, abs=1e-9)


def test_large_rows_that_are_nearly_parallel_are_solved():
    rng = np.random.default_rng(0)
    rows = 1e5 * (np.ones(8) + 1e-3 * rng.normal(size=(30, 8)))
    margin, C = 1e5 * (0.3 + 1e-3 * rng.normal(size=30)), 1e-4
    found = best_alpha(rows, margin, np.zeros(30), C)
    w = found @ rows
    upper = 0.5 * w @ w + C * max(0.0, float((margin - rows @ w).max()))
    assert float(margin @ found) - 0.5 * w @ w == pytest.approx(upper, rel=1e-9)
