"""The solver finds the best α for the constraints it has, and what it calls `lower` never falls."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.problems.base import Constraints
from distdual.solver import solver as solving
from distdual.solver.ascent_plan import Ascent
from distdual.solver.gap import relative_gap
from distdual.solver.regularizer import Prior
from distdual.solver.solver import Solver
from tests import naive
from tests.build import compiling, constraints_of

WIDTH = 4
TIGHT = Ascent(tolerance=1e-7, max_sweeps=20_000)
ONCE = Ascent(tolerance=0.0, max_sweeps=1)

seeds = st.integers(0, 10**6)
group_sizes = st.lists(st.integers(1, 4), min_size=1, max_size=8)


def constraints(seed: int, sizes: list[int], *, sparse: bool = False) -> Constraints:
    """Groups of these sizes in a mixed order, with costs of their own."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = rng.normal(size=(len(group), WIDTH)) * (rng.random((len(group), WIDTH)) < 0.8)
    cost = rng.uniform(0.1, 2.0, len(sizes))[group]
    return constraints_of(rows, rng.uniform(-0.2, 2.0, len(group)), group, cost=cost, sparse=sparse)


def solver_of(*parts: Constraints, C: float = 1.0, seed: int = 0) -> Solver:
    solver = Solver(C, seed, Prior(WIDTH))
    for part in parts:
        solver.insert(part)
    return solver


def check(solver: Solver, program: naive.Program) -> None:
    alpha = solver.cache.alpha.view
    assert naive.is_feasible(program, alpha)
    np.testing.assert_allclose(solver.w, naive.weights(program, alpha), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0], ids=["small C", "C of 1", "large C"])
@pytest.mark.parametrize("sizes", [[1] * 20, [1, 2, 3, 4, 5, 6]], ids=["slacks of their own", "shared slacks"])
def test_it_agrees_with_an_independent_solver(sparse, C, sizes):
    for seed in range(10):
        given_constraints = constraints(seed, sizes, sparse=sparse)
        program = naive.program_of(given_constraints, WIDTH, C)
        best = naive.optimum(program)
        solver = solver_of(given_constraints, C=C)
        assert solver.ascend(TIGHT) <= 1e-7
        assert solver.bound() == pytest.approx(best.upper, rel=1e-6)
        assert solver.lower <= best.upper * (1 + 1e-12)
        assert naive.primal(program, solver.w) == pytest.approx(best.lower, rel=1e-6)
        check(solver, program)


@pytest.mark.parametrize("sizes", [[1] * 200, [1, 2, 3, 4, 5, 6] * 10], ids=["slacks of their own", "shared slacks"])
@pytest.mark.parametrize("fully", [True, False])
def test_doubling_reaches_the_optimum_of_a_large_C_and_D_never_falls_on_the_way(fully, sizes):
    given_constraints = constraints(3, sizes)
    program = naive.program_of(given_constraints, WIDTH, 1000.0)
    solver = solver_of(given_constraints, C=1000.0)
    solver.ease()
    assert solver.stage < 16
    assert np.log2(1000.0 / solver.stage) == int(np.log2(1000.0 / solver.stage))
    while solver.stage < 1000.0:
        before = solver.bound()
        solver.harden(1e-3, fully=fully)
        assert solver.dual_objective() >= before * (1 - 1e-12)
        check(solver, program)
    assert solver.stage == 1000.0
    assert solver.ascend(TIGHT) <= 1e-7
    assert solver.bound() == pytest.approx(naive.optimum(program).upper, rel=1e-5)


def test_a_moderate_C_needs_no_stages():
    solver = solver_of(constraints(3, [1] * 20), C=1.0)
    solver.ease()
    assert solver.stage == 1.0


