"""Free α move together to where D(α) is largest on their face, stay feasible, and never lower D(α)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.solver import free_set_cg as face
from tests import naive
from tests.build import compiling, python_kernels
from tests.coordinator.midway import State, fills, formats, random_state, seeds, some_groups, state_of


@pytest.fixture(params=["compiled", "in plain Python"], autouse=True, scope="module")
def kernels(request):
    if request.param == "compiled":
        yield
    else:
        with python_kernels(face.__name__):
            yield


def ascend_face(state: State, groups=None, budget: int = 10_000) -> tuple[float, int]:
    view = state.view
    chosen = np.arange(len(view.capacity)) if groups is None else np.asarray(groups, dtype=np.int64)
    places = (view.capacity, view.members, view.group_indptr, chosen)
    return face.ascend_face(view.rows, view.margin, view.alpha, view.curve, *places, state.w, budget)


def bent(seed: int, sizes: list[int], *, cost: float, sparse: bool = False, spread: float = 0.1) -> State:
    """Groups of these sizes, rows that nearly depend on each other, and α that add up to 1 in each group."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    rows = rng.normal(size=(1, len(group) + 2)) + 0.1 * rng.normal(size=(len(group), len(group) + 2))
    alpha = 1.0 / np.array(sizes)[group]
    best = (
        rng.uniform(1.0 - spread, 1.0 + spread, size=len(group)) * alpha
    )  # where no gradient is left, if there is room
    margin = rows @ (best @ rows)
    return state_of(rows, margin, group, alpha, cost=np.full(len(group), cost), sparse=sparse)


@formats
@compiling
@given(seed=seeds, sizes=some_groups, fill=fills, budget=st.integers(0, 200))
def test_a_move_of_free_alphas_is_feasible_and_gains_what_it_says(sparse, seed, sizes, fill, budget):
    state = random_state(seed, sizes, sparse=sparse, fill=fill)
    before, alpha = state.dual, state.view.alpha.copy()
    gain, _ = ascend_face(state, budget=budget)
    state.check()
    assert gain >= 0.0
    assert state.dual - before == pytest.approx(gain, rel=1e-6, abs=10 * state.slip)
    assert not state.view.alpha[alpha == 0.0].any()


@formats
@pytest.mark.parametrize("seed", range(3))
def test_where_no_bound_is_in_the_way_no_gradient_is_left(sparse, seed):
    state = bent(seed, [1, 2, 3], cost=2.0, sparse=sparse)
    start = float(np.abs(state.gradients).max())
    for _ in range(3):  # each leaves a thousandth of ⟨g, g⟩, in its own scale
        ascend_face(state)
    assert float(np.abs(state.gradients).max()) < 1e-3 * start
    state.check()


@pytest.mark.parametrize("seed", range(3))
def test_a_group_whose_slack_is_used_up_trades_until_its_gradients_are_equal(seed):
    state = bent(seed, [3, 4], cost=1.0, spread=0.01)
    before = state.dual
    spread = [float(np.ptp(state.gradients[state.program.group == i])) for i in (0, 1)]
    for _ in range(5):
        ascend_face(state)
    assert state.dual > before
    for i in (0, 1):
        own = state.program.group == i
        assert state.view.alpha[own].sum() == pytest.approx(1.0, rel=1e-12)
        assert np.ptp(state.gradients[own]) < 1e-2 * spread[i]
    state.check()


def test_what_would_leave_its_bounds_stops_there():
    """Without bounds α would go to (2, −1)."""
    state = state_of(np.eye(2), [2.0, -1.0], [0, 1], [0.5, 0.5])
    gain, _ = ascend_face(state)
    assert gain > 0.0
    np.testing.assert_allclose(state.view.alpha, [1.0, 0.0])
    state.check()


def test_other_groups_stay_where_they_are():
    state = bent(0, [2, 2], cost=2.0)
    ascend_face(state, [1])
    np.testing.assert_array_equal(state.view.alpha[:2], [0.5, 0.5])
    assert (state.view.alpha[2:] != 0.5).all()


def test_a_trade_needs_no_weight_of_its_own():
    """At the optimum two α are free, though there is but one weight: w = 0.1."""
    state = state_of([[1.0], [-1.0]], [0.5, 0.3], [0, 0], [0.9, 0.1])
    for _ in range(3):
        ascend_face(state)
    np.testing.assert_allclose(state.view.alpha, [0.55, 0.45])
    state.check()


def test_nothing_is_done_where_more_alphas_are_free_than_there_are_weights():
    state = state_of([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [1.0, 1.0, 1.0], [0, 1, 2], [0.1, 0.1, 0.1])
    assert ascend_face(state) == (0.0, 3)
    np.testing.assert_array_equal(state.view.alpha, [0.1, 0.1, 0.1])


def test_a_face_gets_there_where_sweeps_would_take_long():
    """Rows that nearly are the same, and an optimum whose α are all free."""
    state = bent(1, [1] * 6, cost=3.0)
    best = naive.optimum(state.program).lower
    short = best - state.dual
    for _ in range(3):
        ascend_face(state)
    assert best - state.dual < 0.01 * short
