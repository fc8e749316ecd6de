"""Bags keep the contract, with all of their constraints written out, and so does what is imputed."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.problems.base import Keys
from distdual.problems.latent.bags import Latent, find_best_candidates
from distdual.problems.latent.base import Completed
from distdual.problems.registry import problem_from
from distdual.testing import ProblemContract
from tests import naive
from tests.build import CLASSES, as_sparse, compiling, rows_of

SIZES = [2, 1, 4, 3, 1, 5]


def bags(seed: int, sizes: list[int], *, width: int = 3, cost: bool = False) -> Shard:
    """Labels take turns, the first is negative. Features are eighths: sums of them are exact in single precision."""
    rng = np.random.default_rng(seed)
    x = np.round(8 * rng.normal(size=(sum(sizes), width))) / 8 * (rng.random((sum(sizes), width)) < 0.7)
    x[:, 0] += x[:, 0] == 0.0
    y = np.repeat(np.arange(len(sizes)) % 2, sizes).astype(np.int32)
    costs = rng.uniform(0, 2, len(sizes)) if cost else None
    return Shard(2, 30, rows_of(x, sparse=False), y, costs, None, np.concatenate([[0], np.cumsum(sizes)]))


def completed(problem: Latent, shard: Shard, seed: int = 0) -> Completed:
    return Completed(problem, problem.draw(shard, seed), shard.first)


def every_candidate(problem: Completed, shard: Shard, i: int) -> dict[tuple[int, ...], tuple[Any, float, float]]:
    return naive.bag_constraints(problem.problem, shard, i, int(problem.values[i]))


class BagContract(ProblemContract):
    modules = ("distdual.problems.latent.bags", "distdual.problems.linear")
    every_constraint = staticmethod(every_candidate)

    def test_it_comes_back_from_its_description(self):
        assert problem_from(self.problem.describe()) == self.problem.problem

    def test_it_travels_to_workers(self):
        there = pickle.loads(pickle.dumps(self.problem.part(self.shard.first + 2, self.shard.first + 4)))
        assert there.problem == self.problem.problem
        assert there.first == self.shard.first + 2
        np.testing.assert_array_equal(there.values, self.problem.values[2:4])


class TestBags(BagContract):
    shard = bags(0, SIZES)
    problem = completed(Latent(n_features=3, classes=CLASSES), shard)


class TestBagsWithBiasAndCosts(BagContract):
    shard = bags(1, SIZES, cost=True)
    problem = completed(Latent(n_features=3, classes=CLASSES, bias=0.75, class_cost={"1": 3.0}), shard, seed=1)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6))
@compiling
def test_what_is_imputed_has_the_smallest_slack_of_all(sparse, seed, sizes):
    shard = as_sparse(bags(seed, sizes)) if sparse else bags(seed, sizes)
    problem = Latent(n_features=3, classes=CLASSES, bias=1.0)
    w = np.random.default_rng(seed).normal(size=4)
    values = problem.impute(w, shard)
    slack = Completed(problem, values, shard.first).offenders(w, shard).slack
    for i, size in enumerate(sizes):
        choices = [naive.bag_constraints(problem, shard, i, h).values() for h in range(size)]
        each = [max(0.0, *(margin - row @ w for row, margin, _ in rows)) for rows in choices]
        assert slack[i] == pytest.approx(min(each), rel=1e-12, abs=1e-12)
        assert values[i] == 0 or i % 2 == 1


@pytest.mark.parametrize("run", [find_best_candidates, find_best_candidates.py_func], ids=["compiled", "python"])
def test_the_first_of_the_best_candidates_is_taken_and_a_nan_is_told(run):
    x = rows_of([[1.0], [3.0], [3.0], [2.0], [1.0]], sparse=False)
    best, bounds, asked = np.full(2, 7, dtype=np.int32), np.array([0, 3, 5]), np.array([True, False])
    run(x, bounds, asked, np.ones(1), best)
    assert best.tolist() == [1, 7]
    run(x, bounds, ~asked, np.ones(1), best)
    assert best.tolist() == [1, 0]
    x.values[3] = np.nan
    run(x, bounds, ~asked, np.ones(1), best)
    assert best.tolist() == [1, -1]


def test_a_guess_goes_from_the_negative_mean_towards_the_positive_one():
    shard = bags(3, SIZES)
    problem = Latent(n_features=3, classes=CLASSES)
    x = naive.dense(shard.x, 3)
    way = x[shard.y == 1].mean(axis=0) - x[shard.y == 0].mean(axis=0)
    for i, h in enumerate(problem.guess(problem.summary(shard), shard)):
        scores = x[shard.tokens[i] : shard.tokens[i + 1]] @ way
        assert h == (scores.argmax() if i % 2 else 0)


def test_keys_of_positives_move_to_what_is_imputed_and_those_of_negatives_stay():
    shard, problem = bags(0, SIZES), Latent(n_features=3, classes=CLASSES)
    done = Completed(problem, np.array([0, 0, 0, 2, 0, 4], dtype=np.int32), shard.first)
    keys = Keys(np.arange(4), np.array([3, 1, 0], dtype=np.int32))
    assert done.rebase(shard, np.array([2, 3, 5]), keys).values.tolist() == [3, 2, 4]


@pytest.mark.parametrize(
    ("example", "key"), [(2, [4]), (2, [-1]), (3, [0]), (2, [1, 1])], ids=["beyond", "negative", "not imputed", "two"]
)
def test_a_forged_key_is_refused(example, key):
    shard, problem = bags(0, SIZES), Latent(n_features=3, classes=CLASSES)
    done = Completed(problem, np.array([0, 0, 0, 2, 0, 4], dtype=np.int32), shard.first)
    keys = Keys(np.array([0, len(key)]), np.array(key, dtype=np.int32))
    with pytest.raises(InputError, match=r"candidate|2 numbers, expected 1"):
        done.check_keys(shard, np.array([example]), keys)


def test_a_forged_latent_value_is_refused():
    shard, problem = bags(0, SIZES), Latent(n_features=3, classes=CLASSES)
    with pytest.raises(InputError, match="example 33 cannot have the latent value 3"):
        Completed(problem, np.array([0, 0, 0, 3, 0, 0], dtype=np.int32), shard.first).check_latent(shard)


def test_bags_with_two_labels_are_refused():
    shard = bags(0, SIZES)
    shard.y[4] = 1
    with pytest.raises(InputError, match="bag 2: candidates have different labels"):
        Latent(n_features=3, classes=CLASSES).draw(shard, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "problem.rounds must be at least 1"),
        ({"restarts": 0}, "problem.restarts must be at least 1"),
        ({"init": "best"}, "problem.init"),
        ({"class_cost": {"2": 1.0}}, "names '2'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Latent(n_features=3, classes=CLASSES, **options)


def test_a_bag_is_positive_if_one_of_its_candidates_is():
    shard, problem = bags(4, SIZES), Latent(n_features=3, classes=CLASSES, bias=1.0)
    w = np.random.default_rng(4).normal(size=4)
    scores = naive.dense(shard.x, 3) @ w[:3] + w[3]
    expected = [int(max(scores[a:b]) > 0) for a, b in zip(shard.tokens[:-1], shard.tokens[1:], strict=True)]
    predicted = problem.predict(w, shard)
    assert problem.spell(shard, predicted).tolist() == expected
    np.testing.assert_array_equal(predicted, np.repeat(expected, SIZES))
    right = sum(e == i % 2 for i, e in enumerate(expected))
    assert problem.score_shard(shard, shard.y, predicted) == {"n": 6.0, "accuracy": right}
