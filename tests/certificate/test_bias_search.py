"""The best bias at given weights: as far as kinks are known, no other shift of all scores has less loss."""

import numpy as np
import pytest

from distdual.certificate.bias_search import at_best_bias, best_shift, change, shifted
from distdual.certificate.bounds import ShardLoss
from distdual.problems.free_bias import hinge_kinks, tube_kinks

RNG = np.random.default_rng(5)
EPSILON = 0.3


def hinge(residual, positive, cost, t):
    return float((cost * np.maximum(0.0, residual - np.where(positive, t, -t))).sum())


def tube(residual, _, cost, t):
    return float((cost * np.maximum(0.0, np.abs(residual - t) - EPSILON)).sum())


def kinks(loss, residual, positive, cost):
    return hinge_kinks(residual, positive, cost, 100) if loss is hinge else tube_kinks(residual, EPSILON, cost, 100)


def example(seed, n=40):
    rng = np.random.default_rng(seed)
    residual = np.round(rng.normal(size=n) + rng.normal(), 1)  # ties, and kinks at 0
    return residual, rng.random(n) < 0.4, rng.uniform(0.0, 2.0, n) * (rng.random(n) < 0.8)


@pytest.mark.parametrize("loss", [hinge, tube])
@pytest.mark.parametrize("seed", range(6))
def test_no_other_shift_has_less_loss(loss, seed):
    residual, positive, cost = example(seed)
    halves = [slice(0, 13), slice(13, None)]
    parts = [kinks(loss, residual[h], positive[h], cost[h]) for h in halves]
    t = best_shift(parts)
    tried = np.concatenate([residual, -residual, residual + EPSILON, residual - EPSILON, [0.0]])
    least = min(loss(residual, positive, cost, at) for at in tried)
    assert loss(residual, positive, cost, t) <= least + 1e-12
    losses = [ShardLoss(s, 0, loss(residual[h], positive[h], cost[h], 0.0), True) for s, h in enumerate(halves)]
    after = shifted(losses, parts, t)
    found, error = sum(each.loss for each in after), sum(each.fixed for each in after)
    assert abs(found - loss(residual, positive, cost, t)) <= error + 1e-13
    assert error < 1e-10


@pytest.mark.parametrize("loss", [hinge, tube])
@pytest.mark.parametrize("t", [-0.35, -0.1, 0.0, 0.1, 0.75])
def test_the_change_of_the_loss_is_that_of_the_examples(loss, t):
    residual, positive, cost = example(9)
    found, error = change(kinks(loss, residual, positive, cost), t)
    expected = loss(residual, positive, cost, t) - loss(residual, positive, cost, 0.0)
    assert abs(found - expected) <= error + 1e-13


def test_the_rounding_is_that_of_the_weights_that_were_scanned():
    residual, positive, cost = example(3)
    w, losses = np.array([1.0, 1e6]), [ShardLoss(0, 0, 1.0, True, 0.0, 0.0, 1e-8)]
    best, after = at_best_bias(w, losses, [kinks(hinge, residual + 1e6, positive, cost)], 1.0)
    assert abs(best[-1]) < 1e6 - 1
    assert after[0].error.at(float(np.linalg.norm(best))) >= losses[0].error.at(1e6)


def test_the_search_ends_where_kinks_are_no_longer_known():
    """It still improves, and the change is exact as far as it goes."""
    residual, positive, cost = np.arange(1.0, 11.0), np.ones(10, dtype=bool), np.ones(10)
    part = hinge_kinks(residual, positive, cost, 3)
    assert len(part.at) == 3
    t = best_shift([part])
    assert t == 4.0  # the first kink that is left out
    assert change(part, t)[0] == pytest.approx(hinge(residual, positive, cost, t) - residual.sum())


def test_examples_without_cost_have_no_say():
    part = hinge_kinks(np.array([5.0, 1.0]), np.array([True, True]), np.array([0.0, 1.0]), 9)
    assert best_shift([part]) == 1.0


def test_where_all_shifts_are_alike_nothing_moves():
    assert best_shift([hinge_kinks(np.array([-1.0, -2.0]), np.array([True, False]), np.ones(2), 9)]) == 0.0
    assert best_shift([tube_kinks(np.array([0.1]), EPSILON, np.ones(1), 9)]) == 0.0
