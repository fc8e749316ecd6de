"""Text in columns becomes a data set whose features have names, and a second text the same features."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdual import train
from distdual.cli.info import describe
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare
from distdual.data.sources.conll import blocks_from_conll, made_with, sentences_of, stored_numbering
from distdual.data.sources.templates import templates_from
from distdual.data.sources.vocabulary import Hashing, Vocabulary
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.model.predict import predict
from tests.shell import call

CHUNKS = """\
The DT B-NP
dog NN I-NP
barks VBZ B-VP

# # B-NP
1 CD I-NP
fell VBD B-VP
\t
It PRP B-NP
"""
CONLLU = """\
# text = Don't stop it
1-2\tDon't\t_\t_\t_
1\tDo\tdo\tAUX\t_
2\tn't\tnot\tPART\t_
2.1\tever\t_\tADV\t_
3\tstop it\tstop\tVERB\t_

# text = Go
1\tGo\tgo\tVERB\t_
"""
TABLE: dict[str, Any] = {"columns": {"word": 1, "pos": 2}, "templates": ["word[-1..1]", "pos[0]", "word[0]|pos[0]"]}
UPOS: dict[str, Any] = {"columns": {"word": 2}, "tag": 4, "conllu": True, "templates": ["word[0]", "word[-1]"]}


def put(folder: Path, text: str, name: str = "text.txt") -> str:
    (folder / name).write_bytes(text.encode())
    return str(folder / name)


def read_back(url: str) -> list[list[tuple[str, set[str]]]]:
    """Each sentence as (tag, names of the features) of its tokens."""
    dataset = open_dataset(Location(url))
    names = stored_numbering(dataset, made_with(dataset))
    assert isinstance(names, Vocabulary)
    found = []
    for number in range(dataset.n_shards):
        shard = dataset.read(number).shard
        for i in range(shard.n_examples):
            rows = range(shard.tokens[i], shard.tokens[i + 1])
            at = [shard.x.indices[shard.x.indptr[t] : shard.x.indptr[t + 1]] for t in rows]
            tags = [dataset.classes[shard.y[t]] for t in rows]
            found.append([(tag, {names.names[k] for k in its}) for tag, its in zip(tags, at, strict=True)])
    return found


def test_columns_become_tags_and_named_features(tmp_path: Path) -> None:
    prepare(put(tmp_path, CHUNKS), tmp_path / "set", "chain", templates=TABLE)
    first, second, third = read_back(str(tmp_path / "set"))
    assert [tag for tag, _ in first] == ["B-NP", "I-NP", "B-VP"]
    assert first[0][1] == {"word[-1]=<BOS>", "word[0]=The", "word[1]=dog", "pos[0]=DT", "word[0]|pos[0]=The|DT"}
    assert "word[0]=#" in second[0][1]
    assert third[0][1] == {"word[-1]=<BOS>", "word[0]=It", "word[1]=<EOS>", "pos[0]=PRP", "word[0]|pos[0]=It|PRP"}


def test_conllu_leaves_comments_words_of_several_tokens_and_empty_ones_out(tmp_path: Path) -> None:
    prepare(put(tmp_path, CONLLU), tmp_path / "set", "chain", templates=UPOS)
    first, second = read_back(str(tmp_path / "set"))
    assert [tag for tag, _ in first] == ["AUX", "PART", "VERB"]
    assert first[2][1] == {"word[0]=stop it", "word[-1]=n't"}
    assert second == [("VERB", {"word[0]=Go", "word[-1]=<BOS>"})]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_text_may_be_compressed_and_end_its_lines_in_either_way(
    tmp_path: Path, pack: Callable[[bytes], bytes], line_end: str
) -> None:
    prepare(put(tmp_path, CHUNKS), tmp_path / "plain", "chain", templates=TABLE)
    packed = tmp_path / "packed"
    packed.write_bytes(pack(b"\xef\xbb\xbf" + CHUNKS.replace("\n", line_end).encode()))
    prepare(packed, tmp_path / "set", "chain", templates=TABLE)
    assert read_back(str(tmp_path / "set")) == read_back(str(tmp_path / "plain"))


@pytest.mark.parametrize("block_bytes", [1, 7, 30, 1 << 20])
@pytest.mark.parametrize("text", [CHUNKS, CHUNKS.rstrip("\n"), "\n\n" + CHUNKS + "\n\n\n"])
def test_sentences_do_not_depend_on_the_pieces_that_are_read(tmp_path: Path, text: str, block_bytes: int) -> None:
    source, made = Location(put(tmp_path, text)), templates_from(TABLE)
    words = [
        [word.decode() for word in some.columns["word"][a:b]]
        for some in sentences_of(source, made, block_bytes)
        for a, b in zip(some.tokens, some.tokens[1:], strict=False)
    ]
    assert words == [["The", "dog", "barks"], ["#", "1", "fell"], ["It"]]


def test_several_files_are_read_in_order_and_end_their_last_sentence(tmp_path: Path) -> None:
    files = [put(tmp_path, CHUNKS.rstrip(), "a"), put(tmp_path, "Go VB B-VP", "b")]
    prepare(files, tmp_path / "set", "chain", format="conll", templates=TABLE)
    found = read_back(str(tmp_path / "set"))
    assert [len(sentence) for sentence in found] == [3, 3, 1, 1]
    assert found[3] == [
        ("B-VP", {"word[-1]=<BOS>", "word[0]=Go", "word[1]=<EOS>", "pos[0]=VB", "word[0]|pos[0]=Go|VB"})
    ]


def test_a_second_text_has_the_features_and_tags_of_the_first(tmp_path: Path) -> None:
    prepare(put(tmp_path, CHUNKS), tmp_path / "train", "chain", templates=TABLE)
    other = put(tmp_path, "The DT B-NP\ncat NN I-NP\n1 CD I-LST\n", "other")
    prepare(other, tmp_path / "test", "chain", vocabulary=tmp_path / "train")
    [sentence] = read_back(str(tmp_path / "test"))
    assert sentence[1] == ("I-NP", {"word[-1]=The", "word[1]=1", "pos[0]=NN"})
    train_set, test_set = (open_dataset(Location(str(tmp_path / name))) for name in ("train", "test"))
    assert test_set.n_features == train_set.n_features
    assert test_set.layout.labels == (*train_set.layout.labels, "I-LST")
    assert test_set.layout.recipe == train_set.layout.recipe
    assert dict(test_set.texts) == dict(train_set.texts)
    assert test_set.layout.attributes()["format"] == 3


def test_a_feature_must_be_frequent_enough(tmp_path: Path) -> None:
    prepare(put(tmp_path, CHUNKS), tmp_path / "set", "chain", templates={**TABLE, "min_count": 2})
    kept = {name for sentence in read_back(str(tmp_path / "set")) for _, names in sentence for name in names}
    assert kept == {"word[-1]=<BOS>", "word[1]=<EOS>"}


def test_hashed_features_need_no_vocabulary(tmp_path: Path) -> None:
    [made] = prepare(put(tmp_path, CHUNKS), tmp_path / "set", "chain", templates={**TABLE, "hash_bits": 6})
    [again] = prepare(put(tmp_path, CHUNKS), tmp_path / "again", "chain", vocabulary=tmp_path / "set")
    assert made.n_features == again.n_features == 64
    shards = [open_dataset(Location(url)).read(0).shard for url in (made.url, again.url)]
    np.testing.assert_array_equal(shards[0].x.indices, shards[1].x.indices)
    assert not open_dataset(Location(made.url)).texts
    assert open_dataset(Location(made.url)).layout.attributes()["format"] == 2
    assert describe(Location(made.url))["vocabulary"] == "none, a hash of 6 bits"


def test_the_vocabulary_lies_beside_the_shards_wherever_they_are(tmp_path: Path, location: Location) -> None:
    prepare(put(tmp_path, CHUNKS), location, "chain", templates=TABLE)
    prepare(put(tmp_path, CHUNKS), tmp_path / "again", "chain", vocabulary=location)
    assert dict(open_dataset(location).texts) == dict(open_dataset(Location(str(tmp_path / "again"))).texts)
    about = describe(location)
    assert (about["templates"], about["texts"]) == (TABLE["templates"], ["vocabulary"])
    assert about["vocabulary"] == f"{about['features']} features, min_count 1"


def test_a_damaged_vocabulary_is_told(tmp_path: Path) -> None:
    prepare(put(tmp_path, CHUNKS), tmp_path / "set", "chain", templates=TABLE)
    [chunk] = (tmp_path / "set" / "text_vocabulary" / "c").iterdir()
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"?")
    with pytest.raises(InputError, match="'vocabulary' is missing or damaged"):
        prepare(put(tmp_path, CHUNKS), tmp_path / "again", "chain", vocabulary=tmp_path / "set")
    prepare(put(tmp_path, CHUNKS.replace("dog", "cat")), tmp_path / "other", "chain", templates=TABLE)
    chunk.write_bytes((tmp_path / "other" / "text_vocabulary" / "c" / "0").read_bytes())
    with pytest.raises(InputError, match="'vocabulary' is not what was prepared: its checksum differs"):
        prepare(put(tmp_path, CHUNKS), tmp_path / "again", "chain", vocabulary=tmp_path / "set")
    chunk.unlink()
    with pytest.raises(InputError, match="'vocabulary' is missing or damaged"):
        prepare(put(tmp_path, CHUNKS), tmp_path / "again", "chain", vocabulary=tmp_path / "set")


@pytest.mark.parametrize(
    ("text", "table", "sentence"),
    [
        ("a N x\nb N\n", TABLE, "line 2: 2 columns, but the lines before it have 3"),
        (CONLLU, {**UPOS, "conllu": False}, "line 2: 5 columns, but the lines before it have 6; if this is CoNLL-U"),
        ("a\n", {"templates": ["word[0]"]}, "line 1: 1 columns, but tag is given as column 2"),
        ("a x\n", TABLE, "templates look at pos, column 2, which as the last holds the tag"),
        ("a N x\n", {**TABLE, "columns": {"word": 1, "pos": 5}}, "line 1: 3 columns, but pos is given as column 5"),
        ("a\t\tx\n", {"templates": ["word[0]"]}, "line 1: column 2 is empty"),
        ("one\tGo\tgo\tVERB\n", UPOS, "line 1: expected the number of a token, found 'one'"),
        ("\n\n", TABLE, "there are no examples"),
        ("a N x\nb N x\n", TABLE, "all examples have the label x"),
    ],
)
def test_text_that_is_not_as_said_is_refused_and_leaves_nothing(
    tmp_path: Path, text: str, table: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError) as refused:
        prepare(put(tmp_path, text), tmp_path / "set", "chain", templates=table)
    assert sentence in str(refused.value)
    assert not (tmp_path / "set").exists()


def test_bytes_that_are_no_text_are_named_by_their_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"a N x\nb\xff N y\n")
    with pytest.raises(InputError, match="line 2: not UTF-8 text"):
        prepare(tmp_path / "text", tmp_path / "set", "chain", templates=TABLE)


def test_text_without_blank_lines_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distdual.data.sources.conll.MAX_TOKENS", 5)
    source = Location(put(tmp_path, "a N x\n" * 6))
    with pytest.raises(InputError, match="a sentence of more than 5 tokens; expected a blank line"):
        list(blocks_from_conll(source, templates_from(TABLE), Hashing(3)))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"format": "conll"}, "conll text needs either templates"),
        ({"templates": TABLE, "vocabulary": "elsewhere"}, "conll text needs either templates"),
        ({"templates": TABLE, "format": "svmlight"}, "templates and vocabulary are for conll text"),
        ({"templates": TABLE, "labels": ["y.npy"]}, "conll text holds its tags in a column"),
        ({"vocabulary": "elsewhere"}, "there is no data set"),
        ({"templates": TABLE, "min_count": 2}, "min_count applies only to"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=sentence):
        prepare(put(tmp_path, CHUNKS), "set", "chain", **options)


def test_only_chains_take_text_and_only_text_has_a_vocabulary(tmp_path: Path) -> None:
    text = put(tmp_path, CHUNKS)
    for kind in ("binary", "cfg"):
        with pytest.raises(
            InputError, match=f"conll text holds tagged sequences, for a chain problem; a {kind} problem"
        ):
            prepare(text, tmp_path / "set", kind, templates=TABLE)
    prepare(put(tmp_path, "1 qid:1 1:1\n2 qid:2 2:1\n", "words.txt"), tmp_path / "words", "chain")
    with pytest.raises(InputError, match="was not made from conll text"):
        prepare(text, tmp_path / "set", "chain", vocabulary=tmp_path / "words")


def test_a_model_scores_spans_and_counts_unknown_tags_as_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "made.toml").write_text('columns = { word = 1, pos = 2 }\ntemplates = ["word[0]", "pos[0]"]\n')
    text, data = put(tmp_path, (CHUNKS + "\n") * 3), str(tmp_path / "train")
    told = ["--problem", "chain", "--format", "conll"]
    assert call(capsys, "prepare", text, data, *told, "--templates", tmp_path / "made.toml").code == 0
    other = put(tmp_path, CHUNKS.replace("It PRP B-NP", "It PRP I-LST"), "other")
    assert call(capsys, "prepare", other, tmp_path / "test", *told, "--vocabulary", data).code == 0
    model = str(tmp_path / "model")
    config = {"data": {"url": data}, "problem": {"kind": "chain"}, "solver": {"gap": 0.01}, "output": {"url": model}}
    assert train(config).certificate["certified"]
    assert predict(model, data).score == dict.fromkeys(
        ("accuracy", "sequence_accuracy", "span_f1", "span_precision", "span_recall"), 1.0
    )
    found = predict(model, str(tmp_path / "test")).score
    assert found == pytest.approx(
        {"accuracy": 6 / 7, "sequence_accuracy": 2 / 3, "span_f1": 0.8, "span_precision": 0.8, "span_recall": 0.8}
    )
    told = call(capsys, "predict", model, tmp_path / "test", "--out", tmp_path / "tags.txt")
    assert "span_f1 0.8000" in told.out


def test_text_with_a_vocabulary_of_its_own_is_refused_by_a_model(tmp_path: Path) -> None:
    for name, text in (("train", CHUNKS), ("other", CHUNKS.replace("dog", "cat"))):
        prepare(put(tmp_path, text), tmp_path / name, "chain", templates=TABLE)
    model = str(tmp_path / "model")
    config = {"data": {"url": str(tmp_path / "train")}, "problem": {"kind": "chain"}, "output": {"url": model}}
    train({**config, "solver": {"gap": 0.1}})
    with pytest.raises(InputError, match="features are numbered differently from the data set"):
        predict(model, str(tmp_path / "other"))


@pytest.mark.parametrize("hash_bits", [None, 8])
def test_a_model_tags_text_with_and_without_tags(hash_bits, tmp_path):
    table = TABLE if hash_bits is None else {**TABLE, "hash_bits": hash_bits}
    data, model = str(tmp_path / "data"), str(tmp_path / "model")
    prepare(put(tmp_path, CHUNKS), data, "chain", templates=table)
    train({"data": {"url": data}, "problem": {"kind": "chain"}, "output": {"url": model}})
    known = predict(model, data)
    tagged = predict(model, put(tmp_path, CHUNKS))
    bare = "\n".join(line.rsplit(" ", 1)[0] if line.strip() else "" for line in CHUNKS.splitlines())
    plain = predict(model, put(tmp_path, bare, "bare.txt"))
    for found in (tagged, plain):
        assert found.labels.tolist() == known.labels.tolist()
        assert found.lengths.tolist() == known.lengths.tolist()
    assert tagged.score == pytest.approx(known.score)
    assert plain.score is None


def test_conllu_whose_tags_are_blank_is_tagged_without_a_score(tmp_path):
    data, model = str(tmp_path / "data"), str(tmp_path / "model")
    prepare(put(tmp_path, CONLLU), data, "chain", templates=UPOS)
    train({"data": {"url": data}, "problem": {"kind": "chain"}, "output": {"url": model}})
    blank = "\n".join(
        "\t".join([*line.split("\t")[:3], "_", "_"]) if "\t" in line else line for line in CONLLU.splitlines()
    )
    found = predict(model, put(tmp_path, blank, "blank.txt"))
    assert found.labels.tolist() == predict(model, data).labels.tolist()
    assert found.score is None
