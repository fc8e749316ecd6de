"""Parsing keeps the contract, with all trees of small grammars written out."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from distdual.data.shard import Runs, Shard
from distdual.errors import InputError
from distdual.problems.base import Keys
from distdual.problems.parsing.grammar import OUTSIDE
from distdual.problems.parsing.problem import Cfg, ends_of
from distdual.problems.registry import make_problem
from distdual.testing import ProblemContract
from tests import naive
from tests.build import as_sparse, compiling, python_kernels
from tests.problems.parsing.trees import (
    brackets,
    derivations,
    every_wrong_tree,
    joint_features,
    random_grammar,
    sentences,
    tags_of,
    trees_for,
)

MOST = 400  # trees of a sentence that are written out
PARTS = (
    "parsing.problem",
    "parsing.tree_search",
    "parsing.cky",
    "parsing.derivation",
    "parsing.second_best_tree",
    "parsing.span_features",
    "parsing.tree_rows",
    "chain.viterbi",
    "chain.path_rows",
)
MODULES = [f"distdual.problems.{name}" for name in PARTS]


def cfg(seed: int, *, lexicon: bool = False, **options: Any) -> Cfg:
    grammar = random_grammar(seed, lexicon=lexicon)
    return Cfg(n_features=3, classes=grammar.tags, grammar=grammar.to_text(), **options)


class CfgContract(ProblemContract):
    every_constraint = staticmethod(every_wrong_tree)

    @pytest.fixture(params=["compiled", "in plain Python"], autouse=True)
    def kernels(self, request: pytest.FixtureRequest) -> Any:
        if request.param == "compiled":
            yield
        else:
            with python_kernels(*MODULES):
                yield

    def test_there_is_one_prediction_for_each_label(self, examples, w):
        """A prediction is a tree: one derivation after the other, each with as many tags as it has words."""
        predicted = self.problem.predict(w, examples)
        ends = ends_of(predicted, examples.tokens, self.problem.read)
        assert ends[-1] == len(predicted)
        for i in range(examples.n_examples):
            n = int(examples.tokens[i + 1] - examples.tokens[i])
            assert tuple(predicted[ends[i] : ends[i + 1]].tolist()) in derivations(self.problem.read, n)
        assert self.problem.score(examples.y, predicted)["n"] == len(examples.y)


class TestSpanLoss(CfgContract):
    problem = cfg(0)
    shard = sentences(problem.read, 0, [3, 1, 2])


class TestZeroOneLoss(CfgContract):
    problem = cfg(1, loss="zero-one")
    shard = sentences(problem.read, 1, [2, 3, 2], cost=True)


class TestZeroOneLossWithSlackRescaling(CfgContract):
    problem = cfg(2, loss="zero-one", rescaling="slack")
    shard = sentences(problem.read, 2, [3, 2])


class TestSpanLossWithALexicon(CfgContract):
    problem = cfg(3, lexicon=True)
    shard = sentences(problem.read, 3, [3, 2, 3])


class TestZeroOneLossWithALexicon(CfgContract):
    problem = cfg(5, lexicon=True, loss="zero-one")
    shard = sentences(problem.read, 6, [3, 3, 2])


class TestSpanFeatures(CfgContract):
    problem = cfg(3, lexicon=True, span_features=True)
    shard = sentences(problem.read, 3, [3, 2, 3])


class TestSpanFeaturesWithZeroOneLoss(CfgContract):
    problem = cfg(1, loss="zero-one", span_features=True)
    shard = sentences(problem.read, 1, [2, 3, 2], cost=True)


@given(
    seed=st.integers(0, 10**6),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    loss=st.sampled_from(["span", "zero-one"]),
    spread=st.sampled_from([0.0, 0.3, 3.0]),
    sparse=st.booleans(),
    lexicon=st.booleans(),
    spans=st.booleans(),
)
@compiling
def test_the_oracle_equals_brute_force(seed, lengths, loss, spread, sparse, lexicon, spans):
    problem = cfg(seed, loss=loss, lexicon=lexicon, span_features=spans)
    assume(all(len(derivations(problem.read, n)) <= MOST for n in lengths))
    shard = sentences(problem.read, seed, lengths)
    w = spread * np.random.default_rng(seed).normal(size=problem.n_weights)
    given_shard = as_sparse(shard) if sparse else shard
    found = problem.offenders(w, given_shard)
    built = problem.constraints(given_shard, np.arange(len(lengths)), found.keys)
    rows = naive.dense(built.rows, problem.n_weights)
    predicted = problem.predict(w, given_shard)
    ends = ends_of(predicted, shard.tokens, problem.read)
    for i in range(len(lengths)):
        every = every_wrong_tree(problem, shard, i)
        worst = max((margin - row @ w for row, margin, _ in every.values()), default=0.0)
        assert found.slack[i] == pytest.approx(max(0.0, worst), rel=1e-9, abs=1e-9)
        if found.slack[i] > 0:
            assert tuple(found.keys.take([i]).values.tolist()) in every
            assert built.margin[i] - rows[i] @ w == pytest.approx(found.slack[i], rel=1e-9, abs=1e-9)
        features = naive.dense(shard.x, 3)[shard.tokens[i] : shard.tokens[i + 1]]
        scores = {key: joint_features(problem, features, key) @ w for key in trees_for(problem.read, features)}
        best = scores[tuple(predicted[ends[i] : ends[i + 1]].tolist())]
        assert best == pytest.approx(max(scores.values()), rel=1e-9, abs=1e-9)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 4))
@compiling
def test_with_weights_that_favour_the_right_tree_the_offender_is_the_second_best(seed, n):
    problem = cfg(seed, loss="zero-one")
    assume(1 < len(derivations(problem.read, n)) <= MOST)
    shard = sentences(problem.read, seed, [n])
    features, right = naive.dense(shard.x, 3), tuple(shard.runs["tree"].values.tolist())
    w = 0.2 * joint_features(problem, features, right) + 0.01 * np.random.default_rng(seed).normal(
        size=problem.n_weights
    )
    scores = {key: joint_features(problem, features, key) @ w for key in derivations(problem.read, n)}
    others = [score for key, score in scores.items() if key != right]
    slack = problem.offenders(w, shard).slack[0]
    assert slack == pytest.approx(max(0.0, 1.0 + max(others) - scores[right]), rel=1e-9, abs=1e-9)


def test_a_sentence_with_one_tree_has_no_constraint_of_the_zero_one_loss():
    grammar = random_grammar(0)
    single = replace(grammar, binary=((1, 2, 3),), chains=(), roots=(3,))
    problem = Cfg(n_features=3, classes=single.tags, grammar=single.to_text(), loss="zero-one")
    shard = sentences(single, 0, [2])
    found = problem.offenders(np.ones(problem.n_weights), shard)
    assert found.slack.tolist() == [0.0]
    assert found.keys.values.tolist() == shard.runs["tree"].values.tolist()


def test_rows_are_sorted_name_a_column_once_and_hold_no_zero():
    problem = cfg(4)
    shard = sentences(problem.read, 4, [4] * 5)
    rng = np.random.default_rng(0)
    keys = [derivations(problem.read, 4)[k] for k in rng.integers(len(derivations(problem.read, 4)), size=5)]
    rows = problem.constraints(shard, np.arange(5), as_keys(keys)).rows
    assert rows.indices.dtype == np.int32
    assert rows.values.dtype == np.float32
    assert (rows.values != 0).all()
    for a, b in itertools.pairwise(rows.indptr):
        assert (np.diff(rows.indices[a:b]) > 0).all()


def as_keys(keys: Any) -> Keys:
    return Keys(np.concatenate([[0], np.cumsum([len(key) for key in keys])]), np.concatenate(keys).astype(np.int32))


@given(seed=st.integers(0, 10**6), n=st.integers(1, 3), numbers=st.lists(st.integers(-2, 40), max_size=9))
@compiling
def test_a_key_is_accepted_if_and_only_if_it_is_a_derivation(seed, n, numbers):
    problem = cfg(seed % 5)
    shard = sentences(problem.read, seed, [n])
    rng = np.random.default_rng(seed)
    forged = list(derivations(problem.read, n)[rng.integers(len(derivations(problem.read, n)))])
    for number in numbers:
        forged[rng.integers(len(forged))] = number
    for key in (forged, numbers):
        given_key = Keys(np.array([0, len(key)]), np.array(key, dtype=np.int32))
        if tuple(key) in derivations(problem.read, n):
            problem.check_keys(shard, np.array([0]), given_key)
        else:
            with pytest.raises(InputError, match="not a derivation"):
                problem.check_keys(shard, np.array([0]), given_key)
            with pytest.raises(InputError, match="not a derivation"):
                problem.constraints(shard, np.array([0]), given_key)


def test_a_key_with_a_tag_that_its_word_was_never_seen_with_is_no_derivation():
    problem = cfg(0, lexicon=True)
    shard = sentences(problem.read, 0, [2])
    shard.x.values[:] = [[1, 0, 0], [0, 1, 0]]  # d n
    right, wrong = (
        [k for k in derivations(problem.read, 2) if (tags_of(problem.read, k) == [1, 2]) == fit] for fit in (1, 0)
    )
    shard = with_trees(shard, right[:1])
    problem.check_keys(shard, np.zeros(len(right), dtype=np.int64), as_keys(right))
    for key in wrong:
        with pytest.raises(InputError, match="not a derivation"):
            problem.check_keys(shard, np.array([0]), as_keys([key]))


def test_words_whose_tags_give_no_tree_may_have_every_tag_in_a_prediction():
    grammar = random_grammar(0, lexicon=True)
    single = replace(grammar, binary=((1, 2, 3),), chains=(), roots=(3,))
    problem = Cfg(n_features=3, classes=single.tags, grammar=single.to_text())
    shard = sentences(random_grammar(0), 0, [2])
    shard.x.values[:] = [[0, 1, 0], [1, 0, 0]]  # n d, but the only tree is d n
    assert problem.predict(np.zeros(problem.n_weights), shard).tolist() == list(derivations(single, 2)[0])


def with_trees(shard: Shard, keys: list[list[int]]) -> Shard:
    indptr, values = as_keys(keys)
    return replace(shard, runs={"tree": Runs(indptr, values)})


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([OUTSIDE, 3, 0, 2], "shard 2, row 1: .*the grammar cannot derive the tree"),
        ([0, 0, 0], "shard 2, row 1: .*not a derivation"),
        ([], "shard 2: trees: must rise from 0 to 4, in runs of at least one each"),
    ],
    ids=["outside", "damaged", "empty"],
)
def test_training_refuses_trees_that_the_grammar_does_not_know(tree, message):
    problem = cfg(0)
    shard = sentences(problem.read, 0, [2, 2])
    shard = with_trees(shard, [shard.runs["tree"].of(0).tolist(), tree])
    with pytest.raises(InputError, match=message):
        problem.offenders(np.zeros(problem.n_weights), shard)


def test_scores_count_labelled_brackets():
    problem = cfg(0)
    shard = sentences(problem.read, 0, [3, 4, 2, 1])
    rng = np.random.default_rng(1)
    found = [derivations(problem.read, n)[rng.integers(len(derivations(problem.read, n)))] for n in (3, 4, 2, 1)]
    score = problem.score_shard(shard, shard.y, np.concatenate(found).astype(np.int32))
    right = [shard.runs["tree"].of(i).tolist() for i in range(4)]
    a, b = ([brackets(problem.read.decode(list(key), ["w"] * 4)) for key in keys] for keys in (right, found))
    shared = sum((x & y).total() for x, y in zip(a, b, strict=True))
    n_right, n_found = (sum(each.total() for each in part) for part in (a, b))
    assert (score["f1"], score["n:f1"]) == (2 * shared, n_right + n_found)
    assert (score["precision"], score["n:precision"]) == (shared, n_found)
    assert (score["recall"], score["n:recall"]) == (shared, n_right)
    assert score["exact_match"] == sum(x == y for x, y in zip(a, b, strict=True))


def test_scores_take_the_brackets_of_trees_that_the_grammar_does_not_know():
    problem = cfg(0)
    shard = sentences(problem.read, 0, [2])
    key = shard.runs["tree"].of(0)
    unknown = problem.read.tags.index("-UNKNOWN-")
    spans = [
        number
        for (label, *span), k in brackets(problem.read.decode(key.tolist(), ["a", "b"])).items()
        for number in [problem.read.names.index(label), *span] * k
    ]
    outside = with_trees(shard, [[OUTSIDE, *spans, unknown, 0, 1]])
    score = problem.score_shard(outside, shard.y, key)
    assert score["precision"] == score["n:precision"] == score["recall"] == len(spans) // 3
    assert score["n:recall"] == len(spans) // 3 + 1
    assert score["exact_match"] == 0


def test_a_sentence_without_a_tree_is_told_so():
    grammar = random_grammar(0)
    lexical = replace(grammar, binary=(), chains=(), roots=(grammar.tags.index("n"),), phrases=(), inner=())
    problem = Cfg(n_features=3, classes=lexical.tags, grammar=lexical.to_text())
    shard = sentences(lexical, 0, [1])
    two = replace(
        sentences(grammar, 0, [2, 1]), runs={"text": Runs(np.array([0, 3, 4]), np.frombuffer(b"a bc", np.uint8))}
    )
    predicted = problem.predict(np.zeros(problem.n_weights), two)
    assert predicted.tolist() == [OUTSIDE, OUTSIDE, *shard.runs["tree"].values.tolist()]
    expected = ["(-UNKNOWN- (-UNKNOWN- a) (-UNKNOWN- b))", "(n c)"]
    assert problem.spell(two, predicted).tolist() == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hamming"}, "problem.loss"),
        ({"rescaling": "both"}, "problem.rescaling"),
        ({"rescaling": "slack"}, "no exact inference"),
        ({"classes": ("a", "b")}, "not those of its grammar"),
        ({"grammar": "nonsense"}, "the grammar is damaged"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    grammar = random_grammar(0)
    with pytest.raises(InputError, match=message):
        Cfg(**{"n_features": 3, "classes": grammar.tags, "grammar": grammar.to_text(), **options})


def test_a_data_set_without_a_grammar_is_refused():
    with pytest.raises(InputError, match="needs a data set with a grammar"):
        make_problem("cfg", {}, n_features=3, classes=("a", "b"), texts={})
