"""Multiclass problems keep the contract: any loss, both rescalings, biases, costs."""

from typing import Any

import numpy as np
import pytest

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.problems.base import Keys
from distdual.problems.multiclass import Multiclass
from distdual.testing import ProblemContract
from tests import naive
from tests.build import examples, rows_of

CLASSES = ("a", "b", "c")
LOSS = [[0, 1, 3], [2, 0, 0.5], [1, 1, 0]]


def three_classes(seed: int, *, cost: bool = False) -> Shard:
    made = examples(seed, 18, 4, cost=cost)
    y = np.random.default_rng(seed).integers(3, size=18).astype(np.int32)
    return Shard(2, 30, rows_of(made.x, sparse=False), y, made.cost)


def every_wrong_class(problem: Multiclass, shard: Shard, i: int) -> dict[tuple[int, ...], tuple[Any, float, float]]:
    """Written out: the loss, and the features placed at +y and −j."""
    features = naive.dense(shard.x, problem.n_features)[i]
    if problem.bias:
        features = np.append(features, float(np.float32(problem.bias)))
    y = int(shard.y[i])
    cost = float(problem.class_cost.get(problem.classes[y], 1.0)) * (1.0 if shard.cost is None else shard.cost[i])
    found = {}
    for j in range(len(problem.classes)):
        if j != y:
            loss = float(problem.loss[y][j]) if problem.loss else 1.0
            blocks = np.zeros((len(problem.classes), len(features)))
            blocks[y], blocks[j] = features, -features
            row = blocks.ravel() * (loss if problem.rescaling == "slack" else 1.0)
            found[(j,)] = (row, loss, cost)
    return found


class MulticlassContract(ProblemContract):
    every_constraint = staticmethod(every_wrong_class)


class TestMulticlass(MulticlassContract):
    problem, shard = Multiclass(n_features=4, classes=CLASSES), three_classes(0)


class TestMulticlassWithBiasAndCosts(MulticlassContract):
    problem = Multiclass(n_features=4, classes=CLASSES, bias=0.7, class_cost={"c": 3.0})
    shard = three_classes(1, cost=True)


class TestMulticlassWithLoss(MulticlassContract):
    problem, shard = Multiclass(n_features=4, classes=CLASSES, loss=LOSS), three_classes(2)


