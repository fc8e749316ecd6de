"""Mixtures of components keep the contract, with all components of other classes written out."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.problems.base import Keys
from distdual.problems.latent.base import Completed
from distdual.problems.latent.multiclass import LatentMulticlass
from distdual.problems.registry import problem_from
from distdual.testing import ProblemContract
from tests import naive
from tests.build import as_sparse, compiling, examples, shard_of

CLASSES = ("a", "b", "c")
LOSS = [[0, 1, 2], [0.5, 0, 1], [3, 1, 0]]


def three_classes(seed: int, n: int = 12, *, cost: bool = False) -> Shard:
    made = examples(seed, n, 3, cost=cost)
    made.x[:, 0] += made.x[:, 0] == 0.0
    y = np.random.default_rng(seed).integers(3, size=n).astype(np.int32)
    return shard_of(made._replace(y=y), number=1, first=20)


def completed(problem: LatentMulticlass, shard: Shard) -> Completed:
    return Completed(problem, problem.draw(shard, 0), shard.first)


def every_component(problem: Completed, shard: Shard, i: int) -> dict[tuple[int, ...], tuple[Any, float, float]]:
    return naive.mixture_constraints(problem.problem, shard, i, int(problem.values[i]))


class MixtureContract(ProblemContract):
    modules = ("distdual.problems.latent.multiclass", "distdual.problems.multiclass")
    every_constraint = staticmethod(every_component)

    def test_it_comes_back_from_its_description(self):
        assert problem_from(self.problem.describe()) == self.problem.problem

    def test_it_travels_to_workers(self):
        there = pickle.loads(pickle.dumps(self.problem))
        assert there.problem == self.problem.problem
        np.testing.assert_array_equal(there.values, self.problem.values)


class TestMixtures(MixtureContract):
    shard = three_classes(0)
    problem = completed(LatentMulticlass(n_features=3, classes=CLASSES, components=2), shard)


class TestMixturesWithLossBiasAndCosts(MixtureContract):
    shard = three_classes(1, cost=True)
    problem = completed(
        LatentMulticlass(
            n_features=3, classes=CLASSES, components=3, bias=0.5, loss=LOSS, class_cost={"b": 2.0}, min_examples=2
        ),
        shard,
    )


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@given(seed=st.integers(0, 1000), components=st.integers(1, 3))
@compiling
def test_what_is_imputed_has_the_smallest_slack_of_all(sparse, seed, components):
    shard = as_sparse(three_classes(seed)) if sparse else three_classes(seed)
    problem = LatentMulticlass(n_features=3, classes=CLASSES, components=components, bias=1.0, loss=LOSS)
    w = np.random.default_rng(seed).normal(size=problem.n_weights)
    values = problem.impute(w, shard)
    slack = Completed(problem, values, shard.first).offenders(w, shard).slack
    for i in range(shard.n_examples):
        own = range(shard.y[i] * components, (shard.y[i] + 1) * components)
        assert values[i] in own
        choices = [naive.mixture_constraints(problem, shard, i, h).values() for h in own]
        each = [max(0.0, *(margin - row @ w for row, margin, _ in rows)) for rows in choices]
        assert slack[i] == pytest.approx(min(each), rel=1e-12, abs=1e-12)


def test_a_guess_is_the_nearest_mean_of_the_class():
    shard = three_classes(5, n=40)
    problem = LatentMulticlass(n_features=3, classes=CLASSES, components=2, bias=1.0)
    start = completed(problem, shard)
    x = naive.dense(shard.x, 3)
    means = np.array([x[start.values == h].mean(axis=0) for h in range(6)])
    for i, h in enumerate(problem.guess(start.summary(shard), shard)):
        own = means[2 * shard.y[i] : 2 * shard.y[i] + 2]
        assert h == 2 * shard.y[i] + ((x[i] - own) ** 2).sum(axis=1).argmin()


@given(seed=st.integers(0, 1000), least=st.integers(0, 6))
@compiling
def test_no_component_loses_more_than_it_may(seed, least):
    rng = np.random.default_rng(seed)
    problem = LatentMulticlass(n_features=1, classes=("a", "b"), components=3, min_examples=least)
    y = rng.integers(2, size=30)
    old, new = (y * 3 + rng.integers(3, size=30, dtype=np.int32) for _ in range(2))
    settled = problem.settle(old, new)
    assert ((settled == old) | (settled == new)).all()
    before, after = np.bincount(old, minlength=6), np.bincount(settled, minlength=6)
    assert (after >= np.minimum(before, least)).all()
    if (np.bincount(new, minlength=6) >= least).all():
        np.testing.assert_array_equal(settled, new)


def test_keys_move_to_the_component_that_is_imputed():
    shard = three_classes(0)
    done = completed(LatentMulticlass(n_features=3, classes=CLASSES, components=2), shard)
    keys = Keys(np.array([0, 2, 4]), np.array([0, 3, 5, 1], dtype=np.int32))
    assert done.rebase(shard, np.array([4, 7]), keys).values.tolist() == [done.values[4], 3, done.values[7], 1]
    assert keys.values.tolist() == [0, 3, 5, 1]


@pytest.mark.parametrize("key", [(0, 9), (0, -1), (1, 2), (0, 1), (0,)])
def test_a_forged_key_is_refused(key):
    shard = three_classes(0)
    shard.y[0] = 0
    problem = LatentMulticlass(n_features=3, classes=CLASSES, components=2)
    values = (2 * shard.y).astype(np.int32)
    keys = Keys(np.array([0, len(key)]), np.array(key, dtype=np.int32))
    with pytest.raises(InputError, match=r"components|1 numbers, expected 2"):
        Completed(problem, values, shard.first).check_keys(shard, np.array([0]), keys)


def test_a_component_of_another_class_is_refused_as_latent_value():
    shard = three_classes(0)
    problem = LatentMulticlass(n_features=3, classes=CLASSES, components=2)
    values = (2 * shard.y).astype(np.int32)
    values[3] += 2
    with pytest.raises(InputError, match="example 23 cannot have the latent value"):
        Completed(problem, values, shard.first).check_latent(shard)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"components": 0}, "problem.components must be at least 1"),
        ({"min_examples": -1}, "problem.min_examples at least 0"),
        ({"loss": [[0]]}, "3 rows of 3 numbers"),
        ({"bias": float("nan")}, "bias must be finite"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        LatentMulticlass(n_features=3, classes=CLASSES, **options)


def test_the_class_of_the_best_component_is_predicted():
    problem, shard = LatentMulticlass(n_features=3, classes=CLASSES, components=2, bias=2.0), three_classes(0)
    w = np.random.default_rng(0).normal(size=24)
    features = np.hstack([naive.dense(shard.x, 3), np.full((12, 1), 2.0)])
    np.testing.assert_array_equal(problem.predict(w, shard), (features @ w.reshape(6, 4).T).argmax(axis=1) // 2)
