"""Spans are those of the CoNLL shared tasks, counted as an obvious version counts them."""

import itertools
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.problems.chain.problem import Chain
from distdual.problems.chain.span_f1 import span_counts, span_tags
from tests import naive
from tests.build import compiling, python_kernels
from tests.problems.chain.test_problem import sequences

TAGS = ("B-NP", "B-VP", "I-NP", "I-VP", "O")


def written_out(tokens: Any, y: Any, predicted: Any) -> tuple[int, int, int]:
    right = there = found = 0
    for begin, end in itertools.pairwise(tokens):
        true, told = (naive.spans([TAGS[code] for code in codes[begin:end]]) for codes in (y, predicted))
        right, there, found = right + len(true & told), there + len(true), found + len(told)
    return right, there, found


@compiling
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), flips=st.floats(0, 1), seed=st.integers(0, 2**32 - 1)
)
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "python"])
def test_spans_are_counted_as_when_they_are_written_out(
    lengths: list[int], flips: float, seed: int, compiled: bool
) -> None:
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    tokens = np.concatenate([[0], np.cumsum(lengths)])
    y = rng.integers(len(TAGS), size=n).astype(np.int32)
    predicted = np.where(rng.random(n) < flips, rng.integers(len(TAGS), size=n), y).astype(np.int32)
    tags = span_tags(TAGS)
    assert tags is not None
    with nullcontext() if compiled else python_kernels("distdual.problems.chain.span_f1"):
        found = span_counts(tags, tokens, y, predicted)
    assert found == written_out(tokens, y, predicted)


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("B-NP I-NP O B-NP", {(0, 2, "NP"), (3, 4, "NP")}),
        ("I-NP I-NP O I-NP B-NP", {(0, 2, "NP"), (3, 4, "NP"), (4, 5, "NP")}),
        ("B-NP I-VP I-VP", {(0, 1, "NP"), (1, 3, "VP")}),
        ("O O", set()),
    ],
    ids=["IOB2", "IOB1", "another type begins another span", "nothing"],
)
def test_a_span_begins_where_the_shared_tasks_say(tags: str, spans: set[tuple[int, int, str]]) -> None:
    assert naive.spans(tags.split()) == spans


@pytest.mark.parametrize("tags", [("NN", "VB"), ("B-NP", "I-NP", "X"), ("B", "I", "O"), ("O",), ("B-", "O")])
def test_other_tags_mark_no_spans(tags: tuple[str, ...]) -> None:
    assert span_tags(tags) is None


def test_the_score_of_a_chain_with_such_tags_has_sums_for_f1() -> None:
    problem = Chain(n_features=3, classes=TAGS)
    shard = sequences(0, [4, 3, 5], n_tags=5)
    sums = problem.score_shard(shard, shard.y, shard.y)
    there = written_out(shard.tokens, shard.y, shard.y)[1]
    assert sums["span_f1"] == sums["n:span_f1"] == 2 * there
    assert sums["span_recall"] == sums["n:span_precision"] == there
    assert not any(
        "span" in name for name in Chain(n_features=3, classes=("a", "b")).score_shard(shard, shard.y, shard.y)
    )


def test_a_tag_that_training_has_not_seen_is_a_mistake_and_its_spans_count() -> None:
    problem = Chain(n_features=3, classes=("B-NP", "I-NP", "O"), tag_cost={"O": 2.0})
    shard = sequences(0, [3], n_tags=3)
    sums = problem.judge(("I-LST",)).score_shard(shard, np.array([0, 1, 3]), np.array([0, 1, 2]))
    assert sums["accuracy"] == 2
    assert (sums["span_recall"], sums["n:span_recall"], sums["n:span_precision"]) == (1, 2, 1)