@compiling
@given(
    seed=seeds, sizes=group_sizes, actions=st.lists(st.sampled_from(["new", "sweep", "prune", "visit"]), max_size=12)
)
def test_lower_never_falls_whatever_is_done(seed, sizes, actions):
    everything = constraints(seed, sizes)
    best = naive.optimum(naive.program_of(everything, WIDTH, 1.0), 1e-6)
    batches = iter(np.array_split(np.arange(len(everything.margin)), 3))
    solver = solver_of(everything.take(next(batches)))
    seen = [0.0]
    for action in actions:
        if action == "new":
            slots = solver.insert(everything.take(next(batches, np.arange(1))))
            solver.process(slots)
        elif action == "sweep":
            solver.ascend(ONCE)
        elif action == "visit":
            solver.reprocess(np.arange(len(solver.cache)), Ascent(0.0, 0, revisits=2, chunk=3))
        else:
            solver.bound()
            solver.prune(0)
        seen.append(solver.bound())
        if len(solver.cache):
            assert solver.cache_upper() >= solver.lower - 1e-12
    assert all(later >= earlier - 1e-12 for earlier, later in itertools.pairwise(seen))
    assert seen[-1] <= best.upper * (1 + 1e-9)


@compiling
@given(seed=seeds, sizes=group_sizes)
def test_constraints_that_come_in_parts_give_the_same_optimum(seed, sizes):
    everything = constraints(seed, sizes)
    parts = [everything.take(which) for which in np.array_split(np.arange(len(everything.margin)), 3)]
    solver = solver_of()
    for part in (part for part in parts if len(part.margin)):
        solver.process(solver.insert(part))
        solver.ascend(ONCE)
    solver.ascend(TIGHT)
    at_once = solver_of(everything)
    at_once.ascend(TIGHT)
    assert solver.bound() == pytest.approx(at_once.bound(), rel=1e-6, abs=1e-9)


def test_the_gap_it_returns_is_that_of_the_cached_problem():
    given_constraints = constraints(0, [1, 2, 3, 4])
    program = naive.program_of(given_constraints, WIDTH, 1.0)
    solver = solver_of(given_constraints)
    gap = solver.ascend(Ascent(tolerance=1e-3, max_sweeps=1000))
    lower, upper = naive.dual(program, solver.cache.alpha.view), naive.primal(program, solver.candidate())
    assert gap <= 1e-3
    assert gap == pytest.approx((upper - lower) / upper, rel=1e-6)
    assert solver.cache_upper() == pytest.approx(upper)


def test_it_stops_when_it_is_told_to():
    solver = solver_of(constraints(0, [6] * 20), C=100.0)
    solver.should_stop = lambda: True
    solver.ascend(TIGHT)
    early = solver.updates
    solver.should_stop = lambda: False
    solver.ascend(TIGHT)
    assert solver.updates > 3 * early


def test_nothing_to_do_is_nothing_done():
    solver = solver_of()
    assert solver.bound() == 0.0
    assert solver.ascend(TIGHT) == np.inf
    assert solver.n_support == 0
    assert solver.process(np.empty(0, dtype=np.int64)) == 0.0


def test_the_same_seed_gives_the_same_bits_and_another_seed_the_same_optimum():
    given_constraints = constraints(3, [2] * 10)
    first, same, other = (solver_of(given_constraints, seed=seed) for seed in (5, 5, 6))
    for solver in (first, same, other):
        solver.ascend(Ascent(tolerance=1e-6, max_sweeps=1000))
    np.testing.assert_array_equal(first.w, same.w)
    assert (first.w != other.w).any()
    assert first.bound() == pytest.approx(other.bound(), rel=1e-5)


def test_it_goes_on_where_another_run_ended():
    given_constraints = constraints(1, [3] * 6)
    done = solver_of(given_constraints)
    done.ascend(TIGHT)
    support = np.flatnonzero(done.cache.alpha.view)
    assert len(support) == done.n_support
    fresh = solver_of()
    fresh.start_from(given_constraints.take(support), done.cache.alpha.view[support])
    assert fresh.lower == pytest.approx(done.bound(), rel=1e-12)


