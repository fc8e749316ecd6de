"""Bags, and sequences for latent chains, from files to predictions, on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

from distdual.data.dataset import open_dataset
from distdual.data.storage.location import Location
from tests.shell import assert_refused, call

ROOT = Path(__file__).parents[3]
BAGS = """1 qid:1 1:0.1 2:2.1
1 qid:1 1:1.2 2:-0.3
-1 qid:2 1:0.9 2:0.1
-1 qid:2 1:-0.4 2:-1.0
1 qid:3 1:-0.5 2:1.8
-1 qid:4 1:0.3 2:-0.6
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "bags.txt").write_text(BAGS)
    return tmp_path / "bags.txt"


@pytest.mark.parametrize("named", [[], ["--format", "svmlight"], ["--format", "svmhmm"]])
def test_text_with_bags_is_trained_verified_and_predicted(tmp_path, text, capsys, named):
    data, model, labels = tmp_path / "bags", tmp_path / "model", tmp_path / "labels.txt"
    assert call(capsys, "prepare", text, data, "--problem", "latent", *named).code == 0
    dataset = open_dataset(Location(str(data)))
    assert (dataset.n_examples, dataset.classes) == (4, ("-1", "1"))
    told = ["--set", f"data.url={data}", "--set", f"output.url={model}", "--json"]
    trained = call(capsys, "train", ROOT / "configs" / "latent.toml", *told)
    assert trained.code == 0, trained.err
    found = json.loads(trained.out)
    assert found["certified"]
    assert found["latent"]["objective"] <= found["upper"] * (1 + 1e-9)
    again = call(capsys, "train", ROOT / "configs" / "latent.toml", *told[:-1])
    assert "the bounds belong to the last convex problem" in again.out
    assert call(capsys, "verify", model).code == 0
    assert call(capsys, "predict", model, data, "--out", labels).code == 0
    assert labels.read_text().split() == ["1", "-1", "1", "-1"]
    assert call(capsys, "info", model).code == 0


def test_arrays_with_bounds_are_the_same_bags(tmp_path, text, capsys):
    x = [[0.1, 2.1], [1.2, -0.3], [0.9, 0.1], [-0.4, -1.0], [-0.5, 1.8], [0.3, -0.6]]
    np.savez(tmp_path / "bags.npz", x=np.array(x), y=np.array([1, 1, -1, -1, 1, -1]), tokens=np.array([0, 2, 4, 5, 6]))
    assert call(capsys, "prepare", tmp_path / "bags.npz", tmp_path / "bags", "--problem", "latent").code == 0
    shard = open_dataset(Location(str(tmp_path / "bags"))).read(0).shard
    assert shard.tokens.tolist() == [0, 2, 4, 5, 6]
    assert shard.y.tolist() == [1, 1, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (BAGS.replace("1 qid:1 1:1.2", "-1 qid:1 1:1.2"), ["bag 0", "labels 1.0 and -1.0", "one label"]),
        (BAGS + "3 qid:5 1:1\n", ["a latent problem has 2 labels", "3"]),
        (BAGS.replace("1 qid:3", "1"), ["line 5", "no qid"]),
    ],
    ids=["two labels in a bag", "three labels", "no bag"],
)
def test_bad_bags_are_refused(tmp_path, text, capsys, lines, words):
    text.write_text(lines)
    assert_refused(call(capsys, "prepare", text, tmp_path / "bags", "--problem", "latent"), *words)
    assert not (tmp_path / "bags").exists()


def test_single_rows_are_no_bags(tmp_path, capsys):
    np.savez(tmp_path / "rows.npz", x=np.eye(2), y=np.array([1, -1]))
    ran = call(capsys, "prepare", tmp_path / "rows.npz", tmp_path / "bags", "--problem", "latent")
    assert_refused(ran, "holds single rows", "latent problem needs bags")


def test_latent_problems_have_no_sweeps(tmp_path, text, capsys):
    assert call(capsys, "prepare", text, tmp_path / "bags", "--problem", "latent").code == 0
    told = ["--set", f"data.url={tmp_path / 'bags'}", "--set", f"output.url={tmp_path / 'model'}"]
    ran = call(capsys, "sweep", ROOT / "configs" / "latent.toml", *told, "--C", "0.1:1:2", "--folds", "2")
    assert_refused(ran, "problem.kind = 'latent': latent problems have no sweeps")
    assert not (tmp_path / "model").exists()


def test_tagged_text_is_prepared_for_a_latent_chain_as_for_a_chain(tmp_path, capsys):
    (tmp_path / "words.txt").write_text("1 qid:1 1:1 4:0.5\n2 qid:1 2:1\n1 qid:2 1:1 3:1\n2 qid:2 2:1 4:1\n")
    for kind in ("chain", "latent_chain"):
        assert call(capsys, "prepare", tmp_path / "words.txt", tmp_path / kind, "--problem", kind).code == 0
    one, other = (open_dataset(Location(str(tmp_path / kind))).read(0).shard for kind in ("chain", "latent_chain"))
    for a, b in zip((*one.x, one.y, one.tokens), (*other.x, other.y, other.tokens), strict=True):
        np.testing.assert_array_equal(a, b)
    told = ["--set", f"data.url={tmp_path / 'latent_chain'}", "--set", f"output.url={tmp_path / 'model'}"]
    ran = call(capsys, "train", ROOT / "configs" / "latent_chain.toml", *told, "--set", "problem.substates=3", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["latent"]["objective"] > 0
    checked = call(capsys, "verify", tmp_path / "model")
    assert (checked.code, "latent     objective" in checked.out) == (0, True)
    assert call(capsys, "predict", tmp_path / "model", tmp_path / "chain", "--out", tmp_path / "tags.txt").code == 0
    assert [len(line.split()) for line in (tmp_path / "tags.txt").read_text().splitlines()] == [2, 2]


def test_text_in_columns_is_for_latent_chains_too(tmp_path, capsys):
    (tmp_path / "words.txt").write_text("The D\ndog N\n\nA D\ncat N\n")
    (tmp_path / "templates.toml").write_text('templates = ["word[0]"]\n')
    ran = call(
        capsys,
        "prepare",
        tmp_path / "words.txt",
        tmp_path / "data",
        "--problem",
        "latent_chain",
        "--format",
        "conll",
        "--templates",
        tmp_path / "templates.toml",
    )
    assert ran.code == 0, ran.err
    assert open_dataset(Location(str(tmp_path / "data"))).classes == ("D", "N")
