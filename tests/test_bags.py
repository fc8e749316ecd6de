"""Bags from files to predictions, on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

from distdual.data.location import Location
from distdual.data.store import open_dataset
from tests.shell import assert_refused, call

ROOT = Path(__file__).parents[1]
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
    assert "the bounds are those of the last convex problem" in again.out
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
        (BAGS + "3 qid:5 1:1\n", ["a latent problem has two labels", "3"]),
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
    assert_refused(ran, "holds single rows", "latent problem needs sequences")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["train", "--resume"], "latent problems have no checkpoints; leave out --resume"),
        (["train", "--set", "output.checkpoint_every=5"], "latent problems have no checkpoints"),
        (["sweep", "--C", "0.1:1:2", "--folds", "2"], "problem.kind = 'latent': latent problems have no sweeps"),
    ],
)
def test_what_latent_problems_do_not_have_is_refused(tmp_path, text, capsys, command, words):
    assert call(capsys, "prepare", text, tmp_path / "bags", "--problem", "latent").code == 0
    told = ["--set", f"data.url={tmp_path / 'bags'}", "--set", f"output.url={tmp_path / 'model'}"]
    name, *options = command
    assert_refused(call(capsys, name, ROOT / "configs" / "latent.toml", *told, *options), words)
    assert not (tmp_path / "model").exists()
