"""Ordinal regression keeps the contract, and has the optimum of LinearSVC on one example for each threshold."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.svm import LinearSVC

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.data.shard import Shard
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.model.predict import predict_to
from distdual.problems.base import Keys
from distdual.problems.ordinal import BITS, Ordinal
from distdual.testing import ProblemContract, dense, random_shard

CLASSES = ("1", "2", "3", "4")


def own_thresholds(problem: Ordinal, y: int) -> list[int]:
    every = range(problem.n_thresholds)
    return [k for k in every if problem.loss == "all" or k in (y - 1, y)]


def every_subset(problem: Ordinal, shard: Shard, i: int) -> dict[tuple[int, ...], tuple[Any, float, float]]:
    x, y, found = dense(shard.x, problem.n_features)[i], int(problem.ranks[shard.y[i]]), {}
    own = own_thresholds(problem, y)
    cost = problem.class_cost.get(problem.classes[shard.y[i]], 1.0)
    for size in range(len(own) + 1):
        for subset in itertools.combinations(own, size):
            row = np.zeros(problem.n_weights)
            for k in subset:
                sign = 1.0 if y > k else -1.0
                row[: problem.n_features] += sign * x
                row[problem.n_features + k] -= sign * problem.bias
            key = tuple(sum(1 << k % BITS for k in subset if k // BITS == part) for part in range(problem.key_length))
            found[key] = (row, float(size), cost)
    return found


class TestAllThresholds(ProblemContract):
    problem = Ordinal(n_features=4, classes=CLASSES, bias=0.5, class_cost={"2": 2.0})
    shard = random_shard(n_features=4, n_classes=4)
    every_constraint = staticmethod(every_subset)


class TestAdjacentThresholds(ProblemContract):
    problem = Ordinal(n_features=4, classes=("a", "b", "c"), order=["c", "a", "b"], loss="adjacent")
    shard = random_shard(n_features=4, n_classes=3, n_examples=6)
    every_constraint = staticmethod(every_subset)


def examples(n: int = 150) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    y = np.digitize(x @ [1.0, -1.0, 0.5] + 0.5 * rng.normal(size=n), [-1.0, 0.0, 1.0]) + 1
    return x, y


def objective_of_linear_svc(x: Any, y: Any, loss: str, C: float) -> float:
    """P(w*) where each example stands once for each of its thresholds."""
    problem = Ordinal(n_features=3, classes=CLASSES, loss=loss)
    pairs = [(i, k) for i in range(len(y)) for k in own_thresholds(problem, y[i] - 1)]
    wide = np.array([np.append(x[i], -np.eye(3)[k]) for i, k in pairs], dtype=float)
    sign = np.array([1.0 if y[i] - 1 > k else -1.0 for i, k in pairs])
    w = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-8, max_iter=1_000_000).fit(wide, sign).coef_[0]
    return 0.5 * float(w @ w) + C * float(np.maximum(0.0, 1.0 - sign * (wide @ w)).sum())


@pytest.mark.parametrize("loss", ["all", "adjacent"])
def test_the_optimum_is_that_of_an_example_for_each_threshold(tmp_path, loss):
    x, y = examples()
    prepare_arrays(scipy.sparse.csr_matrix(x) if loss == "all" else x, y, tmp_path / "data", "ordinal", shard_bytes=600)
    config = {
        "data": {"url": str(tmp_path / "data")},
        "problem": {"kind": "ordinal", "loss": loss},
        "solver": {"C": 0.5, "gap": 1e-5},
        "output": {"url": str(tmp_path / "model")},
    }
    found = distdual.train(config).certificate
    assert found["upper"] == pytest.approx(objective_of_linear_svc(x, y, loss, 0.5), rel=1e-4)
    assert distdual.verify(str(tmp_path / "model")).certified
    score = distdual.predict(str(tmp_path / "model"), str(tmp_path / "data")).score
    assert score["accuracy"] > 0.6
    assert score["class_error"] < 0.5


def test_the_estimator_predicts_labels_in_any_order(tmp_path):
    x, y = examples()
    words = np.array(["bad", "fair", "good", "best"])
    numbers = distdual.OrdinalSVC(gap=1e-5).fit(x, y)
    named = distdual.OrdinalSVC(gap=1e-5, order=list(words)).fit(x, words[y - 1])
    assert (np.diff(numbers.thresholds_) > 0).all()
    assert numbers.score(x, y) > 0.6
    assert (named.predict(x) == words[numbers.predict(x) - 1]).mean() > 0.99
    np.testing.assert_allclose(numbers.scores(x), x @ numbers.coef_)
    prepare_arrays(x, words[y - 1], tmp_path / "data", "ordinal")
    stored = distdual.OrdinalSVC(order=list(words)).fit(str(tmp_path / "data"))
    stored.save(str(tmp_path / "model"))
    loaded = distdual.OrdinalSVC.from_model(str(tmp_path / "model"))
    assert loaded.score(str(tmp_path / "data")) == loaded.score(x, words[y - 1]) > 0.6
    with pytest.raises(InputError, match=r"one score for all classes, .* leave --top out"):
        predict_to(Location(str(tmp_path / "top.csv")), str(tmp_path / "model"), str(tmp_path / "data"), top=2)


def test_more_thresholds_than_bits_need_longer_keys():
    classes = tuple(map(str, range(40)))
    problem, shard = Ordinal(n_features=2, classes=classes), random_shard(n_features=2, n_classes=40)
    assert problem.key_length == 2
    found = problem.offenders(np.zeros(41), shard)
    np.testing.assert_allclose(found.slack, 39.0)
    built = problem.rebuilt(shard, np.arange(20), found.keys)
    np.testing.assert_allclose(built.margin, 39.0)


@pytest.mark.parametrize(("key", "example"), [([8], 0), ([-1], 0), ([1, 1], 0)], ids=["beyond", "negative", "two"])
def test_a_forged_key_is_refused(key, example):
    problem, shard = Ordinal(n_features=4, classes=CLASSES), random_shard(n_features=4, n_classes=4)
    with pytest.raises(InputError, match=r"names thresholds that do not exist|2 numbers, expected 1"):
        problem.rebuilt(shard, np.array([example]), Keys(np.array([0, len(key)]), np.array(key, dtype=np.int32)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"classes": ("1",)}, "two labels or more"),
        ({"classes": ("low", "high")}, "give their order as problem.order"),
        ({"order": ["1", "2"]}, "name each label once"),
        ({"loss": "hinge"}, "problem.loss must be one of"),
        ({"bias": 0.0}, "problem.bias must be positive"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        Ordinal(**{"n_features": 2, "classes": CLASSES, **options})