class TestMulticlassWithSlackRescaling(MulticlassContract):
    problem = Multiclass(n_features=4, classes=CLASSES, loss=LOSS, rescaling="slack", bias=1.0)
    shard = three_classes(3, cost=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": [[0, 1], [1, 0]]}, "3 rows of 3 numbers"),
        ({"loss": [[0, 1, "x"], [1, 0, 1], [1, 1, 0]]}, "3 rows of 3 numbers"),
        ({"loss": [[1, 1, 1], [1, 0, 1], [1, 1, 0]]}, "0 where the prediction is right"),
        ({"loss": [[0, -1, 1], [1, 0, 1], [1, 1, 0]]}, "not negative"),
        ({"rescaling": "both"}, "problem.rescaling"),
        ({"class_cost": {"d": 1.0}}, "names 'd'"),
        ({"bias": float("inf")}, "bias must be finite"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Multiclass(n_features=4, classes=CLASSES, **options)


@pytest.mark.parametrize("prior", [{}, {"precision": 2.0, "nonnegative": ["0:5"]}], ids=["plain", "prior"])
@pytest.mark.parametrize("rescaling", ["margin", "slack"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_run_is_certified_and_agrees_with_an_independent_solver(tmp_path, sparse, rescaling, prior):
    made = examples(5, 60, 4)
    y = np.random.default_rng(5).integers(3, size=60)
    y[made.x[:, 0] > 0.3] = 2
    names = np.array(CLASSES)[y]
    import scipy.sparse as sp

    x = sp.csr_matrix(made.x) if sparse else made.x
    prepare_arrays(x, names, str(tmp_path / "data"), "multiclass", shard_bytes=300)
    result = distdual.train(
        {
            "data": {"url": str(tmp_path / "data")},
            "problem": {"kind": "multiclass", "loss": LOSS, "rescaling": rescaling, "bias": 1.0},
            "solver": {"C": 0.2, "gap": 1e-6},
            "prior": prior,
            "output": {"url": str(tmp_path / "model")},
        }
    )
    checked = distdual.verify(str(tmp_path / "model"))
    assert checked.certified, checked.findings
    if not prior:
        problem = Multiclass(n_features=4, classes=CLASSES, loss=LOSS, rescaling=rescaling, bias=1.0)
        shard = Shard(0, 0, rows_of(made.x, sparse=False), y.astype(np.int32))
        best = naive.optimum(everything(problem, shard, 0.2)).upper
        assert result.certificate["lower"] == pytest.approx(best, rel=2e-6)


def everything(problem: Multiclass, shard: Shard, C: float) -> naive.Program:
    each = [(i, *found) for i in range(shard.n_examples) for found in every_wrong_class(problem, shard, i).values()]
    group, rows, margin, cost = (np.array(part) for part in zip(*each, strict=True))
    capacity = np.zeros(shard.n_examples)
    capacity[group] = C * cost
    return naive.Program(rows, margin, group, capacity)


def test_features_of_an_example_are_stored_once(tmp_path):
    from distdual.solver.cache import ConstraintCache
    from distdual.solver.regularizer import Prior

    problem, shard = Multiclass(n_features=4, classes=CLASSES), three_classes(0)
    cache = ConstraintCache(1.0, Prior(12))
    for step in (1, 2):
        keys = Keys(np.arange(19), ((shard.y + step) % 3).astype(np.int32))
        cache.insert(problem.constraints(shard, np.arange(18), keys))
    assert len(cache) == 36
    assert len(cache.rows.x) == 18
    cache.keep(np.array([0, 5, 20]))
    rows = naive.dense(cache.rows.view, 12)
    for k, (i, step) in enumerate([(0, 1), (5, 1), (2, 2)]):
        expected = every_wrong_class(problem, shard, i)[(int((shard.y[i] + step) % 3),)][0]
        np.testing.assert_allclose(rows[k], expected)
    assert len(cache.rows.x) == 3


@pytest.mark.parametrize("key", [-1, 3])
def test_a_forged_key_that_names_no_class_is_refused(key):
    problem, shard = Multiclass(n_features=4, classes=CLASSES), three_classes(0)
    keys = Keys(np.arange(3), np.array([0, key], dtype=np.int32))
    with pytest.raises(InputError, match=f"the class in the key of a constraint: {key} is not from 0 to 2"):
        problem.check_keys(shard, np.arange(2), keys)


def test_predictions_are_the_class_with_the_highest_score(tmp_path):
    problem, shard = Multiclass(n_features=4, classes=CLASSES, bias=2.0), three_classes(0)
    w = np.random.default_rng(0).normal(size=15)
    features = np.hstack([naive.dense(shard.x, 4), np.full((18, 1), 2.0)])
    np.testing.assert_array_equal(problem.predict(w, shard), (features @ w.reshape(3, 5).T).argmax(axis=1))


@pytest.mark.parametrize("n_classes", [3, 5, 12, 13, 24, 25])
def test_scores_are_products_however_many_classes_there_are(n_classes):
    rng = np.random.default_rng(n_classes)
    x = rng.normal(size=(7, 9)) * (rng.random((7, 9)) < 0.5)
    problem = Multiclass(n_features=9, classes=tuple(map(str, range(n_classes))), bias=0.5)
    w = rng.normal(size=problem.n_weights)
    blocks = w.reshape(n_classes, 10)
    expected = x.astype(np.float32).astype(float) @ blocks[:, :9].T + 0.5 * blocks[:, 9]
    for sparse in (False, True):
        shard = Shard(0, 0, rows_of(x, sparse=sparse), np.zeros(7, dtype=np.int32))
        ((_, scores),) = problem.score_blocks(w, shard)
        np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=1e-12)
