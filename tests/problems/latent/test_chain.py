"""Chains with sub-states keep the contract, with all paths of sub-states written out, and so does what is imputed."""

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.problems.base import Keys
from distdual.problems.chain.problem import Chain
from distdual.problems.latent.base import Completed, join_completed
from distdual.problems.latent.chain import LatentChain
from distdual.problems.registry import problem_from
from distdual.testing import ProblemContract
from tests import naive
from tests.build import as_sparse, compiling
from tests.problems.chain.test_problem import joint_features, sequences

TAGS = ("d", "n")


def tagged(seed: int, lengths: list[int], *, cost: bool = False) -> Shard:
    return sequences(seed, lengths, n_tags=2, width=2, cost=cost)


def completed(problem: LatentChain, shard: Shard, seed: int = 0) -> Completed:
    return problem.completed(shard, problem.draw(shard, seed))


def every_path(problem: Completed, shard: Shard, i: int) -> dict[tuple[int, ...], tuple[Any, float, float]]:
    """Written out: all paths of sub-states through sequence i, beside the one that is its latent value."""
    chain, h = problem.problem, problem.values[shard.tokens[i] : shard.tokens[i + 1]]
    return path_constraints(chain, shard, i, tuple(h.tolist()))


def path_constraints(
    chain: LatentChain, shard: Shard, i: int, h: tuple[int, ...]
) -> dict[tuple[int, ...], tuple[Any, float, float]]:
    at = slice(shard.tokens[i], shard.tokens[i + 1])
    features, y, m = naive.dense(shard.x, chain.n_features)[at], shard.y[at], chain.substates
    states = Chain(
        n_features=chain.n_features,
        classes=tuple(str(k) for k in range(len(chain.classes) * m)),
        transitions=chain.transitions,
        boundaries=chain.boundaries,
    )
    cost = 1.0 if shard.cost is None else float(shard.cost[i])
    found = {}
    for z in itertools.product(range(len(states.classes)), repeat=len(y)):
        loss = sum(float(chain.tag_cost.get(chain.classes[y[t]], 1.0)) for t in range(len(y)) if z[t] // m != y[t])
        row = joint_features(states, features, h) - joint_features(states, features, z)
        found[h + z] = (row, loss, cost)
    return found


class LatentChainContract(ProblemContract):
    modules = tuple(f"distdual.problems.{name}" for name in ("latent.chain", "chain.viterbi", "chain.path_rows"))
    every_constraint = staticmethod(every_path)

    def test_it_comes_back_from_its_description(self):
        assert problem_from(self.problem.describe()) == self.problem.problem

    def test_it_travels_to_workers(self):
        first = self.shard.first
        there = pickle.loads(pickle.dumps(self.problem.part(first + 1, first + 2)))
        assert there.problem == self.problem.problem
        begin, end = self.shard.tokens[1:3]
        np.testing.assert_array_equal(there.values, self.problem.values[begin:end])
        np.testing.assert_array_equal(there.of(self.shard.piece(1, 2)).values, there.values)


class TestLatentChain(LatentChainContract):
    shard = tagged(0, [2, 1, 3])
    problem = completed(LatentChain(n_features=2, classes=TAGS), shard)


class TestLatentChainWithCosts(LatentChainContract):
    shard = tagged(1, [1, 2, 2], cost=True)
    problem = completed(
        LatentChain(n_features=2, classes=TAGS, substates=3, boundaries=False, tag_cost={"n": 2.5}), shard, seed=1
    )


class TestLatentChainOfEmissionsAlone(LatentChainContract):
    shard = tagged(2, [2, 3])
    problem = completed(LatentChain(n_features=2, classes=TAGS, transitions=False, boundaries=False), shard)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@given(
    seed=st.integers(0, 10**6),
    lengths=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    substates=st.integers(1, 3),
    transitions=st.booleans(),
    boundaries=st.booleans(),
)
@compiling
def test_what_is_imputed_has_the_smallest_slack_of_all(sparse, seed, lengths, substates, transitions, boundaries):
    shard = as_sparse(tagged(seed, lengths)) if sparse else tagged(seed, lengths)
    problem = LatentChain(
        n_features=2, classes=TAGS, substates=substates, transitions=transitions, boundaries=boundaries
    )
    w = np.random.default_rng(seed).normal(size=problem.n_weights)
    found = problem.completed(shard, problem.impute(w, shard))
    found.check_latent(shard)
    slack = found.offenders(w, shard).slack
    for i in range(len(lengths)):
        y = shard.y[shard.tokens[i] : shard.tokens[i + 1]]
        own = itertools.product(*(range(tag * substates, (tag + 1) * substates) for tag in y.tolist()))
        choices = [path_constraints(problem, shard, i, h).values() for h in own]
        each = [max(0.0, *(margin - row @ w for row, margin, _ in rows)) for rows in choices]
        assert slack[i] == pytest.approx(min(each), rel=1e-9, abs=1e-9)


def test_a_feature_that_is_not_a_number_is_told_where_latent_values_are_imputed():
    shard, problem = tagged(0, [2, 1, 3]), LatentChain(n_features=2, classes=TAGS)
    shard.x.values[2, 0] = np.nan
    with pytest.raises(InputError, match="shard 2, sequence 1: a score is not a number"):
        problem.impute(np.ones(problem.n_weights), shard)


def test_the_tags_of_the_best_path_are_predicted_and_scored():
    shard, problem = tagged(3, [3, 1, 2]), LatentChain(n_features=2, classes=TAGS)
    w = np.random.default_rng(3).normal(size=problem.n_weights)
    predicted = problem.predict(w, shard)
    for i in range(3):
        at = slice(shard.tokens[i], shard.tokens[i + 1])
        features = naive.dense(shard.x, 2)[at]
        paths = itertools.product(range(4), repeat=len(features))
        best = max(paths, key=lambda z: joint_features(problem.states, features, z) @ w)
        assert predicted[at].tolist() == [state // 2 for state in best]
    sums = problem.score_shard(shard, shard.y, predicted)
    assert (sums["n"], sums["accuracy"]) == (6.0, float((shard.y == predicted).sum()))
    assert problem.completed(shard, problem.draw(shard, 0)).judge(("x",)).classes == ("d", "n", "x")


def test_a_guess_is_the_nearest_mean_of_tokens_with_the_same_tag():
    shard, problem = tagged(4, [5] * 6), LatentChain(n_features=2, classes=TAGS)
    start = completed(problem, shard)
    x = naive.dense(shard.x, 2)
    means = np.array([x[start.values == h].mean(axis=0) for h in range(4)])
    assert problem.guesses(0) > 0
    for t, h in enumerate(problem.guess(start.summary(shard), shard)):
        own = means[2 * shard.y[t] : 2 * shard.y[t] + 2]
        assert h == 2 * shard.y[t] + ((x[t] - own) ** 2).sum(axis=1).argmin()


def test_latent_values_of_shards_are_joined_and_cut_again():
    problem = LatentChain(n_features=2, classes=TAGS)
    shards = [tagged(0, [2, 1]), tagged(1, [3, 1, 2])]
    parts = [problem.completed(shard, problem.draw(shard, s)) for s, shard in enumerate(shards)]
    parts = [Completed(problem, part.values, first, part.indptr) for part, first in zip(parts, (0, 2), strict=True)]
    whole = join_completed(parts)
    assert whole.indptr.tolist() == [0, 2, 3, 6, 7, 9]
    np.testing.assert_array_equal(whole.part(2, 5).values, parts[1].values)
    assert whole.part(3, 5).indptr.tolist() == [0, 1, 3]
    other = whole.values.copy()
    other[[0, 1, 8]] += 1
    assert whole.changes(other).tolist() == [True, False, False, False, True]


def test_keys_move_to_the_path_that_is_imputed():
    shard = tagged(0, [2, 1, 3])
    done = completed(LatentChain(n_features=2, classes=TAGS), shard)
    keys = Keys(np.array([0, 6, 8]), np.array([9, 9, 9, 0, 1, 2, 9, 3], dtype=np.int32))
    moved = done.rebase(shard, np.array([2, 1]), keys)
    assert moved.values.tolist() == [*done.values[3:6], 0, 1, 2, done.values[2], 3]
    assert keys.values.tolist() == [9, 9, 9, 0, 1, 2, 9, 3]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ([0, 0, 1], "two sub-states per token"),
        ([0, 0, 1, 4], "beyond the 4"),
        ([0, 0, -1, 1], "beyond the 4"),
        ([1, 1, 0, 2], "sequence 30 has other latent values"),
    ],
    ids=["short", "beyond", "negative", "not imputed"],
)
def test_a_forged_key_is_refused(key, words):
    shard, problem = tagged(0, [2]), LatentChain(n_features=2, classes=TAGS)
    shard.y[:] = 0
    done = problem.completed(shard, np.zeros(2, dtype=np.int32))
    keys = Keys(np.array([0, len(key)]), np.array(key, dtype=np.int32))
    with pytest.raises(InputError, match=words):
        done.check_keys(shard, np.array([0]), keys)


