"""ε-insensitive regression keeps the contract and has the answers of scikit-learn's LinearSVR."""

from typing import Any

import numpy as np
import pytest
from sklearn.svm import LinearSVR

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.model.predict import predict
from distdual.problems.regression import Regression
from distdual.testing import ProblemContract
from tests import naive
from tests.build import examples, rows_of


def targets(seed: int, *, cost: bool = False) -> Shard:
    made = examples(seed, 18, 4, cost=cost)
    y = made.x @ np.arange(4.0) + np.random.default_rng(seed).normal(size=18)
    return Shard(2, 30, rows_of(made.x, sparse=False), y, made.cost)


def both_sides(problem: Regression, shard: Shard, i: int) -> dict[tuple[int, ...], tuple[Any, float, float]]:
    features = naive.dense(shard.x, problem.n_features)[i]
    if problem.bias:
        features = np.append(features, float(np.float32(problem.bias)))
    cost = 1.0 if shard.cost is None else float(shard.cost[i])
    low, high = shard.y[i] - problem.epsilon, -shard.y[i] - problem.epsilon
    return {(0,): (features, low, cost), (1,): (-features, high, cost)}


class RegressionContract(ProblemContract):
    every_constraint = staticmethod(both_sides)


class TestRegression(RegressionContract):
    problem, shard = Regression(n_features=4), targets(0)


class TestRegressionWithEverything(RegressionContract):
    problem, shard = Regression(n_features=4, bias=0.5, epsilon=0.0), targets(1, cost=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"epsilon": -1.0}, "epsilon must be at least 0"), ({"classes": ("a", "b")}, "numbers for labels")],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Regression(n_features=4, **options)


def test_the_optimum_is_that_of_scikit_learn(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5)).astype(np.float32)
    y = x @ np.array([1.0, -2, 0.5, 0, 3]) + rng.normal(size=300)
    prepare_arrays(x, y, str(tmp_path / "data"), "regression", shard_bytes=1000)
    result = distdual.train(
        {
            "data": {"url": str(tmp_path / "data")},
            "problem": {"kind": "regression", "epsilon": 0.2},
            "solver": {"C": 0.1, "gap": 1e-5},
            "output": {"url": str(tmp_path / "model")},
        }
    )
    peer = LinearSVR(epsilon=0.2, C=0.1, fit_intercept=False, tol=1e-10, max_iter=1_000_000).fit(x, y).coef_
    theirs = 0.5 * peer @ peer + 0.1 * np.maximum(0, abs(y - x @ peer) - 0.2).sum()
    assert result.certificate["upper"] == pytest.approx(theirs, rel=1e-4)
    assert distdual.verify(str(tmp_path / "model")).certified
    found = predict(str(tmp_path / "model"), str(tmp_path / "data"))
    np.testing.assert_allclose(found.labels, x @ result.model.w, rtol=1e-5, atol=1e-5)
    assert found.score["squared_error"] == pytest.approx(((x @ result.model.w - y) ** 2).mean(), rel=1e-5)


def test_a_margin_column_is_refused_because_it_would_mean_nothing(tmp_path):
    made = examples(0, 30, 4, margin=True)
    prepare_arrays(made.x, made.x[:, 0], str(tmp_path / "data"), "regression", margin=made.margin)
    with pytest.raises(InputError, match="has a margin column, which a regression problem does not use"):
        distdual.train(
            {
                "data": {"url": str(tmp_path / "data")},
                "problem": {"kind": "regression"},
                "output": {"url": str(tmp_path / "model")},
            }
        )
    assert not (tmp_path / "model").exists()
