"""Every step of the ascent is feasible, keeps w = Σ α x, and never lowers D(α)."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.coordinator import ascent
from distdual.coordinator.cache import ConstraintCache, View
from tests import naive
from tests.build import compiling, constraints_of, python_kernels


@pytest.fixture(params=["compiled", "in plain Python"], autouse=True, scope="module")
def kernels(request):
    if request.param == "compiled":
        yield
    else:
        with python_kernels(ascent.__name__):
            yield


formats = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


class State(NamedTuple):
    """A cache in the middle of its ascent, and the same written out."""

    program: naive.Program
    view: View
    w: np.ndarray

    @property
    def dual(self):
        return naive.dual(self.program, self.view.alpha)

    def check(self):
        assert naive.is_feasible(self.program, self.view.alpha)
        np.testing.assert_allclose(self.w, naive.weights(self.program, self.view.alpha), rtol=1e-9, atol=1e-9)


def state_of(rows, margin, group, alpha, *, C=1.0, cost=None, sparse=False) -> State:
    constraints = constraints_of(rows, margin, group, cost=cost, sparse=sparse)
    cache = ConstraintCache(C)
    cache.insert(constraints)
    program = naive.program_of(constraints, constraints_of(rows, margin, group).rows.values.shape[1], C)
    view = cache.view()
    view.alpha[:] = alpha
    return State(program, view, naive.weights(program, np.asarray(alpha)))


def step_one(state: State, k: int, most: float) -> float:
    view = state.view
    return ascent.ascend_one(view.rows, k, most, view.margin, view.alpha, view.norm2, state.w)


def step_shared(state: State, group: int) -> float:
    view = state.view
    slots = view.members[view.group_indptr[group] : view.group_indptr[group + 1]]
    return ascent.ascend_shared(view.rows, slots, view.capacity[group], view.margin, view.alpha, view.norm2, state.w)


def step_trade(state: State, k: int) -> None:
    """Slack group 0 holds all constraints."""
    view = state.view
    ascent.trade(view.rows, view.members, k, view.margin, view.alpha, view.norm2, state.w)


def one_pass(state: State, visit) -> float:
    return ascent.ascend_groups(*state.view, state.w, np.asarray(visit, dtype=np.int64))


def dual_with(state: State, changes: dict[int, float]) -> float:
    alpha = state.view.alpha.copy()
    for k, value in changes.items():
        alpha[k] = value
    return naive.dual(state.program, alpha)


ROWS = [[1.0, 0.0], [1.0, 2.0], [0.0, 0.0]]


@formats
@pytest.mark.parametrize("most", [0.0, 0.1, 0.5, 10.0], ids=lambda most: f"at most {most}")
@pytest.mark.parametrize(
    "start", [[0.2, 0.1, 0.1], [3.0, 0.1, 0.0], [0.0, 0.0, 0.0]], ids=["climbs", "falls back", "starts"]
)
@pytest.mark.parametrize("k", [0, 1, 2], ids=["a short row", "a long row", "a zero row"])
@pytest.mark.parametrize("margin", [1.0, 0.0, -1.0], ids=["margin 1", "margin 0", "margin -1"])
def test_one_step_is_the_best_feasible_step(sparse, most, start, k, margin):
    state = state_of(ROWS, [margin, 1.5 * margin, margin], [0, 1, 2], start, C=10.0, sparse=sparse)
    best = max(dual_with(state, {k: a}) for a in np.linspace(0.0, most, 201))
    gradient = margin * (1.5 if k == 1 else 1.0) - float(state.program.rows[k] @ state.w)

    met = step_one(state, k, most)

    assert met == pytest.approx(gradient)
    assert 0.0 <= state.view.alpha[k] <= most
    assert state.dual >= best - 1e-12
    state.check()


@formats
@pytest.mark.parametrize(
    "rows",
    [[[1, 0], [0, 1], [1, 1]], [[1, 2], [1, 2], [1, 2]], [[0, 0], [1, 0], [0, 0]]],
    ids=["rows that differ", "rows that are equal", "rows that are zero"],
)
@pytest.mark.parametrize("alpha", [[0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.3, 0.2, 0.5], [1.0, 0.0, 0.0]])
@pytest.mark.parametrize("margin", [[3, 1, 0.5], [1, 1, 1], [0.1, 2, 0.5]])
def test_a_trade_keeps_the_sum_and_is_the_best_with_the_worst_partner(sparse, rows, alpha, margin):
    state = state_of(rows, margin, [0, 0, 0], alpha, sparse=sparse)
    gradients = state.program.margin - state.program.rows @ state.w
    partners = [j for j in (1, 2) if alpha[j] > 0]
    partner = min(partners, key=lambda j: gradients[j], default=None)
    before = state.dual
    best = before
    if partner is not None:
        moves = np.linspace(0.0, alpha[partner], 201)
        best = max(dual_with(state, {0: alpha[0] + a, partner: alpha[partner] - a}) for a in moves)

    step_trade(state, 0)

    assert state.view.alpha.sum() == pytest.approx(sum(alpha), rel=1e-14)
    assert state.dual >= best - 1e-12
    state.check()


def test_a_trade_strictly_gains_where_the_slack_is_used_up():
    """Without trades α would be stuck at the first constraint met, far from the optimum."""
    state = state_of([[1, 0], [0, 1]], [0.5, 3.0], [0, 0], [1.0, 0.0])
    before = state.dual
    step_shared(state, 0)
    assert state.dual > before + 0.5
    assert state.view.alpha[1] > 0.5
    state.check()


def random_state(seed: int, sizes: list[int], *, sparse: bool, fill: float) -> State:
    """Groups of these sizes; `fill` is the share of their slack that is in use. Some rows are zero, some repeated."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = rng.normal(size=(len(group), 4)) * rng.choice([0.0, 0.1, 1.0, 10.0], size=(len(group), 1))
    rows[rng.random(rows.shape) < 0.3] = 0.0
    rows[rng.integers(len(rows))] = rows[0]
    cost = rng.choice([0.0, 0.5, 2.0], size=len(sizes), p=[0.1, 0.45, 0.45])[group]
    share = rng.random(len(group)) + 1e-3
    total = np.bincount(group, share, minlength=len(sizes))
    alpha = fill * cost * share / total[group]
    alpha[rng.random(len(group)) < 0.3] = 0.0
    return state_of(rows, rng.normal(1.0, 1.0, len(group)), group, alpha, cost=cost, sparse=sparse)


