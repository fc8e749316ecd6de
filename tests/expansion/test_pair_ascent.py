import numpy as np
import pytest

from distdual.expansion.pair_ascent import ascend_pairs, best_single
from tests import naive

DRAW = np.random.default_rng(2)


def program(m: int, rank: int, scale: float):
    """A kernel machine with features of its own: K = Φ Φᵀ, and the same as a program for quadprog."""
    features = DRAW.normal(size=(m, rank))
    sign = np.where(DRAW.random(m) < 0.5, 1.0, -1.0)
    most = scale * DRAW.random(m)
    margin = 0.5 + DRAW.random(m)
    kernel = features @ features.T + 1e-3 * np.eye(m)
    whole = np.linalg.cholesky(kernel)
    return kernel, sign, margin, most, naive.Program(sign[:, None] * whole, margin, np.arange(m), most)


def box(sign, most):
    return np.where(sign > 0, 0.0, -most), np.where(sign > 0, most, 0.0)


@pytest.mark.parametrize("run", [ascend_pairs, ascend_pairs.py_func], ids=["compiled", "python"])
@pytest.mark.parametrize("scale", [0.05, 1.0, 100.0], ids=["all at their bound", "mixed", "hardly bounded"])
def test_the_ascent_ends_at_the_optimum_that_a_qp_solver_finds(run, scale):
    kernel, sign, margin, most, same = program(14, 6, scale)
    low, high = box(sign, most)
    b, h = np.zeros(14), sign * margin

    run(kernel, b, h, low, high, np.diag(kernel).copy(), 0.0, 3000)

    best = naive.optimum(same)
    found = float(b @ (sign * margin) - 0.5 * b @ kernel @ b)
    assert found == pytest.approx(best.upper, rel=1e-5)
    assert found <= best.upper * (1 + 1e-9)
    assert ((low <= b) & (b <= high)).all()
    np.testing.assert_allclose(h, sign * margin - kernel @ b, atol=1e-9)


def test_every_step_gains():
    kernel, sign, margin, most, _ = program(30, 4, 1.0)
    low, high = box(sign, most)
    b, h, last = np.zeros(30), sign * margin, 0.0
    for _ in range(60):
        if not ascend_pairs(kernel, b, h, low, high, np.diag(kernel).copy(), 0.0, 1):
            break
        now = float(b @ (sign * margin) - 0.5 * b @ kernel @ b)
        assert now >= last - 1e-12
        last = now


def test_an_optimum_has_no_variable_that_gains():
    one = np.ones(1)
    none = np.zeros(1)
    assert best_single(one, none, none, 2 * one, one, 0.0) == -1
    assert best_single(2 * one, one, none, 2 * one, one, 0.0) == -1  # at its bound
    assert best_single(one, one, none, 2 * one, one, 0.0) == 0
    assert best_single(none, one, -one, 2 * one, one, 1.5) == -1  # within the tube
    assert best_single(one, 1.5 * one, -one, 2 * one, one, 1.5) == -1  # at its optimum


@pytest.mark.parametrize("run", [ascend_pairs, ascend_pairs.py_func], ids=["compiled", "python"])
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_coefficients_of_both_signs_end_at_the_optimum(run, epsilon):
    kernel, sign, margin, most, same = program(12, 5, 1.0)
    target = 2.0 * sign * margin
    features = same.rows * sign[:, None]
    rows = np.concatenate([features, -features])
    both = naive.Program(rows, np.concatenate([target, -target]) - epsilon, np.tile(np.arange(12), 2), most)
    b, h, last = np.zeros(12), target.copy(), 0.0
    for _ in range(40):
        run(kernel, b, h, -most, most, np.diag(kernel).copy(), epsilon, 50)
        now = float(b @ target - epsilon * np.abs(b).sum() - 0.5 * b @ kernel @ b)
        assert now >= last - 1e-12
        last = now
    best = naive.optimum(both)
    assert last == pytest.approx(best.upper, rel=1e-5)
    assert last <= best.upper * (1 + 1e-9)
    np.testing.assert_allclose(h, target - kernel @ b, atol=1e-9)