def test_a_sub_state_of_another_tag_is_refused_as_latent_value():
    shard, problem = tagged(0, [2, 1, 3]), LatentChain(n_features=2, classes=TAGS)
    values = (2 * shard.y).astype(np.int32)
    values[4] = (values[4] + 2) % 4
    with pytest.raises(InputError, match="example 32 cannot have the latent value"):
        problem.completed(shard, values).check_latent(shard)


@pytest.mark.parametrize("init", ["guess", "random"])
@pytest.mark.parametrize("options", [{}, {"boundaries": False}, {"transitions": False}])
def test_weights_of_a_chain_score_the_same_on_all_sub_states(init, options):
    shard = tagged(5, [3, 2])
    problem = LatentChain(n_features=2, classes=TAGS, init=init, **options)
    chain = Chain(n_features=2, classes=TAGS, **options)
    w = np.random.default_rng(0).normal(size=chain.n_weights)
    start = problem.start_from(chain, w, 0)
    assert start.imputes == (init == "random")
    assert len(start.w) == problem.n_weights
    features = naive.dense(shard.x, 2)[:3]
    for z in itertools.product(range(4), repeat=3):
        tags = [state // 2 for state in z]
        score = joint_features(problem.states, features, z) @ start.w
        assert score == pytest.approx(joint_features(chain, features, tags) @ w, abs=1e-9 if init == "guess" else 0.5)
    if init == "random":
        assert len(np.unique(start.w)) == len(start.w)


def test_a_chain_of_another_shape_is_no_start():
    problem = LatentChain(n_features=2, classes=TAGS)
    for chain in (Chain(n_features=3, classes=TAGS), Chain(n_features=2, classes=("d", "x"))):
        with pytest.raises(InputError, match="the same tags and features"):
            problem.start_from(chain, np.zeros(chain.n_weights), 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"substates": 0}, "problem.substates must be at least 1"),
        ({"classes": ("a",)}, "two tags or more"),
        ({"tag_cost": {"x": 1.0}}, "names 'x'"),
        ({"restarts": 0}, "problem.restarts"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        LatentChain(**{"n_features": 2, "classes": TAGS, **options})
