"""The contract suite for learning problems: a pytest class that a test of your own problem inherits.

    from distdual.testing import ProblemContract, random_shard

    class TestStars(ProblemContract):
        problem = Stars(n_features=4, classes=("1", "2", "3"))
        shard = random_shard(n_features=4, n_classes=3)

Every answer of the problem is compared with all constraints of each example, enumerated. Needs pytest.
"""

import copy
import json
import pickle
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import pytest

from distdual.data.shard import Shard, run_arrays
from distdual.kernels.rows import CsrRows, DenseRows, Features, Floats, OuterRows
from distdual.problems.base import Constraints, Keys, Problem
from distdual.problems.registry import is_own, problem_from
from distdual.problems.user.rows import kept_vector, row_differences

SEEDS = [0, 1, 2]

Enumerated = dict[tuple[int, ...], tuple[Any, float, float]]
"""Row, margin and cost of each constraint of one example, by key."""


def random_shard(*, n_features: int, n_classes: int, n_examples: int = 20, seed: int = 0) -> Shard:
    """Examples with random dense features, about a third of them zero, and random class numbers."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_examples, n_features)) * (rng.random((n_examples, n_features)) < 0.7)
    y = rng.integers(n_classes, size=n_examples)
    return Shard(0, 0, DenseRows(x.astype(np.float32)), y.astype(np.int32))


def every_output(problem: Any, shard: Shard, i: int) -> Enumerated:
    """The constraints of example i of a `UserProblem` that lists its `outputs`."""
    inputs = problem.inputs(shard)
    x = inputs.x(i)
    case = problem.case(inputs, i, x)
    outputs = problem.outputs(x)
    assert outputs is not None, f"{problem.kind} does not define outputs(x): set every_constraint in the test class"
    right, cost = kept_vector(problem.feature_map(x, case.right)), float(problem.costs(shard)[i])
    found = {}
    for y in outputs:
        loss = float(problem.loss(case.y_true, y))
        scale = np.array([loss]) if problem.slack_rescaled else None
        made = row_differences([right], [kept_vector(problem.feature_map(x, y))], problem.n_weights, scale)
        found[problem.encode(y)] = (dense(made.rows, problem.n_weights)[0], loss, cost)
    return found


class ProblemContract:
    """Set `problem`, `shard`, and `every_constraint` unless the problem is a `UserProblem` with `outputs`."""

    problem: ClassVar[Problem]

    shard: ClassVar[Shard]
    """A few examples with dense features; the tests also use their sparse form."""

    modules: ClassVar[tuple[str, ...]] = ()
    """Modules, beside the problem's own, whose Numba kernels are also tested as plain Python."""

    every_constraint: ClassVar[Any] = staticmethod(every_output)
    """(problem, shard, example of the shard) -> row, margin and cost of each of its constraints, by key."""

    @pytest.fixture(params=["dense", "sparse"])
    def examples(self, request: pytest.FixtureRequest) -> Shard:
        return self.shard if request.param == "dense" else as_sparse(self.shard)

    @pytest.fixture(params=["compiled", "in plain Python"], autouse=True)
    def kernels(self, request: pytest.FixtureRequest) -> Iterator[None]:
        if request.param == "compiled":
            yield
        else:
            with python_kernels(type(self.problem).__module__, *self.modules):
                yield

    @pytest.fixture(params=SEEDS, ids=lambda seed: f"weights {seed}")
    def w(self, request: pytest.FixtureRequest) -> Floats:
        rng = np.random.default_rng(request.param)
        weights: Floats = rng.normal(size=self.problem.n_weights) * request.param  # all zero for the first seed
        return weights

    def every(self, i: int) -> Enumerated:
        found: Enumerated = type(self).every_constraint(self.problem, self.shard, i)
        return found

    def test_the_slack_of_an_example_is_its_largest_violation(self, examples: Shard, w: Floats) -> None:
        slack = self.problem.offenders(w, examples).slack
        assert slack.dtype == np.float64
        for i in range(examples.n_examples):
            worst = max(margin - row @ w for row, margin, _ in self.every(i).values())
            assert slack[i] == pytest.approx(max(0.0, worst), rel=1e-12, abs=1e-12)

    def test_an_offender_attains_the_slack(self, examples: Shard, w: Floats) -> None:
        found = self.problem.offenders(w, examples)
        violated = np.flatnonzero(found.slack > 0)
        built = self.problem.constraints(examples, violated, found.keys.take(violated))
        rows = dense(built.rows, self.problem.n_weights)
        assert rows.shape == (len(violated), self.problem.n_weights)
        np.testing.assert_allclose(built.margin - rows @ w, found.slack[violated], rtol=1e-12, atol=1e-12)

    def test_constraints_are_built_from_example_and_key_alone(self, examples: Shard) -> None:
        keys, wanted = self._all_keys()
        chosen = np.array([i for i, _ in wanted])
        built = self.problem.constraints(examples, chosen, keys)
        rows = dense(built.rows, self.problem.n_weights)
        np.testing.assert_array_equal(built.example, examples.first + chosen)
        for k, (i, key) in enumerate(wanted):
            row, margin, cost = self.every(i)[key]
            np.testing.assert_allclose(rows[k], row, rtol=1e-6)  # rows are kept in single precision
            assert (built.margin[k], built.cost[k]) == pytest.approx((margin, cost), rel=1e-12)

    def test_no_keys_give_no_constraints(self, examples: Shard) -> None:
        built = self.problem.constraints(examples, np.empty(0, dtype=np.int64), Keys.none(0))
        assert len(built.margin) == len(built.example) == len(built.cost) == 0
        assert dense(built.rows, self.problem.n_weights).shape[0] == 0

    def test_costs_are_those_of_the_constraints(self, examples: Shard) -> None:
        expected = [next(iter(self.every(i).values()))[2] for i in range(examples.n_examples)]
        np.testing.assert_allclose(self.problem.costs(examples), expected, rtol=1e-12)

    def test_dense_and_sparse_features_say_the_same(self, w: Floats) -> None:
        both = (self.shard, as_sparse(self.shard))
        a, b = (self.problem.offenders(w, shard) for shard in both)
        np.testing.assert_allclose(a.slack, b.slack, rtol=1e-12, atol=1e-12)
        keys, wanted = self._all_keys()
        chosen = np.array([i for i, _ in wanted])
        left, right = (self.problem.constraints(shard, chosen, keys) for shard in both)
        np.testing.assert_array_equal(
            dense(left.rows, self.problem.n_weights), dense(right.rows, self.problem.n_weights)
        )
        first, second = (self.problem.predict(w, shard) for shard in both)
        if first.dtype.kind == "U":
            np.testing.assert_array_equal(first, second)
        else:
            np.testing.assert_allclose(first, second, rtol=1e-12)

    def test_a_nan_feature_gives_a_nan_slack(self, examples: Shard) -> None:
        broken = copy.deepcopy(examples)
        at = int(np.flatnonzero(broken.x.values.ravel())[0])
        broken.x.values.reshape(-1)[at] = np.nan
        slack = self.problem.offenders(np.ones(self.problem.n_weights), broken).slack
        assert np.isnan(slack).sum() == 1

    def test_inputs_are_not_modified(self, examples: Shard, w: Floats) -> None:
        before, weights = copy.deepcopy(examples), w.copy()
        found = self.problem.offenders(w, examples)
        self.problem.constraints(examples, np.arange(examples.n_examples), found.keys)
        self.problem.costs(examples)
        self.problem.predict(w, examples)
        np.testing.assert_array_equal(w, weights)
        assert_same_shard(examples, before)

    def test_results_share_no_memory_with_the_shard(self, examples: Shard, w: Floats) -> None:
        """Changing a report must not change the shard that stays in a worker's memory."""
        before = copy.deepcopy(examples)
        found = self.problem.offenders(w, examples)
        built = self.problem.constraints(examples, np.arange(examples.n_examples), found.keys)
        features = built.rows.x if isinstance(built.rows, OuterRows) else built.rows
        for array in (*built[:3], features.values):
            array[...] = 1
        assert_same_shard(examples, before)

    def test_there_is_one_prediction_for_each_label(self, examples: Shard, w: Floats) -> None:
        predicted = self.problem.predict(w, examples)
        assert predicted.shape == examples.y.shape
        total = self.problem.score(examples.y, examples.y)
        assert total["n"] == len(examples.y)

    def test_it_comes_back_from_its_description(self) -> None:
        texts = {name: getattr(self.problem, name) for name in self.problem.texts}
        description = json.loads(json.dumps(self.problem.describe()))
        named: Any = type(self.problem) if is_own(self.problem.kind) else None
        assert problem_from(description, named, texts=texts) == self.problem

    def test_it_travels_to_workers(self) -> None:
        assert pickle.loads(pickle.dumps(self.problem)) == self.problem

    def _all_keys(self) -> tuple[Keys, list[tuple[int, tuple[int, ...]]]]:
        """Every constraint of every example, the examples in reverse order."""
        wanted = [(i, key) for i in reversed(range(self.shard.n_examples)) for key in self.every(i)]
        lengths = [len(key) for _, key in wanted]
        values = [value for _, key in wanted for value in key]
        return Keys(np.concatenate([[0], np.cumsum(lengths)]), np.array(values, dtype=np.int32)), wanted