def test_the_gap_of_an_optimum_of_zero_is_zero():
    assert relative_gap(0.0, 0.0) == 0.0
    assert relative_gap(2.0, 1.0) == 0.5


def test_a_bound_that_is_no_number_is_no_gap_of_zero():
    assert np.isnan(relative_gap(np.nan, 1.0))
    assert np.isnan(relative_gap(1.0, np.nan))
    assert relative_gap(0.0, 0.0) == 0.0


def test_an_ascent_does_not_end_because_ub_is_too_low(monkeypatch):
    sweep = Solver.sweep
    monkeypatch.setattr(Solver, "sweep", lambda self, *given: sweep(self, *given)._replace(estimate=-1.0))
    solver = solver_of(constraints(0, [1] * 40), C=3.0)
    assert solver.ascend(Ascent(tolerance=1e-3, max_sweeps=1000)) <= 1e-3
    assert relative_gap(solver.cached_objective(solver.candidate()), solver.bound()) <= 1e-3


@pytest.mark.parametrize("sizes", [[1] * 40, [3] * 20, [2, 3]], ids=["slacks of their own", "shared", "two groups"])
def test_an_ascent_ends_where_the_averaged_w_is_near_enough_whatever_ub_says(sizes, monkeypatch):
    plan = Ascent(tolerance=1e-3, max_sweeps=1000)
    spent = []
    for nearly in (1.0, 1e6):
        monkeypatch.setattr(solving, "NEARLY", nearly)
        solver = solver_of(constraints(0, sizes), C=3.0)
        assert solver.ascend(plan) <= 1e-3
        spent.append(solver.updates)
    assert spent[1] <= spent[0]
    assert relative_gap(solver.cached_objective(solver.candidate()), solver.bound()) <= 1e-3


TRUSTING = Ascent(tolerance=1e-3, max_sweeps=1000, trusting=True)


@pytest.fixture
def looks(monkeypatch):
    """The gaps that passes over the cache have shown."""
    found, look = [], Solver.cache_upper
    monkeypatch.setattr(Solver, "cache_upper", lambda self: found.append(look(self)) or found[-1])
    return found


def true_gap(solver: Solver) -> float:
    return relative_gap(solver.cached_objective(solver.candidate()), solver.dual_objective())


def test_an_ascent_looks_at_the_cache_until_a_scan_has_shown_how_far_off_ub_is(looks):
    solver = solver_of(constraints(0, [1] * 40), C=3.0)
    solver.ascend(TRUSTING)
    assert looks
    solver.learn(solver.cached_objective(solver.candidate()))  # as a scan shows it
    looks.clear()
    solver.insert(constraints(1, [1] * 80))
    assert solver.ascend(TRUSTING) <= 1e-3
    assert not looks
    assert solver.ascend(Ascent(tolerance=1e-4, max_sweeps=1000)) <= 1e-4
    assert looks, "others look"


def test_ub_that_was_seen_to_be_too_low_is_corrected_and_one_below_the_optimum_never_trusted(monkeypatch, looks):
    sweep = Solver.sweep

    def flattering(self, *given):
        found, lower = sweep(self, *given), self.dual_objective()
        return found._replace(estimate=lower + 0.05 * (self.cached_objective(self.candidate()) - lower))

    monkeypatch.setattr(Solver, "sweep", flattering)
    solver = solver_of(constraints(0, [1] * 40), C=3.0)
    solver.trust = 1.0
    solver.ascend(TRUSTING)
    assert 5e-3 < true_gap(solver) <= 2e-2
    solver.learn(solver.cached_objective(solver.candidate()))
    solver.insert(constraints(1, [1] * 80))
    solver.ascend(TRUSTING)
    assert true_gap(solver) <= 1e-3
    assert not looks
    monkeypatch.setattr(Solver, "sweep", lambda self, *given: sweep(self, *given)._replace(estimate=-1.0))
    solver.insert(constraints(2, [1] * 160))
    solver.ascend(TRUSTING)
    assert looks
    assert true_gap(solver) <= 1e-3
