"""Binary problems keep the contract, with and without bias, costs and margins."""

import numpy as np
import pytest

from distdual.errors import InputError
from distdual.problems.binary import Binary
from distdual.problems.registry import make_problem, problem_from
from distdual.testing import ProblemContract
from tests import naive
from tests.build import CLASSES, as_sparse, examples, shard_of

PLAIN = shard_of(examples(0, 20, 5), number=3, first=40)
WEIGHTED = shard_of(examples(1, 20, 5, cost=True, margin=True), number=1, first=20)


def only_constraint(problem, shard, i):
    return {(): naive.binary_constraint(problem, shard, i)}


class TestBinary(ProblemContract):
    problem, shard = Binary(n_features=5, classes=CLASSES), PLAIN
    every_constraint = staticmethod(only_constraint)


class TestBinaryWithBias(ProblemContract):
    problem, shard = Binary(n_features=5, classes=CLASSES, bias=0.3), PLAIN
    every_constraint = staticmethod(only_constraint)


class TestBinaryWithCostsAndMargins(ProblemContract):
    problem, shard = Binary(n_features=5, classes=CLASSES), WEIGHTED
    every_constraint = staticmethod(only_constraint)


class TestBinaryWithClassCost(ProblemContract):
    problem, shard = Binary(n_features=5, classes=CLASSES, class_cost={"1": 4.0}), PLAIN
    every_constraint = staticmethod(only_constraint)


class TestBinaryWithEverything(ProblemContract):
    problem, shard = Binary(n_features=5, classes=CLASSES, bias=-2.0, class_cost={"-1": 0.5, "1": 4.0}), WEIGHTED
    every_constraint = staticmethod(only_constraint)


@pytest.mark.parametrize("shard", [PLAIN, as_sparse(PLAIN)], ids=["dense", "sparse"])
@pytest.mark.parametrize("bias", [0.0, 2.0], ids=["without bias", "with bias"])
def test_the_predicted_label_is_the_sign_of_the_score(shard, bias):
    problem = Binary(n_features=5, classes=CLASSES, bias=bias)
    w = np.random.default_rng(0).normal(size=problem.n_weights)
    score = naive.dense(shard.x, 5) @ w[:5] + (bias * w[5] if bias else 0.0)
    np.testing.assert_array_equal(problem.predict(w, shard), score > 0)


def test_scores_of_shards_add_up_to_the_accuracy():
    problem = Binary(n_features=1, classes=CLASSES)
    a = problem.score(np.array([0, 1, 1]), np.array([0, 1, 0]))
    b = problem.score(np.array([1]), np.array([1]))
    assert (a["accuracy"] + b["accuracy"]) / (a["n"] + b["n"]) == 0.75


def test_a_bias_adds_one_weight():
    assert Binary(n_features=5, classes=CLASSES).n_weights == 5
    assert Binary(n_features=5, classes=CLASSES, bias=1.0).n_weights == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bias": float("nan")}, "problem.bias must be finite"),
        ({"bias": "one"}, "problem.bias must be a number"),
        ({"class_cost": {"2": 1.0}}, "names '2'; the labels are -1, 1"),
        ({"class_cost": {"1": -1.0}}, "must be a number of at least 0, got -1.0"),
        ({"class_cost": {"1": "much"}}, "must be a number of at least 0, got 'much'"),
        ({"class_costs": {}}, "unknown key class_costs; did you mean problem.class_cost"),
    ],
    ids=[
        "a bias that is no number",
        "a bias that is a word",
        "a cost for a label that is not there",
        "a negative cost",
        "a cost that is a word",
        "a key that is misspelt",
    ],
)
def test_an_option_it_cannot_use_is_an_error(options, message):
    with pytest.raises(InputError, match=message):
        make_problem("binary", options, n_features=5, classes=CLASSES)


@pytest.mark.parametrize("classes", [(), ("1",), ("1", "2", "3")], ids=["none", "one", "three"])
def test_labels_must_be_two(classes):
    with pytest.raises(InputError, match="needs a data set with two labels"):
        Binary(n_features=5, classes=classes)


def test_an_unknown_kind_is_an_error():
    with pytest.raises(InputError, match=r"problem.kind must be one of .*'binary'.*, got 'binari'"):
        problem_from({"kind": "binari", "n_features": 1, "classes": ["a", "b"]})
