"""Trees become a data set: with their grammar, in shards, shuffled and split, and a test set with the same grammar."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare, prepare_arrays
from distdual.data.prepare.shuffle import shuffle
from distdual.data.shard import Block, Runs
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.problems.parsing.grammar import OUTSIDE, UNKNOWN_TAG, read_grammar
from distdual.problems.parsing.treebank import feature_of, vocabulary_of, word_shape
from tests.problems.parsing.trees import planted

DOG = "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))"


def write(folder: Path, lines: Any, name: str = "trees.mrg") -> str:
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(folder / name)


def trees_in(location: Location | str) -> list[str]:
    """The trees of a data set, in order; what its grammar does not know as the words alone."""
    data = open_dataset(location if isinstance(location, Location) else Location(location))
    grammar, found = read_grammar(data.texts["grammar"]), []
    for s in range(data.n_shards):
        shard = data.read(s).shard
        for i in range(shard.n_examples):
            words = shard.runs["text"].of(i).tobytes().decode().split(" ")
            assert len(words) == shard.tokens[i + 1] - shard.tokens[i]
            found.append(str(grammar.decode(shard.runs["tree"].of(i).tolist(), words)))
    return found


def test_trees_come_back_from_the_data_set(location, tmp_path):
    lines = list(planted(0, 60))
    source = write(tmp_path, lines)
    (summary,) = prepare(source, location, "cfg", shard_bytes=1000)
    data = open_dataset(location)
    assert summary.n_examples == 60
    assert data.n_shards > 3
    assert data.layout.attributes()["format"] == 3
    assert trees_in(location) == lines
    assert data.layout.n_features == len(data.texts["vocabulary"].splitlines())
    tags = [data.classes[code] for k in range(data.n_shards) for code in data.read(k).shard.y]
    assert tags == [tag for line in lines for tag in re.findall(r"\((\S+) [^\s()]+\)", line)]


def test_several_files_in_order_and_long_sentences_left_out(tmp_path):
    lines = list(planted(1, 40))
    files = [write(tmp_path, lines[:15], "a.mrg"), write(tmp_path, lines[15:], "b.mrg")]
    prepare(files, tmp_path / "data", "cfg", max_length=7)
    assert trees_in(str(tmp_path / "data")) == [line for line in lines if words(line) <= 7]


def words(line: str) -> int:
    return sum(not part.startswith("(") for part in line.split())


def test_shuffled_and_split_the_grammar_is_that_of_the_training_part(tmp_path):
    lines = [*planted(2, 80), *(f"(S (NP (ODD{k} odd)) (VP (VB bites)))" for k in range(20))]
    prepare(write(tmp_path, lines), tmp_path / "parts", "cfg", shuffle=3, test_fraction=0.5, shard_bytes=800)
    train, test = (open_dataset(Location(str(tmp_path / "parts" / part))) for part in ("train", "test"))
    assert train.n_examples + test.n_examples == 100
    assert train.texts["grammar"] == test.texts["grammar"]
    assert train.classes == test.classes
    there, apart = (trees_in(str(tmp_path / "parts" / part)) for part in ("train", "test"))
    known = [tree for tree in apart if UNKNOWN_TAG not in tree]
    assert Counter(there) + Counter(known) <= Counter(lines)
    odd = [tree for tree in there if "ODD" in tree]
    assert 0 < len(odd) < 20
    assert len([tag for tag in train.classes if tag.startswith("ODD")]) == len(odd)
    assert not any("ODD" in tree for tree in known)


def test_a_test_set_is_prepared_with_the_grammar_of_the_training_set(tmp_path):
    prepare(write(tmp_path, [DOG, DOG]), tmp_path / "train", "cfg")
    new = ["(S (NP (DT the) (NN dog)) (VP (VBZ barks)))", "(S (NP (DT a) (XX cat)) (QP (VBZ barks)))"]
    prepare(write(tmp_path, new), tmp_path / "test", "cfg", grammar=str(tmp_path / "train"))
    train, test = (open_dataset(Location(str(tmp_path / part))) for part in ("train", "test"))
    assert dict(train.texts) == dict(test.texts)
    shard = test.read(0).shard
    grammar = read_grammar(test.texts["grammar"])
    assert shard.runs["tree"].of(0)[0] != OUTSIDE
    spans = shard.runs["tree"].of(1)[1:].reshape(-1, 3).tolist()
    assert [(grammar.names[label], *span) for label, *span in spans] == [("S", 0, 3), ("NP", 0, 2), (UNKNOWN_TAG, 2, 3)]
    assert [test.classes[code] for code in shard.y] == ["DT", "NN", "VBZ", "DT", UNKNOWN_TAG, "VBZ"]
    assert np.diff(shard.x.indptr).tolist() == [1, 1, 1, 0, 0, 1]  # no shape is known, as no training word is rare


def test_rare_words_are_known_by_their_shape():
    counts = Counter({"the": 9, "running": 1, "jumping": 1, "Vinken": 1, "61": 1, "U.S.": 1, "x-ray": 1})
    vocabulary = vocabulary_of(counts, 2)
    assert vocabulary == ["the", *sorted(["(a ng)", "(Aa)", "(0)", "(A.)", "(a-)"])]
    features = {name: k for k, name in enumerate(vocabulary)}
    found = {word: feature_of(word, features) for word in ("the", "swimming", "Agnew", "1989", "they", "%")}
    named = {word: None if k is None else vocabulary[k] for word, k in found.items()}
    assert named == {"the": "the", "swimming": "(a ng)", "Agnew": "(Aa)", "1989": "(0)", "they": None, "%": None}
    assert word_shape("Mid-1980s", 2) == "(Aa0-)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "binary"}, "cannot tell the format"),
        ({"kind": "binary", "format": "brackets"}, "a binary problem does not use them"),
        ({"kind": "binary", "max_length": 3}, "max_length applies only to"),
        ({"format": "svmlight"}, "reads trees alone: format brackets"),
        ({"scale": "unit-rows"}, "does not apply to words"),
        ({"n_features": 7}, "does not apply to words"),
        ({"max_length": 0}, "max_length must be 1 or more"),
        ({"max_length": 1}, "no trees to read a grammar from"),
        ({"binarise": "up"}, "binarise must be one of right, left"),
        ({"markov_order": "two"}, "markov_order must be a number or 'all'"),
        ({"min_count": 0}, "min_count must be 1 or more"),
        ({"grammar": "nowhere"}, "there is no data set"),
        ({"grammar": "nowhere", "min_count": 3}, "decides this already"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, options, message):
    source = write(tmp_path, [DOG])
    with pytest.raises(InputError, match=message):
        prepare(source, tmp_path / "data", **{"kind": "cfg", **options})
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [("(S (NP (NN dog))", "line 3: the file ends"), (f"({UNKNOWN_TAG} (NN a))", "line 2: the label")],
)
def test_a_broken_tree_leaves_nothing_behind(tmp_path, line, message):
    with pytest.raises(InputError, match=rf"trees.mrg, {message}"):
        prepare(write(tmp_path, [DOG, line, ""]), tmp_path / "data", "cfg", shard_bytes=10)
    assert not (tmp_path / "data").exists()


def test_data_without_a_grammar_gives_none(tmp_path):
    prepare_arrays(np.ones((4, 2)), [0, 1, 0, 1], tmp_path / "rows", "binary")
    with pytest.raises(InputError, match="holds no grammar"):
        prepare(write(tmp_path, [DOG]), tmp_path / "data", "cfg", grammar=str(tmp_path / "rows"))


def test_sequences_without_trees_are_no_data_for_parsing(tmp_path):
    with pytest.raises(InputError, match="needs trees"):
        prepare_arrays(np.ones((4, 2)), list("abab"), tmp_path / "data", "cfg", lengths=[2, 2])


def test_runs_are_shuffled_on_disk_with_their_examples(tmp_path):
    prepare(write(tmp_path, planted(4, 50)), tmp_path / "data", "cfg")
    shard = open_dataset(Location(str(tmp_path / "data"))).read(0).shard
    block = Block(shard.x, shard.y, None, None, shard.tokens, shard.runs)
    parts = list(shuffle([block.take(slice(k, k + 5)) for k in range(0, 50, 5)], seed=1, budget_bytes=500))
    pairs = [
        (part.runs["text"].of(i).tobytes(), part.runs["tree"].of(i).tobytes())
        for part in parts
        for i in range(part.n_examples)
    ]
    whole = [(shard.runs["text"].of(i).tobytes(), shard.runs["tree"].of(i).tobytes()) for i in range(50)]
    assert pairs != whole
    assert sorted(pairs) == sorted(whole)


def test_a_piece_of_a_shard_has_its_own_runs(tmp_path):
    prepare(write(tmp_path, planted(5, 20)), tmp_path / "data", "cfg")
    shard = open_dataset(Location(str(tmp_path / "data"))).read(0).shard
    piece = shard.piece(5, 9)
    for name, column in shard.runs.items():
        assert isinstance(piece.runs[name], Runs)
        assert [piece.runs[name].of(i).tolist() for i in range(4)] == [column.of(i).tolist() for i in range(5, 9)]
    assert piece.nbytes < shard.nbytes


def test_a_damaged_text_or_column_is_named(tmp_path):
    prepare(write(tmp_path, planted(6, 20)), tmp_path / "data", "cfg")
    chunk = tmp_path / "data" / "text_grammar" / "c" / "0"
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    data = open_dataset(Location(str(tmp_path / "data")))
    with pytest.raises(InputError, match=r"data: the text 'grammar' is missing or damaged"):
        data.texts["grammar"]
    chunk.unlink()
    with pytest.raises(InputError, match=r"data: the text 'grammar' is missing or damaged"):
        data.texts["grammar"]
    (tmp_path / "data" / "tree" / "c" / "0").unlink()
    with pytest.raises(InputError, match="shard 0, array 'tree': the chunk is missing"):
        data.read(0)
