"""Data sets without labels: predictions of many rows on a cluster, and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import distdual
from distdual.cli.info import describe
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare, prepare_arrays, prepare_frame
from distdual.data.storage.location import Location
from distdual.errors import InputError
from tests.shell import assert_refused, call


def flats(n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.uniform(20, 120, n), "part": rng.choice(["north", "west"], n)})
    frame["rent"] = 11 * frame["size"] + 250 * (frame["part"] == "north")
    return frame


@pytest.fixture(scope="module", params=["regression", "binary"])
def folder(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a table with a weight for each row, the rows it predicts, and a data set of these."""
    made, frame = tmp_path_factory.mktemp("unlabelled"), flats().assign(weight=2.0)
    kind = request.param
    if kind == "binary":
        frame["rent"] = np.where(frame["rent"] > 900, "dear", "cheap")
    prepare_frame(frame, made / "flats", kind, label="rent", weight="weight", scale="unit-variance")
    distdual.train(
        {
            "data": {"url": str(made / "flats")},
            "problem": {"kind": kind, "bias": 1.0},
            "solver": {"gap": 1e-2},
            "output": {"url": str(made / "model")},
        }
    )
    flats().drop(columns="rent").to_csv(made / "rows.csv", index=False)
    prepare(made / "rows.csv", made / "rows", kind, like=made / "model", unlabelled=True, shard_bytes=200)
    return made


def test_they_have_the_predictions_of_the_raw_rows_and_no_score(folder: Path) -> None:
    found = distdual.predict(folder / "model", folder / "rows", scores=True)
    known = distdual.predict(folder / "model", folder / "rows.csv", scores=True)
    assert found.score is None
    assert found.labels.tolist() == known.labels.tolist()
    assert found.scores is not None
    assert known.scores is not None
    np.testing.assert_array_equal(found.scores, known.scores)
    estimator = distdual.load_model(folder / "model").to_estimator()
    assert estimator.predict(folder / "rows").tolist() == known.labels.tolist()


def test_labels_that_are_there_are_left_out(folder: Path, tmp_path: Path) -> None:
    kind = open_dataset(Location(str(folder / "flats"))).layout.kind
    prepare_frame(flats(), tmp_path / "rows", kind, like=folder / "model", unlabelled=True)
    stored = open_dataset(Location(str(tmp_path / "rows")))
    assert stored.layout.columns == ()
    assert "y" not in [spec.name for spec in stored.layout.arrays]
    assert describe(Location(str(tmp_path / "rows")))["labels"] == "none: rows to predict"


def test_nothing_learns_from_them(folder: Path, tmp_path: Path, capsys: Any) -> None:
    rows, refused = folder / "rows", "was prepared without labels"
    kind = open_dataset(Location(str(rows))).layout.kind
    config = {"data": {"url": str(rows)}, "problem": {"kind": kind}, "output": {"url": str(tmp_path / "model")}}
    with pytest.raises(InputError, match=refused):
        distdual.train(config)
    with pytest.raises(InputError, match=refused):
        distdual.train({**config, "data": {"url": str(folder / "flats")}, "eval": {"url": str(rows)}})
    with pytest.raises(InputError, match=refused):
        distdual.load_model(folder / "model").to_estimator().fit(rows)
    assert_refused(call(capsys, "verify", folder / "model", "--data", rows), refused)
    with pytest.raises(InputError, match="append"):
        prepare(folder / "rows.csv", rows, kind, append=True, unlabelled=True)
    with pytest.raises(InputError, match=refused):
        prepare_frame(flats().assign(weight=1.0), rows, kind, append=True, scale="unit-variance")


def test_an_estimator_gives_no_score_for_them(folder: Path) -> None:
    with pytest.raises(InputError, match="was prepared without labels"):
        distdual.load_model(folder / "model").to_estimator().score(folder / "rows")


def test_tables_need_a_model(folder: Path, tmp_path: Path, capsys: Any) -> None:
    command = ["prepare", folder / "rows.csv", tmp_path / "rows", "--problem", "regression", "--unlabelled"]
    assert_refused(call(capsys, *command), "--like MODEL")
    command = ["prepare", folder / "rows.csv", tmp_path / "rows", "--problem", "regression", "--like", folder / "model"]
    assert_refused(call(capsys, *command), "no column 'rent' of labels", "--unlabelled")


def test_arrays_and_text_need_no_labels(tmp_path: Path) -> None:
    x = np.arange(12.0).reshape(6, 2)
    np.savez(tmp_path / "x.npz", x=x)
    (tmp_path / "x.txt").write_text("1:0.5 2:1\n2:3\n")
    prepare(tmp_path / "x.npz", tmp_path / "npz", "binary", unlabelled=True)
    prepare(tmp_path / "x.txt", tmp_path / "text", "binary", unlabelled=True)
    prepare_arrays(x, None, tmp_path / "arrays", "multiclass", unlabelled=True)
    prepare_arrays([x[:2], x[2:]], None, tmp_path / "chain", "chain", unlabelled=True)
    n = [open_dataset(Location(str(tmp_path / name))).n_examples for name in ("npz", "text", "arrays", "chain")]
    assert n == [6, 2, 6, 2]
    np.testing.assert_array_equal(open_dataset(Location(str(tmp_path / "chain"))).read(0).shard.x.values, x)


def test_other_formats_hold_their_labels(tmp_path: Path) -> None:
    (tmp_path / "trees.txt").write_text("(S (NP a) (VP b))\n")
    with pytest.raises(InputError, match="leave unlabelled out"):
        prepare(tmp_path / "trees.txt", tmp_path / "trees", "cfg", unlabelled=True)
