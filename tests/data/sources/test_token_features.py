"""Features of templates and their numbers agree with a simple version, token by token."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.data.sources.templates import templates_from
from distdual.data.sources.token_features import Sentences, TokenFeatures, found_features
from distdual.data.sources.vocabulary import Hashing, Vocabulary, count_features, indicator_rows
from distdual.errors import InputError
from tests import naive

MADE = templates_from(
    {
        "columns": {"word": 1, "pos": 2},
        "templates": [
            "word[-2..2]",
            "word[-1]|word[0]",
            "pos[-1]|pos[0]|pos[1]",
            "word.lower.suffix:1..2[0]",
            "word.shape[-1]|word.digit[1]|word.capital[0]",
        ],
    }
)
WORDS = st.sampled_from(["a", "B", "A", "b1", "É|=", "x-9", "Zz"])
TEXT = st.lists(st.lists(st.tuples(WORDS, st.sampled_from("ND")), min_size=1, max_size=5), min_size=1, max_size=4)


def sentences(text: Any) -> Sentences:
    flat = list(itertools.chain.from_iterable(text))
    tokens = np.concatenate([[0], np.cumsum([len(sentence) for sentence in text])])
    return Sentences({name: [row[k].encode() for row in flat] for k, name in enumerate(["word", "pos"])}, tokens)


def obvious(text: Any) -> list[set[str]]:
    """The names of each token's features."""
    named = [[{"word": word, "pos": pos} for word, pos in sentence] for sentence in text]
    return [naive.token_features(sentence, t, MADE.expanded) for sentence in named for t in range(len(sentence))]


@given(text=TEXT)
def test_each_token_has_the_features_that_templates_find(text: Any) -> None:
    found = [set() for _ in itertools.chain.from_iterable(text)]
    for names, at in found_features(sentences(text), MADE.expanded):
        for token, k in enumerate(at):
            if k >= 0:
                assert names[k] not in found[token]
                found[token].add(names[k])
    assert found == obvious(text)


@given(text=TEXT, other=TEXT, min_count=st.integers(1, 3))
def test_the_vocabulary_is_what_the_training_text_shows_often_enough(text: Any, other: Any, min_count: int) -> None:
    expected = obvious(text)
    often = {name: sum(name in each for each in expected) for name in set().union(*expected)}
    frequent = {name for name, count in often.items() if count >= min_count}
    if not frequent:
        with pytest.raises(InputError, match=rf"no feature is found {min_count} times"):
            count_features(found_features(sentences(text), MADE.expanded), min_count)
        return
    vocabulary = count_features(found_features(sentences(text), MADE.expanded), min_count)
    assert set(vocabulary.names) == frequent
    assert [often[name] for name in vocabulary.names] == sorted((often[name] for name in frequent), reverse=True)
    assert Vocabulary.from_text(vocabulary.to_text()) == vocabulary

    x = indicator_rows(found_features(sentences(other), MADE.expanded), vocabulary)
    rows = [x.indices[a:b] for a, b in itertools.pairwise(x.indptr)]
    assert all((np.diff(row) > 0).all() for row in rows)
    assert [{vocabulary.names[k] for k in row} for row in rows] == [each & frequent for each in obvious(other)]
    assert (x.values == 1).all()


@given(text=TEXT, bits=st.integers(1, 12))
def test_hashed_features_that_share_a_number_are_one_feature(text: Any, bits: int) -> None:
    hashing = Hashing(bits)
    x = indicator_rows(found_features(sentences(text), MADE.expanded), hashing)
    rows = [x.indices[a:b].tolist() for a, b in itertools.pairwise(x.indptr)]
    assert rows == [sorted(set(hashing.numbers(sorted(each)).tolist())) for each in obvious(text)]
    assert all(k < 2**bits for row in rows for k in row)


def test_a_hash_is_the_same_on_every_machine() -> None:
    assert Hashing(20).numbers(["word[0]=the", "word[0]=été"]).tolist() == [184316, 496689]


def test_names_that_no_token_has_are_not_in_the_vocabulary() -> None:
    assert count_features([TokenFeatures(["a", "b"], np.array([1, -1, 1]))], 1).names == ["b"]
