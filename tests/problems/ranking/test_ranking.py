"""Rankings keep the contract, and have the slack and the optimum of all pairs written out."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from distdual.errors import InputError
from distdual.kernels.rounding import gamma
from distdual.problems.base import Keys
from distdual.problems.ranking.measures import ranking_sums
from distdual.problems.ranking.problem import Ranking
from distdual.testing import ProblemContract, dense
from tests.build import compiling
from tests.problems.ranking.queries import every_set, pair_rows, pairs_of, queries

MODULES = tuple(
    f"distdual.{name}" for name in ("problems.ranking.swapped_pairs", "problems.linear", "kernels.row_sums")
)


class TestRanking(ProblemContract):
    modules = MODULES
    problem = Ranking(n_features=3)
    shard = queries(0, [3, 1, 2, 3], cost=True)
    every_constraint = staticmethod(every_set)


class TestGains(ProblemContract):
    modules = MODULES
    problem = Ranking(n_features=3, gain="exponential", normalise=False)
    shard = queries(1, [2, 1, 2])
    every_constraint = staticmethod(every_set)


@compiling
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    gain=st.sampled_from(["none", "linear", "exponential"]),
    normalise=st.booleans(),
)
def test_a_slack_is_the_sum_of_the_hinge_losses_of_all_pairs(seed, sizes, gain, normalise):
    shard, problem = queries(seed, sizes, grades=5), Ranking(n_features=3, gain=gain, normalise=normalise)
    w = np.random.default_rng(seed).normal(size=3)
    rows, costs = pair_rows(problem, shard)
    expected = costs @ np.maximum(0.0, 1.0 - rows @ w) if len(rows) else 0.0
    found = problem.offenders(w, shard)
    assert found.slack.sum() == pytest.approx(expected, rel=1e-11, abs=1e-11)
    size = problem.magnitude(shard, found)
    built = problem.constraints(shard, np.arange(len(sizes)), found.keys)
    assert np.linalg.norm(dense(built.rows, 3), axis=1).max() <= size.row
    assert built.margin.max() <= size.margin
    assert size.missed >= gamma(3)


def test_thousands_of_documents_take_no_square_of_time():
    shard, problem = queries(3, [200_000], grades=50), Ranking(n_features=3)
    found = problem.offenders(np.array([0.3, -0.2, 0.1]), shard)
    assert 0 < found.slack[0] < 2


@pytest.mark.parametrize(
    ("key", "example"),
    [([0, 1, 2, 0, 0], 0), ([0, 1, 2, 0, 0, 4], 0), ([0, -1, 2, 0, 0, 0], 0), ([0, 1], 2)],
    ids=["short", "reach", "place", "other query"],
)
def test_a_forged_key_is_refused(key, example):
    problem, shard = Ranking(n_features=3), queries(0, [3, 1, 2, 3])
    keys = Keys(np.array([0, 2, 2 + len(key)]), np.array([1, 1, *key], dtype=np.int32))
    with pytest.raises(InputError, match=f"query {30 + example} lacks a place and a reach"):
        problem.rebuilt(shard, np.array([1, example]), keys)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gain": "log"}, "problem.gain must be one of 'none', 'linear', 'exponential'"),
        ({"cutoff": 0}, "problem.cutoff must be at least 1"),
        ({"classes": ("0", "1")}, "numbers for labels"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        Ranking(n_features=3, **options)


def test_a_label_too_large_for_an_exponential_gain_is_refused():
    shard, problem = queries(0, [3]), Ranking(n_features=3, gain="exponential")
    shard.y[1] = 61.0
    with pytest.raises(InputError, match="labels up to 60, found 61; use 'linear'"):
        problem.offenders(np.zeros(3), shard)


def test_measures_are_those_of_scikit_learn_and_of_all_pairs():
    rng = np.random.default_rng(0)
    sizes = [1, 7, 30, 4, 12]
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    y, scores = rng.integers(3, size=54).astype(float), np.round(rng.normal(size=54), 1)
    y[:1] = 0.0
    sums = ranking_sums(y, scores, bounds, 5)
    each = [(y[a:b], scores[a:b]) for a, b in itertools.pairwise(bounds)]
    shares = []
    for own, given_scores in each:
        differences = [given_scores[i] - given_scores[j] for i, j in pairs_of(own)]
        if differences:
            shares.append(np.mean([1.0 if d > 0 else 0.5 if d == 0 else 0.0 for d in differences]))
    assert sums["pairwise_accuracy"] == pytest.approx(sum(shares))
    assert sums["n:pairwise_accuracy"] == len(shares) == 4
    untied = scores + 1e-6 * np.arange(54)[::-1]  # equal scores in the order of the data
    each = [(y[a:b], untied[a:b]) for a, b in itertools.pairwise(bounds[1:])]
    assert sums["ndcg@5"] == pytest.approx(sum(ndcg_score([2**own - 1], [s], k=5) for own, s in each))
    assert sums["map"] == pytest.approx(sum(average_precision_score(own > 0, s) for own, s in each))
    firsts = [int(np.argmax(own[np.argsort(-s)] > 0)) + 1 for own, s in each]
    assert sums["mrr"] == pytest.approx(sum(1.0 / first for first in firsts))
    assert sums["n:map"] == sums["n:mrr"] == sums["n:ndcg@5"] == 4


def test_large_labels_do_not_overflow_the_measures():
    y, bounds = np.array([2000.0, 1999.0, 0.0]), np.array([0, 3])
    right, wrong = (ranking_sums(y, scores, bounds, 10) for scores in (y, -y))
    assert right["ndcg@10"] == 1.0
    assert wrong["ndcg@10"] == pytest.approx((0.5 / np.log2(3) + 1 / 2) / (1 + 0.5 / np.log2(3)))