def as_sparse(shard: Shard) -> Shard:
    """The same shard with its dense features in CSR form; zeros are not stored."""
    x: Any = shard.x.values
    where = x != 0
    indptr = np.concatenate([[0], np.cumsum(where.sum(axis=1))]).astype(np.int64)
    return replace(shard, x=CsrRows(indptr, np.nonzero(where)[1].astype(np.int32), x[where]))


def dense(rows: Features | OuterRows, width: int) -> Floats:
    """The rows as a float64 matrix, filled in entry by entry."""
    if isinstance(rows, OuterRows):
        out = np.zeros((len(rows.at), width))
        features = dense(rows.x, rows.width)
        for k, at in enumerate(rows.at):
            for j in range(rows.width):
                out[k, rows.plus[k] * rows.width + j] += rows.scale[k] * features[at, j]
                out[k, rows.minus[k] * rows.width + j] -= rows.scale[k] * features[at, j]
        return out
    if isinstance(rows, DenseRows):
        return rows.values.astype(np.float64)
    out = np.zeros((len(rows.indptr) - 1, width))
    for k in range(len(out)):
        for j in range(rows.indptr[k], rows.indptr[k + 1]):
            out[k, rows.indices[j]] += float(rows.values[j])
    return out


@contextmanager
def python_kernels(*names: str) -> Iterator[None]:
    """Run the kernels of these modules as plain Python, where an index out of range raises."""
    with ExitStack() as stack:
        for module in (sys.modules[name] for name in names):
            plain = {name: value.py_func for name, value in vars(module).items() if hasattr(value, "py_func")}
            if plain:
                stack.enter_context(patch.multiple(module, **plain))
        yield


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
