"""The bounds hold for the stored numbers taken as exact, however ill-conditioned these are."""

import warnings
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

from distdual import SVC, SVR
from distdual.certificate.bounds import ShardLoss, upper_bound
from distdual.certificate.check_shard import check_shard
from distdual.certificate.rebuild import Support
from distdual.certificate.verify import dual_value
from distdual.data.in_memory import in_memory
from distdual.data.storage.location import Location
from distdual.model.dual import Dual
from distdual.model.io import DataInfo, Model
from distdual.problems.base import Keys
from distdual.problems.binary import Binary
from distdual.problems.regression import Regression
from distdual.solver.gap import is_certified
from distdual.solver.regularizer import Prior
from tests.exact import binary_constraints, exact, optimum, primal, regression_constraints

CASES = 200


class Case(NamedTuple):
    x: Any
    y: Any
    cost: Any
    margin: Any
    C: float
    regression: bool


def case_of(seed: int) -> Case:
    """Up to four examples; features, costs, margins and C of very different sizes, some of them denormal."""
    rng = np.random.default_rng(seed)
    n, width, wild = int(rng.integers(1, 5)), int(rng.integers(1, 4)), rng.random() < 0.5
    n = min(n, 3) if seed % 2 else n
    scale = 10.0 ** rng.choice([-40, -20, -3, 0, 3, 9, 18], size=(n, width)) if wild else 1.0
    x = (scale * rng.normal(size=(n, width))).astype(np.float32)
    if rng.random() < 0.3:
        x[-1] = x[0]
    cost = 10.0 ** rng.choice([-9, 0, 9, 20], size=n) if wild else rng.uniform(0.1, 2, n)
    C = float(10.0 ** rng.choice([-12, -3, 0, 3, 12])) if wild else 1.0
    if seed % 2:
        return Case(x, rng.normal(size=n), cost, np.ones(n), C, True)
    return Case(x, np.arange(n) % 2, cost, rng.uniform(-0.5, 3, n), C, False)


def capacity_of(case: Case) -> list[Fraction]:
    return [Fraction(case.C) * c for c in exact(case.cost)]


def constraints_of(case: Case) -> Any:
    if case.regression:
        return regression_constraints(case.x, case.y, 0.1)
    return binary_constraints(case.x, case.y, case.margin)


def bounds(case: Case, w: Any, alpha: Any) -> tuple[float, float]:
    """What `verify` computes, for one α an example."""
    n, width = case.x.shape
    data = in_memory(case.x, case.y, case.cost, None if case.regression else case.margin, regression=case.regression)
    made = Regression(n_features=width) if case.regression else Binary(n_features=width, classes=("0", "1"))
    keys = Keys(np.arange(n + 1), (case.y <= 0).astype(np.int32)) if case.regression else Keys.none(n)
    dual = Dual(np.arange(n), keys, alpha, np.empty(0))
    found = check_shard(data, made, w, 0, case.C, Support(dual, Location(".")))
    model = Model(w, made, case.C, Prior(width), dual, DataInfo("", "", n, data.checksum), {}, {})
    v = np.zeros(width)
    v[slice(None) if found.v.at is None else found.v.at] += found.v.values
    losses = [ShardLoss(0, 0, found.loss, True, *found.error)]
    upper = upper_bound(w, 0, losses, C=case.C, n_shards=1, prior=Prior(width))
    return dual_value(model, [found], v, upper.high).low, upper.high


@pytest.mark.parametrize("seed", range(CASES))
def test_the_exact_optimum_lies_between_the_bounds(seed):
    case = case_of(seed)
    if case.margin.size and not case.regression and len(set(case.y.tolist())) < 2:
        case = case._replace(y=np.append(case.y[:-1], 1), x=case.x)
        if len(case.y) == 1:
            case = case._replace(x=np.repeat(case.x, 2, axis=0), y=np.array([0, 1]), cost=np.repeat(case.cost, 2))
            case = case._replace(margin=np.repeat(case.margin, 2))
    rng = np.random.default_rng([seed, 1])
    rows, margins = constraints_of(case)
    best = optimum(rows, margins, capacity_of(case))
    alpha = rng.choice([0.0, 1e-9, 0.5, 1.0], size=len(case.y)) * (case.C * case.cost)
    signs = np.where(case.y > 0, 1.0, -1.0)
    for share in (1.0, float(rng.uniform(1e-12, 1))):
        w = (share * alpha * signs) @ case.x.astype(np.float64)
        lower, upper = bounds(case, w, share * alpha)
        assert Fraction(lower) <= best, (lower, float(best))
        assert best <= primal(rows, margins, capacity_of(case), w)
        if np.isfinite(upper):
            assert primal(rows, margins, capacity_of(case), w) <= Fraction(upper)


@pytest.mark.parametrize("seed", range(0, CASES, 5))
def test_what_training_certifies_is_true_in_exact_arithmetic(seed):
    case = case_of(seed)
    if not case.regression and len(set(case.y.tolist())) < 2:
        pytest.skip("a single class is no classification problem")
    made = SVR(C=case.C, epsilon=0.1, fit_intercept=False) if case.regression else SVC(C=case.C, fit_intercept=False)
    made.set_params(gap=1e-6, max_passes=30)
    case = case._replace(margin=np.ones(len(case.y)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.fit(case.x, case.y, sample_weight=case.cost)
    found = made.certificate_
    best = optimum(*constraints_of(case), capacity_of(case))
    assert Fraction(found["lower"]) <= best
    assert found["upper"] is None or not np.isfinite(found["upper"]) or best <= Fraction(found["upper"])
    assert found["rounding"] is None or found["rounding"] >= 0


def test_costs_that_cancel_are_never_certified():
    """Σ α l and 1/2 ||v||² of 1e20 each leave no digit of a difference of 1."""
    x = np.array([[1.0], [-1.0]], dtype=np.float32)
    case = Case(x, np.array([1, 0]), np.full(2, 1e20), np.ones(2), 1.0, False)
    alpha = np.array([1e20, 1e20])
    lower, upper = bounds(case, np.array([1.0]), alpha)
    assert Fraction(lower) <= optimum(*constraints_of(case), capacity_of(case)) <= Fraction(upper)
    assert not is_certified(2000.0, lower, 1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_never_certified(bad):
    assert not is_certified(bad, 1.0, 0.5)
    assert not is_certified(0.9, bad, 0.5)
    assert not is_certified(0.9, 1.0, abs(bad))


@pytest.mark.parametrize(("lower", "upper"), [(1.1, 1.0), (0.5, -1.0), (2.0, 0.0)])
def test_bounds_in_the_wrong_order_are_never_certified(lower, upper):
    assert not is_certified(lower, upper, 0.5)


def test_the_optimum_of_zero_is_certified_without_a_rounding_term():
    case = Case(np.ones((2, 1), dtype=np.float32), np.array([0, 1]), np.ones(2), -np.ones(2), 1.0, False)
    assert bounds(case, np.zeros(1), np.zeros(2)) == (0.0, 0.0)
