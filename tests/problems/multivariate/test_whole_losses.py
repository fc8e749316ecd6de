"""The offender of a loss over all examples is the worst of all contingency tables."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.errors import InputError
from distdual.kernels.rounding import gamma
from distdual.problems.base import Keys, Magnitude
from distdual.problems.multivariate import whole_losses
from distdual.problems.multivariate.problem import Multivariate
from distdual.problems.multivariate.whole_losses import best_f1_cut
from distdual.testing import python_kernels
from tests.build import compiling


def loss_of(loss: str, y: Any, output: Any, k: int) -> float | None:
    """Δ of an output; None if the loss allows no such output."""
    right, found, there = (y & output).sum(), output.sum(), y.sum()
    if loss == "f1":
        return 1.0 - 2.0 * right / (found + there)
    if found != (k or there):
        return None
    return 1.0 - right / (there if loss == "recall@k" else found)


def brute_force(problem: Multivariate, scores: Any, y: Any) -> float:
    """n max_ŷ Δ(ŷ) − 1/n Σ over the wrong of y_i s_i."""
    n, sign = len(y), np.where(y, 1.0, -1.0)
    worst = 0.0
    for bits in itertools.product([False, True], repeat=n):
        output = np.array(bits)
        if (loss := loss_of(problem.loss, y, output, problem.k)) is not None:
            worst = max(worst, n * loss - float((sign * scores)[output != y].sum()))
    return worst


def problem_of(loss: str) -> Multivariate:
    return Multivariate(n_features=2, classes=("-1", "1"), loss=loss, k=3 if loss.endswith("@k") else 0)


@pytest.mark.parametrize("loss", ["f1", "precision@k", "recall@k", "prbep"])
@compiling
@given(
    seed=st.integers(0, 10**6), n_positive=st.integers(1, 4), n_negative=st.integers(1, 5), spread=st.floats(0.01, 3.0)
)
def test_no_constraint_is_violated_more_than_the_offender(loss, seed, n_positive, n_negative, spread):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n_positive + n_negative) < n_positive)
    problem = problem_of(loss)
    if problem.k > len(y):
        return
    scores = np.round(spread * rng.normal(size=len(y)), 2)  # some are equal
    found = problem.find_offender(scores, y)
    assert found.slack == pytest.approx(brute_force(problem, scores, y), rel=1e-12, abs=1e-12)
    assert found.slack == pytest.approx(max(0.0, found.margin - found.sign @ scores), rel=1e-12, abs=1e-12)
    assert set(found.sign[y]) <= {0, 1}
    assert set(found.sign[~y]) <= {0, -1}


def test_the_walk_over_contingency_tables_is_the_same_in_plain_python():
    rng = np.random.default_rng(0)
    positive, negative = -np.sort(-rng.normal(size=9)), -np.sort(-rng.normal(size=30))
    with python_kernels("distdual.problems.multivariate.whole_losses"):
        plain = whole_losses.best_f1_cut(positive, negative, 39.0)
    assert best_f1_cut(positive, negative, 39.0) == plain


def test_the_magnitude_covers_the_running_sums_that_outputs_are_compared_by():
    """Twice the error of a sum that adds and takes away each of n scores, and that of the slack itself."""
    n, own = 1000, Magnitude(terms=10.0, row=2.0)
    size = problem_of("f1").whole_magnitude(own, n)
    assert gamma(size.terms) * size.row >= (2 * gamma(2 * n) + gamma(n)) * n * own.row


def test_the_weights_of_a_key_come_back():
    problem, w = problem_of("auc"), np.array([0.1, -3e200])
    np.testing.assert_array_equal(problem.weights_of(problem.key_of(w)), [w])


@pytest.mark.parametrize(
    ("values", "words"),
    [([1, 2, 3], "does not hold 2 weights"), (np.array([np.nan, 1.0]).view(np.int32).tolist(), "not finite")],
    ids=["short", "not a number"],
)
def test_a_forged_key_is_refused(values, words):
    with pytest.raises(InputError, match=words):
        problem_of("auc").weights_of(Keys(np.array([0, len(values)]), np.array(values, dtype=np.int32)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": "mcc"}, "problem.loss must be one of"),
        ({"loss": "auc", "bias": 1.0}, "problem.bias does not apply"),
        ({"loss": "precision@k"}, "problem.k is for"),
        ({"loss": "f1", "k": 3}, "problem.k is for"),
        ({"classes": ("1", "2", "3")}, "two labels"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        Multivariate(**{"n_features": 2, "classes": ("-1", "1"), **options})


def test_a_class_without_examples_is_refused():
    with pytest.raises(InputError, match="0 of 3 examples are positive"):
        problem_of("f1").find_offender(np.zeros(3), np.zeros(3, dtype=np.bool_))


def test_of_equal_scores_the_first_examples_are_called_positive():
    """Whoever finds an offender again finds the same one, whatever order a sort leaves equal scores in."""
    y = np.arange(200) % 100 == 0
    scores = np.where(y, 0.0, 1.0)
    sign = problem_of("prbep").find_offender(scores, y).sign
    np.testing.assert_array_equal(np.flatnonzero(sign < 0), [1, 2])


@pytest.mark.parametrize("loss", ["f1", "precision@k", "recall@k", "prbep"])
@compiling
@given(seed=st.integers(0, 10**6), spread=st.floats(0.01, 3.0))
def test_only_the_highest_negatives_are_searched_and_that_is_enough(loss, seed, spread):
    rng = np.random.default_rng(seed)
    y, scores = np.arange(12) < 2, np.round(spread * rng.normal(size=12), 2)
    problem = problem_of(loss)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distdual.problems.multivariate.problem.SEARCHED", 1)
        found = problem.find_offender(scores, y)
    assert found.slack == pytest.approx(brute_force(problem, scores, y), rel=1e-12, abs=1e-12)
