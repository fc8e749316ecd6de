"""The largest weights of a linear model, with the names of its features."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import distdual
from distdual.data.prepare.api import prepare_arrays, prepare_frame
from distdual.errors import InputError
from distdual.report.weights import LONGEST, Weight, largest_weights, weights_chart
from distdual.report.write_report import write_report
from tests.build import examples

NAMES = ["size", "part=north", "part=<south>"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a table, trained without a run log."""
    folder = tmp_path_factory.mktemp("weights")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=200), "part": rng.choice(["north", "<south>"], 200)})
    frame["dear"] = frame["size"] + 2.0 * (frame["part"] == "north") > 1.0
    prepare_frame(frame, folder / "data", "binary", label="dear", scale="unit-variance")
    train(folder / "data", "binary", folder / "model")
    return folder / "model"


def train(data: Path, kind: str, model: Path) -> None:
    problem = {"kind": kind, "bias": 1.0}
    distdual.train({"data": {"url": str(data)}, "problem": problem, "output": {"url": str(model)}})


def test_the_report_of_a_model_without_a_log_shows_its_weights_by_name(model: Path) -> None:
    (file,) = write_report(str(model))
    assert file == model.with_suffix(".html")
    text = file.read_text(encoding="utf-8")
    for words in (
        "Largest weights",
        "part=north",
        "part=&lt;south&gt;",
        "scaled by unit-variance",
        "The run wrote no log",
    ):
        assert words in text
    assert "<h2>Certificate</h2>" in text
    with pytest.raises(InputError, match=r"the run wrote no log; set output\.log"):
        write_report(str(model), png=True)


def test_the_largest_weights_come_first_and_the_bias_is_none(model: Path) -> None:
    loaded = distdual.load_model(model)
    found = largest_weights(loaded)
    assert {each.name for each in found} == set(NAMES)
    assert [each.value for each in found] == sorted(loaded.w[:3], key=abs, reverse=True)
    assert largest_weights(loaded, 1) == found[:1]


def test_a_weight_belongs_to_a_class_where_there_are_several(tmp_path: Path) -> None:
    x, y, *_ = examples(0, 60, 3)
    prepare_arrays(x, np.where(x[:, 0] > 0.5, 2, y), tmp_path / "data", "multiclass")
    train(tmp_path / "data", "multiclass", tmp_path / "model")
    loaded = distdual.load_model(tmp_path / "model")
    values = {each.name: each.value for each in largest_weights(loaded)}
    blocks = loaded.w.reshape(3, 4)
    assert len(values) == 9
    assert values["2: feature 1"] == blocks[loaded.problem.describe()["classes"].index("2"), 1]


def test_a_long_name_is_cut_and_whole_in_its_tooltip() -> None:
    name = "n" * 40
    chart = weights_chart([Weight(name, -2.0), Weight("b", 1.0)])
    assert f">{name[: LONGEST - 1]}…</text>" in chart
    assert f"<title>{name} -2</title>" in chart
    assert weights_chart([]) == ""


@pytest.mark.parametrize("basis", [None, 5])
def test_a_model_with_a_kernel_has_no_weights_of_features(tmp_path: Path, basis: int | None) -> None:
    made = examples(1, 40, 3)
    prepare_arrays(made.x, made.y, tmp_path / "data", "binary")
    kernel = {"kind": "rbf"} | ({} if basis is None else {"basis": basis})
    config = {"data": {"url": str(tmp_path / "data")}, "problem": {"kind": "binary"}, "kernel": kernel}
    distdual.train({**config, "output": {"url": str(tmp_path / "model")}})
    (file,) = write_report(str(tmp_path / "model"))
    assert "Largest weights" not in file.read_text(encoding="utf-8")
