"""Parsing from bracketed text to a verified model and back to bracketed text, on the command line and in Python."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdual
from distdual.data.prepare.api import prepare, prepare_arrays
from distdual.data.prepare.writer import DatasetWriter
from distdual.data.shard import Block
from distdual.data.sources.base import Attached
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.model.io import load_model
from distdual.model.predict import predict
from distdual.problems.parsing.brackets import trees_of
from tests import naive
from tests.problems.parsing.trees import brackets, every_wrong_tree, planted, random_grammar, sentences
from tests.shell import assert_refused, call
from tests.shell import distdual as run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("parsing")
    for name, seed, n in (("train", 0, 60), ("test", 1, 40)):
        (made / f"{name}.mrg").write_text("".join(f"{line}\n" for line in planted(seed, n)), encoding="utf-8")
    return made


def config(folder: Path, **problem: Any) -> dict[str, Any]:
    return {
        "data": {"url": str(folder / "train")},
        "problem": {"kind": "cfg", **problem},
        "solver": {"C": 1.0, "gap": 1e-2},
        "output": {"url": str(folder / "model"), "overwrite": True},
    }


@pytest.fixture(scope="module")
def prepared(folder: Path) -> Path:
    prepare(folder / "train.mrg", folder / "train", "cfg", shard_bytes=1500)
    prepare(folder / "test.mrg", folder / "test", "cfg", grammar=str(folder / "train"))
    return folder


@pytest.mark.parametrize("loss", ["span", pytest.param("zero-one", marks=pytest.mark.slow)])
def test_prepare_train_verify_predict_on_the_command_line(folder, tmp_path, loss):
    data = ["--problem", "cfg", "--shard-bytes", 1500]
    assert run("prepare", folder / "train.mrg", "train", *data, cwd=tmp_path).code == 0
    ran = run("prepare", folder / "test.mrg", "test", *data, "--grammar", "train", cwd=tmp_path)
    assert ran.code == 0, ran.err
    (tmp_path / "run.toml").write_text(
        f'data.url = "train"\nproblem = {{ kind = "cfg", loss = "{loss}" }}\nsolver.gap = 1e-2\noutput.url = "model"\n'
    )
    ran = run("train", "run.toml", cwd=tmp_path, timeout=170)
    assert (ran.code, ran.out[:9]) == (0, "certified"), ran.err
    ran = run("verify", "model", "--json", cwd=tmp_path)
    assert json.loads(ran.out)["certified"], ran.out
    ran = run("predict", "model", "test", "--out", "trees.txt", "--json", cwd=tmp_path)
    score = json.loads(ran.out)["score"]
    assert score["f1"] > 0.9
    found = [tree for _, tree in trees_of(Location(str(tmp_path / "trees.txt")))]
    right = [tree for _, tree in trees_of(Location(str(folder / "test.mrg")))]
    assert [[leaf.below for leaf in tree.leaves()] for tree in found] == [
        [leaf.below for leaf in tree.leaves()] for tree in right
    ]
    pairs = [(brackets(a), brackets(b)) for a, b in zip(right, found, strict=True)]
    shared = sum((a & b).total() for a, b in pairs)
    n_right, n_found = (sum(pair[k].total() for pair in pairs) for k in (0, 1))
    assert score["precision"] == pytest.approx(shared / n_found)
    assert score["recall"] == pytest.approx(shared / n_right)
    assert score["f1"] == pytest.approx(2 * shared / (n_right + n_found))
    assert score["exact_match"] == pytest.approx(np.mean([a == b for a, b in pairs]))
    assert (tmp_path / "model" / "problem" / "grammar.txt").read_text().startswith('{"format": 1')
    assert "grammar" in run("info", "model", cwd=tmp_path).out


@pytest.mark.parametrize("loss", ["span", "zero-one"])
def test_a_run_agrees_with_an_independent_solver(tmp_path, loss):
    grammar = random_grammar(4)
    shard = sentences(grammar, 4, [2, 3, 2, 3, 2, 1], cost=True)
    attached = Attached(texts={"grammar": grammar.to_text()}, labels=grammar.tags)
    with DatasetWriter(Location(str(tmp_path / "train")), "cfg", attached=attached) as writer:
        writer.append(Block(shard.x, np.array(grammar.tags)[shard.y], shard.cost, None, shard.tokens, shard.runs))
        writer.finish()
    result = distdual.train({**config(tmp_path, loss=loss), "solver": {"C": 0.3, "gap": 1e-6}})
    assert distdual.verify(str(tmp_path / "model")).certified
    every = [every_wrong_tree(result.model.problem, shard, i) for i in range(shard.n_examples)]
    each = [(i, *found) for i in range(shard.n_examples) for found in every[i].values()]
    group, rows, margin, _ = (np.array(part) for part in zip(*each, strict=True))
    best = naive.optimum(naive.Program(rows, margin, group, 0.3 * shard.cost), 1e-6).upper
    assert result.certificate["lower"] == pytest.approx(best, rel=3e-6)
    assert result.certificate["upper"] == pytest.approx(best, rel=3e-6)


@pytest.mark.slow
def test_a_run_on_processes_gives_the_same_bits(prepared, tmp_path):
    weights = []
    for name, cluster in (("inline", {}), ("dask", {"local": {"workers": 2, "threads": 1}})):
        told = {**config(prepared), "cluster": cluster, "output": {"url": str(tmp_path / name)}}
        weights.append(distdual.train(told).model.w)
    np.testing.assert_array_equal(*weights)


def test_a_model_goes_with_its_grammar_alone(prepared, tmp_path, capsys):
    distdual.train(config(prepared))
    prepare(prepared / "test.mrg", tmp_path / "other", "cfg", markov_order=0)
    ran = call(capsys, "predict", prepared / "model", tmp_path / "other", "--out", tmp_path / "trees.txt")
    assert_refused(ran, "other", "the model was trained with")
    file = prepared / "model" / "problem" / "grammar.txt"
    whole = file.read_text()
    file.write_text(whole.replace("root", "tour", 1))
    with pytest.raises(InputError, match="grammar"):
        load_model(Location(str(prepared / "model")))
    lines = whole.splitlines(keepends=True)
    file.write_text("".join(line for line in lines if line != lines[-1]))
    with pytest.raises(InputError, match="grammar is not the one"):
        load_model(Location(str(prepared / "model")))


def test_training_on_trees_outside_the_grammar_is_refused(prepared, tmp_path, capsys):
    (tmp_path / "odd.mrg").write_text("(S (VP (VB sees) (VB sees) (VB sees)))\n")
    prepare(tmp_path / "odd.mrg", tmp_path / "odd", "cfg", grammar=str(prepared / "train"))
    told = f'data.url = "{tmp_path}/odd"\nproblem.kind = "cfg"\noutput.url = "{tmp_path}/model"\n'
    (tmp_path / "run.toml").write_text(told)
    ran = call(capsys, "train", tmp_path / "run.toml")
    assert_refused(ran, "row 0", "the grammar cannot derive the tree")


@pytest.mark.parametrize("kind", ["chain", "cfg"])
def test_data_for_parsing_and_data_for_tagging_are_not_the_same(prepared, tmp_path, kind):
    url = str(prepared / "train")
    if kind == "cfg":
        prepare_arrays(np.eye(4, dtype=np.float32), list("abab"), tmp_path / "tags", "chain", lengths=[2, 2])
        url = str(tmp_path / "tags")
    told = {"data": {"url": url}, "problem": {"kind": kind}, "output": {"url": str(tmp_path / "model")}}
    if kind == "cfg":
        with pytest.raises(InputError, match="needs a data set with a grammar"):
            distdual.train(told)
    else:
        assert distdual.train({**told, "solver": {"gap": 0.1}}).certificate["certified"]  # tags alone: a chain will do


def test_plain_sentences_are_parsed_as_those_of_a_data_set(prepared, tmp_path):
    model = distdual.train(config(prepared)).model
    trees = [tree for _, tree in trees_of(Location(str(prepared / "test.mrg")))]
    lines = [" ".join(str(leaf.below) for leaf in tree.leaves()) for tree in trees]
    (tmp_path / "plain.txt").write_text("\n\n".join(lines), encoding="utf-8")
    found = predict(model, str(tmp_path / "plain.txt"))
    assert found.labels.tolist() == predict(model, str(prepared / "test")).labels.tolist()
    assert found.score is None


def test_brackets_in_plain_sentences_are_refused(prepared, tmp_path):
    model = distdual.train(config(prepared)).model
    (tmp_path / "plain.txt").write_text("the dog\n(S (DT the))\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"plain.txt, line 2: a bracket in a sentence; write -LRB-"):
        predict(model, str(tmp_path / "plain.txt"))
