"""A cache in the middle of its ascent, for tests of the kernels."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from distdual.solver.cache import ConstraintCache, View
from distdual.solver.regularizer import Prior
from tests import naive
from tests.build import constraints_of

formats = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
PRIORS = ["no prior", "a diagonal prior", "a full prior", "no negative weights", "no negative weights and a prior"]
seeds = st.integers(0, 10**6)
some_groups = st.lists(st.integers(1, 6), min_size=1, max_size=6)
fills = st.sampled_from([0.0, 0.5, 1.0])


def make_prior(kind: str, n: int) -> Prior:
    rng = np.random.default_rng(n)
    mean, precision, nonnegative = rng.normal(size=n), rng.uniform(0.3, 3.0, n), np.arange(0, n, 2)
    root = rng.normal(size=(n, n))
    return {
        "no prior": Prior(n),
        "a diagonal prior": Prior(n, mean, precision),
        "a full prior": Prior(n, mean, root @ root.T + np.eye(n)),
        "no negative weights": Prior(n, nonnegative=nonnegative),
        "no negative weights and a prior": Prior(n, mean, precision, nonnegative),
    }[kind]


class State(NamedTuple):
    """A cache in the middle of its ascent, and the same written out."""

    program: naive.Program
    prior: Prior
    view: View
    w: Any
    v: Any

    @property
    def dual(self) -> float:
        return naive.dual_under(self.prior, self.program, self.view.alpha)

    @property
    def gradients(self) -> Any:
        return self.program.margin - self.program.rows @ self.w

    @property
    def slip(self) -> float:
        """What rounding may cost."""
        return 1e-12 * (1.0 + abs(self.dual) + float(self.w @ self.w))

    def dual_with(self, changes: dict[int, float]) -> float:
        alpha = self.view.alpha.copy()
        for k, value in changes.items():
            alpha[k] = value
        return naive.dual_under(self.prior, self.program, alpha)

    def check(self) -> None:
        assert naive.is_feasible(self.program, self.view.alpha)
        expected = naive.prior_weights(self.prior, naive.weights(self.program, self.view.alpha))
        np.testing.assert_allclose(self.w, expected, rtol=1e-9, atol=1e-9)


def state_of(rows, margin, group, alpha, *, cost=None, sparse=False, kind="no prior") -> State:
    constraints = constraints_of(rows, margin, group, cost=cost, sparse=sparse)
    prior = make_prior(kind, np.shape(rows)[1])
    cache = ConstraintCache(1.0, prior)
    cache.insert(constraints)
    program = naive.program_of(constraints, prior.n_weights, 1.0)
    view = cache.view()
    view.alpha[:] = alpha
    v = naive.weights(program, view.alpha)
    return State(program, prior, view, naive.prior_weights(prior, v), v)


def random_state(seed: int, sizes: list[int], *, sparse: bool = False, fill: float, kind: str = "no prior") -> State:
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
    return state_of(rows, rng.normal(1.0, 1.0, len(group)), group, alpha, cost=cost, sparse=sparse, kind=kind)
