"""What every problem must do, checked against all of its constraints written out.

A new problem is tested by three lines:

    class TestMine(ProblemContract):
        problem, shard = Mine(...), shard_of(...)
        every_constraint = staticmethod(naive.mine)
"""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from distdual.data.shard import Shard, run_arrays
from distdual.kernels.rows import OuterRows
from distdual.problems.base import Constraints, Keys, Problem
from distdual.problems.registry import problem_from
from tests import naive
from tests.build import as_sparse, python_kernels

SEEDS = [0, 1, 2]


class ProblemContract:
    """`shard` has dense features; the sparse form of it is made here."""

    problem: ClassVar[Problem]
    shard: ClassVar[Shard]
    modules: ClassVar[tuple[str, ...]] = ()
    """Files of distdual/problems, beside the problem's own, whose kernels it needs."""

    every_constraint: ClassVar[Callable[[Any, Shard, int], dict[tuple[int, ...], tuple[Any, float, float]]]]
    """(problem, shard, example of the shard) -> row, margin and cost of each of its constraints, by key."""

    @pytest.fixture(params=["dense", "sparse"])
    def examples(self, request: pytest.FixtureRequest) -> Shard:
        return self.shard if request.param == "dense" else as_sparse(self.shard)

    @pytest.fixture(params=["compiled", "in plain Python"], autouse=True)
    def kernels(self, request: pytest.FixtureRequest) -> Any:
        if request.param == "compiled":
            yield
        else:
            modules = [f"distdual.problems.{name}" for name in self.modules]
            with python_kernels(type(self.problem).__module__, *modules):
                yield

    @pytest.fixture(params=SEEDS, ids=lambda seed: f"weights {seed}")
    def w(self, request: pytest.FixtureRequest) -> Any:
        rng = np.random.default_rng(request.param)
        return rng.normal(size=self.problem.n_weights) * request.param  # the first are all zero

    def every(self, i: int) -> dict[tuple[int, ...], tuple[Any, float, float]]:
        return type(self).every_constraint(self.problem, self.shard, i)

    def test_the_slack_of_an_example_is_its_largest_violation(self, examples, w):
        slack = self.problem.offenders(w, examples).slack
        assert slack.dtype == np.float64
        for i in range(examples.n_examples):
            worst = max(margin - row @ w for row, margin, _ in self.every(i).values())
            assert slack[i] == pytest.approx(max(0.0, worst), rel=1e-12, abs=1e-12)

    def test_an_offender_attains_the_slack(self, examples, w):
        found = self.problem.offenders(w, examples)
        violated = np.flatnonzero(found.slack > 0)
        built = self.problem.constraints(examples, violated, found.keys.take(violated))
        rows = naive.dense(built.rows, self.problem.n_weights)
        assert rows.shape == (len(violated), self.problem.n_weights)
        np.testing.assert_allclose(built.margin - rows @ w, found.slack[violated], rtol=1e-12, atol=1e-12)

    def test_constraints_are_built_from_example_and_key_alone(self, examples, w):
        keys, wanted = self._all_keys()
        chosen = np.array([i for i, _ in wanted])
        built = self.problem.constraints(examples, chosen, keys)
        rows = naive.dense(built.rows, self.problem.n_weights)
        np.testing.assert_array_equal(built.example, examples.first + chosen)
        for k, (i, key) in enumerate(wanted):
            row, margin, cost = self.every(i)[key]
            np.testing.assert_allclose(rows[k], row, rtol=1e-6)  # rows are kept in single precision
            assert (built.margin[k], built.cost[k]) == pytest.approx((margin, cost), rel=1e-12)

    def test_no_constraints_asked_for_are_none_given(self, examples):
        built = self.problem.constraints(examples, np.empty(0, dtype=np.int64), Keys.none(0))
        assert len(built.margin) == len(built.example) == len(built.cost) == 0
        assert naive.dense(built.rows, self.problem.n_weights).shape[0] == 0

    def test_costs_are_those_of_the_constraints(self, examples):
        expected = [next(iter(self.every(i).values()))[2] for i in range(examples.n_examples)]
        np.testing.assert_allclose(self.problem.costs(examples), expected, rtol=1e-12)

    def test_dense_and_sparse_features_say_the_same(self, w):
        dense, sparse = self.shard, as_sparse(self.shard)
        a, b = self.problem.offenders(w, dense), self.problem.offenders(w, sparse)
        np.testing.assert_allclose(a.slack, b.slack, rtol=1e-12, atol=1e-12)
        keys, wanted = self._all_keys()
        chosen = np.array([i for i, _ in wanted])
        left, right = (self.problem.constraints(shard, chosen, keys) for shard in (dense, sparse))
        np.testing.assert_array_equal(
            naive.dense(left.rows, self.problem.n_weights), naive.dense(right.rows, self.problem.n_weights)
        )
        np.testing.assert_allclose(self.problem.predict(w, dense), self.problem.predict(w, sparse), rtol=1e-12)

    def test_a_feature_that_is_not_a_number_gives_a_slack_that_is_not_a_number(self, examples):
        broken = copy.deepcopy(examples)
        at = int(np.flatnonzero(broken.x.values.ravel())[0])
        broken.x.values.reshape(-1)[at] = np.nan
        slack = self.problem.offenders(np.ones(self.problem.n_weights), broken).slack
        assert np.isnan(slack).sum() == 1

    def test_its_inputs_stay_as_they_are(self, examples, w):
        before, weights = copy.deepcopy(examples), w.copy()
        found = self.problem.offenders(w, examples)
        self.problem.constraints(examples, np.arange(examples.n_examples), found.keys)
        self.problem.costs(examples)
        self.problem.predict(w, examples)
        np.testing.assert_array_equal(w, weights)
        assert_same_shard(examples, before)

    def test_what_it_returns_is_its_own(self, examples, w):
        """Changing a report must not change the shard that stays in a worker's memory."""
        before = copy.deepcopy(examples)
        found = self.problem.offenders(w, examples)
        built = self.problem.constraints(examples, np.arange(examples.n_examples), found.keys)
        features = built.rows.x if isinstance(built.rows, OuterRows) else built.rows
        for array in (*built[:3], features.values):
            array[...] = 1
        assert_same_shard(examples, before)

    def test_there_is_one_prediction_for_each_label(self, examples, w):
        predicted = self.problem.predict(w, examples)
        assert predicted.shape == examples.y.shape
        total = self.problem.score(examples.y, examples.y)
        assert total["n"] == len(examples.y)

    def test_it_comes_back_from_its_description(self):
        texts = {name: getattr(self.problem, name) for name in self.problem.texts}
        assert problem_from(json.loads(json.dumps(self.problem.describe())), texts=texts) == self.problem

    def test_it_travels_to_workers(self):
        assert pickle.loads(pickle.dumps(self.problem)) == self.problem

    def _all_keys(self) -> tuple[Keys, list[tuple[int, tuple[int, ...]]]]:
        """Every constraint of every example, the examples in reverse order."""
        wanted = [(i, key) for i in reversed(range(self.shard.n_examples)) for key in self.every(i)]
        lengths = [len(key) for _, key in wanted]
        values = [value for _, key in wanted for value in key]
        return Keys(np.concatenate([[0], np.cumsum(lengths)]), np.array(values, dtype=np.int32)), wanted


def assert_same_shard(a: Shard, b: Shard) -> None:
    for left, right in zip(
        (*a.x, a.y, a.cost, a.margin, a.tokens, *run_arrays(a.runs).values()),
        (*b.x, b.y, b.cost, b.margin, b.tokens, *run_arrays(b.runs).values()),
        strict=True,
    ):
        np.testing.assert_array_equal(left, right)


def arrays_of(constraints: Constraints) -> list[Any]:
    rows = constraints.rows
    parts = (*rows.x, *rows[1:]) if isinstance(rows, OuterRows) else rows
    return [np.asarray(part) for part in (*constraints[:3], *parts, *constraints.keys)]


def assert_same_constraints(a: Constraints, b: Constraints) -> None:
    """Bit for bit."""
    for left, right in zip(arrays_of(a), arrays_of(b), strict=True):
        np.testing.assert_array_equal(left, right)
        assert left.dtype == right.dtype
