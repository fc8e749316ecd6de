"""Every step of the ascent is feasible, keeps w = ∇R*(Σ α x), and never lowers D(α), with and without a prior."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.solver import active_set as newton
from distdual.solver import climb as climbs
from distdual.solver import extrapolate as strides
from distdual.solver import group_step as visits
from distdual.solver import sweep as ascent
from tests import naive
from tests.build import compiling, python_kernels
from tests.coordinator.midway import (
    PRIORS,
    State,
    fills,
    formats,
    random_state,
    seeds,
    some_groups,
    state_of,
)


@contextmanager
def in_python() -> Iterator[None]:
    modules = (each.__name__ for each in (ascent, climbs, visits, newton, strides))
    with python_kernels(*modules), np.errstate(over="ignore"):  # random numbers wrap around
        yield


@pytest.fixture(params=["compiled", "in plain Python"], autouse=True, scope="module")
def kernels(request):
    if request.param == "compiled":
        yield
    else:
        with in_python():
            yield


priors = pytest.mark.parametrize("kind", PRIORS)


def random_numbers() -> Any:
    return np.array([88172645463325252], dtype=np.uint64)


def sweep(state: State, groups: Any = None, *, shared: bool = True) -> tuple[float, float, Any]:
    """Gain, loss and what is active, of one pass over these groups; where none is shared, groups are slots."""
    view = state.view
    chosen = np.arange(len(view.capacity)) if groups is None else np.asarray(groups, dtype=np.int64)
    columns = (view.space, view.rows, view.margin, view.alpha, view.curve)
    active, order = np.empty(len(chosen), dtype=np.int64), ascent.shuffle_runs(chosen, random_numbers())
    if shared:
        places = (view.capacity, view.members, view.group_indptr, view.scratch, order)
        gain, loss, n = ascent.sweep_shared(*columns, *places, state.w, state.v, active, np.empty(0))
    else:
        gain, loss, n = ascent.sweep_single(*columns, view.most, order, state.w, state.v, active, np.empty(0))
    return gain, loss, active[:n]


def trade(state: State, k: int) -> float:
    """All constraints are in one group."""
    view = state.view
    columns = (view.space, view.rows, view.margin, view.alpha, view.curve)
    gain, _ = visits.trade(*columns, k, view.members, state.w, state.v)
    return gain


ROWS = [[1.0, 0.0], [1.0, 2.0], [0.0, 0.0]]


def every(**choices: Any) -> Iterator[dict[str, Any]]:
    """All combinations of the choices."""
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


@formats
@pytest.mark.parametrize("kind", PRIORS[:3])
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "as a group of one"])
@pytest.mark.parametrize("k", [0, 1, 2], ids=["a short row", "a long row", "a zero row"])
def test_one_step_is_the_best_feasible_step(sparse, kind, shared, k):
    for case in every(most=[0.0, 0.1, 10.0], start=[0.0, 0.5, 1.0], margin=[1.0, 0.0, -1.0]):
        most = case["most"]
        cost, alpha = [5.0, 5.0, 5.0], [0.1, 0.1, 0.1]
        cost[k], alpha[k] = most, case["start"] * most
        state = state_of(ROWS, [case["margin"]] * 3, [0, 1, 2], alpha, cost=cost, sparse=sparse, kind=kind)
        before, gradient = state.dual, state.gradients[k]
        best = max(state.dual_with({k: a}) for a in np.linspace(0.0, most, 51))

        gain, loss, _ = sweep(state, [k], shared=shared)

        assert loss == pytest.approx(most * max(0.0, gradient)), case
        assert gain == pytest.approx(state.dual - before, abs=1e-12), case
        assert 0.0 <= state.view.alpha[k] <= most, case
        assert state.dual >= best - 1e-12, case
        state.check()


@formats
@pytest.mark.parametrize("kind", PRIORS[:3])
@pytest.mark.parametrize(
    "rows",
    [[[1, 0], [0, 1], [1, 1]], [[1, 2], [1, 2], [1, 2]], [[0, 0], [1, 0], [0, 0]]],
    ids=["rows that differ", "rows that are equal", "rows that are zero"],
)
def test_a_trade_keeps_the_sum_and_is_the_best_with_the_worst_partner(sparse, kind, rows):
    alphas = [[0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.3, 0.2, 0.5], [1.0, 0.0, 0.0]]
    for case in every(alpha=alphas, margin=[[3, 1, 0.5], [1, 1, 1], [0.1, 2, 0.5]]):
        alpha = case["alpha"]
        state = state_of(rows, case["margin"], [0, 0, 0], alpha, sparse=sparse, kind=kind)
        before = best = state.dual
        partner = min((j for j in (1, 2) if alpha[j] > 0), key=lambda j: state.gradients[j], default=None)
        if partner is not None:
            moves = np.linspace(0.0, alpha[partner], 51)
            best = max(state.dual_with({0: alpha[0] + a, partner: alpha[partner] - a}) for a in moves)

        gain = trade(state, 0)

        assert gain == pytest.approx(state.dual - before, abs=1e-12), case
        assert state.view.alpha.sum() == pytest.approx(sum(alpha), rel=1e-14), case
        assert state.dual >= best - 1e-12, case
        state.check()


def test_a_slack_that_is_used_up_does_not_stop_the_ascent():
    """Without trades α would be stuck at the first constraint met, far from the optimum."""
    state = state_of([[1, 0], [0, 1]], [0.5, 3.0], [0, 0], [1.0, 0.0])
    before = state.dual
    sweep(state)
    assert state.dual > before + 0.5
    assert state.view.alpha[1] > 0.5
    state.check()


@pytest.mark.parametrize("first", [np.nextafter(1.0, 0.0), np.nextafter(1.0, 2.0)], ids=["a bit below", "a bit above"])
def test_a_slack_used_up_but_for_rounding_does_not_stop_the_ascent(first):
    state = state_of([[1, 0], [0, 1]], [0.5, 3.0], [0, 0], [first, 0.0])
    before = state.dual
    sweep(state)
    assert state.dual > before + 0.5
    state.check()


@formats
@priors
@compiling
@given(seed=seeds, sizes=some_groups, fill=fills)
def test_a_sweep_keeps_alpha_feasible_and_w_right_and_never_lowers_the_dual(sparse, kind, seed, sizes, fill):
    state = random_state(seed, sizes, sparse=sparse, fill=fill, kind=kind)
    for _ in range(3):
        before = state.dual
        gain, loss, _ = sweep(state)
        assert loss >= 0.0
        assert 0.0 <= gain <= state.dual - before + state.slip  # less where a weight was clipped on the way
        state.check()


@formats
@priors
@compiling
@given(seed=seeds, count=st.integers(1, 40), fill=fills)
def test_a_sweep_over_constraints_with_slacks_of_their_own_does_the_same(sparse, kind, seed, count, fill):
    state = random_state(seed, [1] * count, sparse=sparse, fill=fill, kind=kind)
    for _ in range(3):
        before = state.dual
        gain, loss, _ = sweep(state, shared=False)
        assert loss >= 0.0
        assert 0.0 <= gain <= state.dual - before + state.slip
        state.check()


@compiling
@given(seed=seeds, count=st.integers(1, 40), fill=fills)
def test_what_is_not_active_did_not_move(seed, count, fill):
    state = random_state(seed, [1] * count, fill=fill)
    before = state.view.alpha.copy()
    _, _, active = sweep(state, shared=False)
    still = np.setdiff1d(np.arange(count), active)
    np.testing.assert_array_equal(state.view.alpha[still], before[still])
    assert len(np.unique(active)) == len(active)


@formats
@compiling
@given(seed=seeds, size=st.integers(1, 6))
def test_a_group_alone_reaches_the_optimum_of_its_own(sparse, seed, size):
    rng = np.random.default_rng(seed)
    state = state_of(rng.normal(size=(size, 4)), rng.normal(1.0, 1.0, size), [0] * size, [0.0] * size, sparse=sparse)
    for _ in range(3000):
        sweep(state)
        upper = naive.primal(state.program, state.w)
        if upper - state.dual <= 1e-6 * upper:
            break
    assert state.dual == pytest.approx(naive.optimum(state.program, 1e-6).lower, rel=1e-5, abs=1e-9)


@formats
@compiling
@given(seed=seeds, size=st.integers(newton.LARGE, 40), width=st.integers(1, 30), fill=st.sampled_from([0.0, 0.5]))
def test_one_visit_finds_the_best_for_a_large_group(sparse, seed, size, width, fill):
    """Rows may depend on each other, as there may be more of them than weights, and some are there twice."""
    rng = np.random.default_rng(seed)
    rows, margin = rng.normal(size=(size, width)), rng.normal(1.0, 1.0, size)
    rows[-3:], margin[-3:] = rows[:3], margin[:3]
    state = state_of(rows, margin, [0] * size, fill * rng.dirichlet(np.ones(size)), sparse=sparse)
    before = state.dual
    gain, _, _ = sweep(state)
    state.check()
    assert state.dual - before == pytest.approx(gain, rel=1e-6, abs=1e-9)
    upper = naive.primal(state.program, state.w)
    assert upper - state.dual <= 1e-5 * upper


@compiling
@given(seed=seeds, sizes=st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_only_the_groups_visited_are_changed(seed, sizes):
    state = random_state(seed, sizes, fill=0.5)
    before = state.view.alpha.copy()
    sweep(state, [0])
    others = state.program.group != 0
    np.testing.assert_array_equal(state.view.alpha[others], before[others])


@formats
@compiling
@given(seed=seeds, sizes=some_groups)
def test_the_loss_of_the_cache_and_the_sum_of_rows_are_those_written_out(sparse, seed, sizes):
    state = random_state(seed, sizes, sparse=sparse, fill=0.7)
    view = state.view
    losses = np.empty(len(view.capacity))
    ascent.group_losses(view.rows, view.margin, view.members, view.group_indptr, view.capacity, state.w, losses)
    loss = losses.sum()
    assert loss == pytest.approx(naive.primal(state.program, state.w) - 0.5 * state.w @ state.w, rel=1e-10, abs=1e-10)
    v = np.full(len(state.w), 7.0)
    ascent.add_rows(view.rows, view.alpha, v)
    np.testing.assert_allclose(v, naive.weights(state.program, view.alpha), rtol=1e-12, atol=1e-12)


def climb(state: State, gain: float) -> None:
    """From a first sweep over 30 groups with this gain, of which one is still active."""
    with in_python():
        climbs.climb(state.view, np.array([0]), random_numbers(), state.w, state.v, gain, work=30, pace=strides.PACE)


def test_groups_of_one_are_swept_by_slot_and_others_by_group():
    alone = state_of([[2.0, 1.0], [1.0, 3.0]], [0.5, 1.0], [0, 1], [0.1, 0.1])
    together = state_of([[2.0, 1.0], [1.0, 3.0]], [0.5, 1.0], [0, 0], [0.1])
    assert climbs.is_single(alone.view)
    assert not climbs.is_single(together.view)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("gain", [-1e-30, 0.0, 1e-30, np.nan], ids=lambda gain: f"a gain of {gain}")
def test_a_climb_that_gains_nothing_more_ends_after(gain):
    """The one α is free, so it stays active, and it is the best already."""
    state = state_of([[2.0, 1.0]], [0.5], [0], [0.1])
    sweep(state)
    climb(state, gain)
    state.check()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("shared", [False, True], ids=["slacks of their own", "shared slacks"])
def test_a_climb_ends_even_if_rounding_feigns_gains_for_ever_with(shared, monkeypatch):
    state = state_of([[2.0, 1.0]] * (1 + shared), [0.5] * (1 + shared), [0] * (1 + shared), [0.1])
    with in_python(), monkeypatch.context() as patch:
        patch.setattr(climbs, "sweep_shared" if shared else "sweep_single", lambda *_: (1e-36, 0.0, 1))
        climb(state, 4e-36)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 100, 2000])
def test_an_order_has_each_place_once_and_changes_and_keeps_short_runs_of_neighbours(n):
    random, chosen = random_numbers(), 7 * np.arange(n)
    first, second = ascent.shuffle_runs(chosen, random), ascent.shuffle_runs(chosen, random)
    np.testing.assert_array_equal(np.sort(first), chosen)
    np.testing.assert_array_equal(np.sort(second), chosen)
    assert n < 2 or (first != second).any()
    neighbours = np.diff(first) == 7
    assert n < 2000 or neighbours.mean() > 0.8


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "alone"])
def test_the_mean_of_a_sweep_is_the_average_of_w_after_each_quarter(shared: bool) -> None:
    """Nothing moves in a sweep without room to improve, so the average is w itself; else it differs from the end."""
    rng = np.random.default_rng(0)
    n = 64
    state = state_of(rng.normal(size=(n, 3)), np.ones(n), np.arange(n), np.zeros(n))
    view, mean = state.view, np.zeros(3)
    columns = (view.space, view.rows, view.margin, view.alpha, view.curve)
    seen = [state.w.copy()]

    def once(mean: Any) -> None:
        active, order = np.empty(n, dtype=np.int64), ascent.shuffle_runs(np.arange(n), random_numbers())
        if shared:
            places = (view.capacity, view.members, view.group_indptr, view.scratch, order)
            ascent.sweep_shared(*columns, *places, state.w, state.v, active, mean)
        else:
            ascent.sweep_single(*columns, view.most, order, state.w, state.v, active, mean)
        seen.append(state.w.copy())

    once(mean)
    assert np.abs(mean - seen[1]).max() > 1e-6
    for _ in range(2000):
        once(np.empty(0))
    settled = np.zeros(3)
    once(settled)
    np.testing.assert_allclose(settled, state.w, atol=1e-6)


def stride_after(state: State, n_sweeps: int, groups: Any) -> tuple[float, Any, Any]:
    """The gain of a stride after so many sweeps over these groups, α before it, and its direction."""
    view, groups = state.view, np.asarray(groups, dtype=np.int64)
    before, w_before = np.full(len(view.alpha), np.nan), np.empty_like(state.w)
    strides.remember(view.alpha, view.members, view.group_indptr, groups, before, state.w, w_before)
    for _ in range(n_sweeps):
        sweep(state, groups)
    reached = view.alpha.copy()
    places = (view.capacity, view.members, view.group_indptr, groups, before, state.w, w_before)
    gain = strides.stride(view.rows, view.margin, view.alpha, *places)
    return gain, reached, np.nan_to_num(before)


@formats
@compiling
@given(seed=seeds, sizes=some_groups, n_sweeps=st.integers(0, 4), some=st.booleans())
def test_a_stride_is_feasible_and_ends_where_d_is_largest_on_its_way(sparse, seed, sizes, n_sweeps, some):
    state = random_state(seed, sizes, sparse=sparse, fill=0.5)
    groups = np.arange(len(sizes))[: 1 if some else None]
    gain, reached, along = stride_after(state, n_sweeps, groups)
    state.check()
    others = ~np.isin(state.program.group, groups)
    np.testing.assert_array_equal(state.view.alpha[others], reached[others])
    assert not along[reached == 0.0].any()
    before = naive.dual(state.program, reached)
    assert state.dual - before == pytest.approx(gain, rel=1e-6, abs=10 * state.slip)
    assert gain >= 0.0
    on_its_way = [naive.dual(state.program, reached + share * along) for share in np.linspace(0.0, 1.0, 21)]
    assert max(on_its_way) <= state.dual + 10 * state.slip


def test_a_stride_goes_all_of_a_way_that_sweeps_go_a_little_of():
    """Two rows that nearly are opposites: a sweep takes α a hundredth of the way to (C, C), a stride all of it."""
    state = state_of([[1.0, 0.1], [-1.0, 0.1]], [0.04, 0.04], [0, 1], [0.0, 0.0], cost=[5.0, 5.0])
    sweep(state)  # which finds the way
    gain, reached, _ = stride_after(state, 2, [0, 1])
    best = naive.optimum(state.program)
    assert naive.dual(state.program, reached) < 0.5 * best.lower
    assert gain > 0.0
    assert state.dual > 0.9 * best.lower


@pytest.mark.parametrize("toward", [0.0, 0.5, 1.0], ids=["a bit below C", "at C", "a bit above C"])
def test_a_group_at_its_bound_strides_along_a_trade_whatever_the_last_bit_of(toward):
    state = state_of([[1.0, 0.0], [0.0, 1.0]], [2.0, 1.0], [0, 0], [np.nextafter(0.5, toward), 0.5])
    view, w_before = state.view, np.array([0.3, 0.7])
    places = (view.capacity, view.members, view.group_indptr, np.array([0]), np.array([0.3, 0.7]), state.w, w_before)
    before = state.dual
    gain = strides.stride(view.rows, view.margin, view.alpha, *places)
    state.check()
    assert gain == pytest.approx(state.dual - before, abs=1e-12)
    np.testing.assert_allclose(view.alpha, [1.0, 0.0], atol=1e-12)