def slip(state: State) -> float:
    """What rounding may cost."""
    return 1e-12 * (1.0 + abs(state.dual) + float(state.w @ state.w))


@formats
@compiling
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    fill=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_a_pass_keeps_alpha_feasible_and_w_right_and_never_lowers_the_dual(sparse, seed, sizes, fill):
    state = random_state(seed, sizes, sparse=sparse, fill=fill)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        before = state.dual
        loss = one_pass(state, rng.permutation(len(sizes)))
        assert loss >= 0.0
        assert state.dual >= before - slip(state)
        state.check()


@formats
@compiling
@given(seed=st.integers(0, 10**6), size=st.integers(1, 6), fill=st.sampled_from([0.0, 0.5, 1.0]))
def test_a_group_alone_reaches_the_optimum_of_its_own(sparse, seed, size, fill):
    state = random_state(seed, [size], sparse=sparse, fill=fill)
    for _ in range(400):
        one_pass(state, [0])
    assert state.dual >= naive.optimum(state.program).lower * (1 - 1e-5) - slip(state)


@compiling
@given(seed=st.integers(0, 10**6), sizes=st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_only_the_groups_visited_are_changed(seed, sizes):
    state = random_state(seed, sizes, sparse=False, fill=0.5)
    before = state.view.alpha.copy()
    one_pass(state, [0])
    others = state.program.group != 0
    np.testing.assert_array_equal(state.view.alpha[others], before[others])


@formats
@compiling
@given(seed=st.integers(0, 10**6), sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_the_loss_of_the_cache_and_the_weights_are_those_written_out(sparse, seed, sizes):
    state = random_state(seed, sizes, sparse=sparse, fill=0.7)
    view = state.view
    loss = ascent.cache_loss(view.rows, view.margin, view.members, view.group_indptr, view.capacity, state.w)
    assert loss == pytest.approx(naive.primal(state.program, state.w) - 0.5 * state.w @ state.w, rel=1e-10, abs=1e-10)
    rebuilt = np.full(len(state.w), 7.0)
    ascent.rebuild(view.rows, view.alpha, rebuilt)
    np.testing.assert_allclose(rebuilt, state.w, rtol=1e-12, atol=1e-12)


def test_a_gradient_that_is_not_a_number_shows():
    state = state_of([[1.0, 0.0]], [1.0], [0], [0.0])
    state.w[0] = np.nan
    assert np.isnan(step_one(state, 0, 1.0))
