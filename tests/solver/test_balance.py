"""A balanced α is feasible, costs little, and never has a lower D than the one before."""

import numpy as np
import pytest

from distdual.solver.balance import Balanced, balanced_dual, better, last_column, scaled_to_balance
from distdual.solver.regularizer import Prior
from tests.build import rows_of

RNG = np.random.default_rng(1)


def case(seed, n=30):
    rng = np.random.default_rng(seed)
    capacity = rng.uniform(0.5, 2.0, n)
    alpha = capacity * np.clip(rng.normal(0.5, 0.7, n), 0.0, 1.0)
    return alpha, capacity, rng.choice([-4.0, 4.0], n) * rng.uniform(0.5, 1.0, n)


@pytest.mark.parametrize("seed", range(5))
def test_the_heavier_side_is_scaled_down_until_the_sum_is_zero(seed):
    alpha, capacity, column = case(seed)
    found = scaled_to_balance(alpha, capacity, column)
    assert abs(found @ column) <= 1e-13 * (alpha @ np.abs(column))
    assert (found >= 0).all()
    assert (found <= alpha).all()
    lighter = column * np.sign(alpha @ column) <= 0
    assert (found[lighter] == alpha[lighter]).all()


def test_alpha_at_its_bound_stays_where_free_alpha_suffice():
    alpha, capacity = np.array([1.0, 1.0, 0.5, 1.8]), np.array([1.0, 1.0, 1.0, 2.0])
    found = scaled_to_balance(alpha, capacity, np.array([1.0, 1.0, 1.0, -1.0]) * 2.0)
    np.testing.assert_allclose(found, [0.72, 0.72, 0.36, 1.8])  # the free one does not suffice
    found = scaled_to_balance(np.array([1.0, 1.0, 0.5, 1.8]), capacity * [1, 1, 1, 1], np.array([1.0, 0.5, 1.0, -1.0]))
    np.testing.assert_allclose(found, [1.0, 1.0, 0.3, 1.8])


def test_one_side_alone_leaves_nothing():
    assert not scaled_to_balance(np.ones(3), np.full(3, 2.0), np.ones(3)).any()


@pytest.mark.parametrize("sparse", [False, True])
def test_the_last_column_is_that_of_the_bias(sparse):
    x = RNG.normal(size=(5, 4)) * (RNG.random((5, 4)) < 0.5)
    np.testing.assert_allclose(last_column(rows_of(x, sparse=sparse), 4), x.astype(np.float32)[:, -1])


@pytest.mark.parametrize("precision", [None, np.array([2.0, 0.5, 1.0])], ids=["plain", "diagonal"])
def test_d_never_falls_below_the_last_balanced_alpha(precision):
    prior, margin = Prior(3, precision=precision, free=1.0), np.ones(4)
    x = np.array([[1.0, 2.0, 1.0], [0.5, -1.0, -1.0], [2.0, 1.0, 1.0], [-1.0, 1.0, -1.0]])

    def at(alpha):
        return Balanced(alpha, alpha @ x, balanced_dual(prior, margin, alpha, alpha @ x))

    old, new = at(np.array([0.1, 0.1, 0.0, 0.0])), at(np.array([3.0, 1.0, 0.0, 2.0]))
    assert new.dual < old.dual
    found = better(prior, margin, old, new)
    assert found.dual >= old.dual
    assert (found.alpha - old.alpha).max() > 0
    assert abs(found.alpha @ x[:, -1]) < 1e-12
    assert better(prior, margin, new, old) is old
