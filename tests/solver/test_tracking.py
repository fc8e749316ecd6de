"""A stream is tracked as Usunier, Bordes and Bottou describe it, and no worse than they prove."""

import numpy as np
import pytest

from distdual.solver.ascent_plan import UNLIMITED_SWEEPS, Ascent
from distdual.solver.regularizer import Prior
from distdual.solver.solver import Solver
from tests.build import constraints_of

T, D, C = 60, 4, 2.0


def stream(seed):
    """Rows y x with ||x|| ≤ 1, some of them noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(T, D))
    x /= np.linalg.norm(x, axis=1).max()
    y = np.where((x @ np.ones(D) > 0) ^ (rng.random(T) < 0.15), 1.0, -1.0)
    return (y[:, None] * x).astype(np.float32)


def plan(K, *, process=True):
    return Ascent(0.0, 0, revisits=K, chunk=1, process=process)


def naive(rows, order, K, *, process):
    """Algorithms 1 and 2, where `order` gives the random choices; the averages w̄ after each example."""
    alpha, averages, turn = np.zeros(len(rows)), [], 0

    def step(i):
        w = alpha @ rows
        alpha[i] = np.clip(alpha[i] + (1 - w @ rows[i]) / (rows[i] @ rows[i]), 0.0, C)

    for t in range(len(rows)):
        if process:
            step(t)
        seen = []
        for _ in range(K):
            step(order[turn] % (t + 1))
            turn += 1
            seen.append(alpha @ rows)
        averages.append(np.mean(seen, axis=0))
    return alpha, np.array(averages)


def choices(state, n):
    """The solver's random numbers."""
    state, found = int(state), []
    for _ in range(n):
        state ^= state >> 12
        state = (state ^ (state << 25)) & (2**64 - 1)
        state ^= state >> 27
        found.append(((state * 0x2545F4914F6CDD1D) & (2**64 - 1)) >> 33)
    return found


def tracked(rows, K, seed, *, process=True):
    """The solver after each example: w̄, w and D(α)."""
    solver = Solver(C, seed, Prior(D))
    found = []
    for t in range(len(rows)):
        slots = solver.insert(constraints_of(rows[t : t + 1], [1.0], [t]))
        solver.reprocess(slots, plan(K, process=process))
        found.append((solver.candidate(averaged=True), solver.w.copy(), solver.dual_objective()))
    return solver, found


@pytest.mark.parametrize("process", [True, False], ids=["algorithm 2", "algorithm 1"])
@pytest.mark.parametrize("K", [1, 3])
def test_steps_and_averages_are_those_of_the_algorithms(K, process):
    rows = stream(0)
    order = choices(Solver(C, 5, Prior(D)).random[0], K * T)
    solver, found = tracked(rows, K, 5, process=process)
    alpha, averages = naive(rows.astype(float), order, K, process=process)
    np.testing.assert_allclose(solver.cache.alpha.view, alpha, atol=1e-12)
    np.testing.assert_allclose([average for average, _, _ in found], averages, atol=1e-12)
    assert solver.updates == T * (K + process)


def test_examples_in_one_report_are_taken_in_one_by_one():
    rows = stream(1)
    one_by_one, found = tracked(rows, 2, 3)
    together = Solver(C, 3, Prior(D))
    slots = together.insert(constraints_of(rows, np.ones(T), np.arange(T)))
    together.reprocess(slots, plan(2))
    np.testing.assert_allclose(together.cache.alpha.view, one_by_one.cache.alpha.view, atol=1e-12)
    np.testing.assert_allclose(together.candidate(averaged=True), found[-1][0], atol=1e-12)


def optimum(rows):
    solver = Solver(C, 0, Prior(D))
    solver.insert(constraints_of(rows, np.ones(len(rows)), np.arange(len(rows))))
    solver.ascend(Ascent(1e-9, UNLIMITED_SWEEPS))
    return solver.bound()


def primal(rows, w):
    return 0.5 * w @ w + C * np.maximum(0.0, 1.0 - rows @ w).sum()


@pytest.mark.parametrize("process", [True, False], ids=["theorem 3", "theorem 2"])
@pytest.mark.parametrize("K", [1, 10])
def test_the_tracking_inequality_holds(K, process):
    """Mean over t of (P_t(w̄_t) − P_t*) / (C t) ≤ µ(E[D_T* − δ_T] / (K T)), with µ(x) = √(2x) + x / C.

    δ_T ≥ 0 is what process steps gain; the bound without it is weaker, and holds for both.
    """
    excess, gaps, best = [], [], []
    for seed in range(4):
        rows = stream(seed)
        _, found = tracked(rows, K, seed, process=process)
        t = np.arange(1, T + 1)
        optima = np.array([optimum(rows[:n]) for n in t])
        values = np.array([primal(rows[:n].astype(float), found[n - 1][0]) for n in t])
        last = np.array([primal(rows[:n].astype(float), found[n - 1][1]) - found[n - 1][2] for n in t])
        assert (values >= optima - 1e-9).all()
        excess.append(((values - optima) / (C * t)).mean())
        gaps.append((last / (C * t)).mean())
        best.append(optima[-1])
    x = np.mean(best) / (K * T)
    bound = np.sqrt(2 * x) + x / C
    assert np.mean(excess) <= bound
    assert np.mean(gaps) <= bound
    assert np.mean(excess) > 0.001 * bound  # the bound is not empty
