"""A run that follows a data set trains again when shards are appended, starting from its own model."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import distdual
from distdual.config import from_table
from distdual.coordinator.follow import follow_data
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from tests.build import examples
from tests.shell import assert_refused, call

MADE = examples(3, 900, 5, flip=0.2)


def append(folder: Path, begin: int, end: int) -> None:
    place = folder / "data"
    how = {"append": True} if place.exists() else {"shard_bytes": 4000}
    prepare_arrays(MADE.x[begin:end], MADE.y[begin:end], str(place), "binary", **how)


def config(folder: Path, **problem: Any) -> dict[str, Any]:
    return {
        "data": {"url": str(folder / "data")},
        "problem": {"kind": "binary", "bias": 1.0, **problem},
        "solver": {"gap": 1e-5},
        "output": {"url": str(folder / "model"), "log": str(folder / "log.jsonl")},
    }


@pytest.mark.parametrize("bias", [1.0, "free"])
def test_each_append_is_certified_anew_from_the_dual_before(bias: Any, tmp_path: Path) -> None:
    append(tmp_path, 0, 500)
    over = threading.Event()
    runs = follow_data(from_table(config(tmp_path, bias=bias)), 0.01, interrupted=over.is_set)
    first = next(runs)
    append(tmp_path, 500, 900)
    second = next(runs)
    lower = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[1])["lower"]
    assert first.certificate["n_examples"] == 500
    assert second.certificate["n_examples"] == 900
    assert lower >= 0.99 * first.certificate["lower"]  # examples add loss, so the old dual still is a bound
    assert distdual.verify(str(tmp_path / "model")).certified
    cold = distdual.train({**config(tmp_path, bias=bias), "output": {"url": str(tmp_path / "cold")}}).certificate
    assert cold["lower"] <= second.certificate["upper"]
    assert second.certificate["lower"] <= cold["upper"]
    timer = threading.Timer(0.2, over.set)
    timer.start()
    begin = time.monotonic()
    assert list(runs) == []
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("gamma", ["scale", 0.3])
def test_a_feature_map_stays_the_same(gamma: Any, tmp_path: Path) -> None:
    append(tmp_path, 0, 500)
    told = {**config(tmp_path), "kernel": {"kind": "rbf", "gamma": gamma, "basis": 10}, "solver": {"gap": 1e-2}}
    runs = follow_data(from_table(told), 0.01)
    first = next(runs)
    append(tmp_path, 500, 900)
    second = next(runs)
    assert second.certificate["certified"]
    assert second.certificate["n_examples"] == 900
    assert first.model.problem.describe() == second.model.problem.describe()
    assert distdual.verify(str(tmp_path / "model")).certified


@pytest.mark.parametrize(
    "section", [{"kernel": {"kind": "rbf", "gamma": 0.3}}, {"problem": {"kind": "multivariate"}}], ids=str
)
def test_runs_without_warm_starts_cannot_follow(section: dict[str, Any], tmp_path: Path) -> None:
    append(tmp_path, 0, 500)
    told = {**config(tmp_path), **section}
    with pytest.raises(InputError, match="cannot follow a data set"):
        next(follow_data(from_table(told), 0.01))
    assert not (tmp_path / "model").exists()


def test_a_follower_that_is_started_again_continues_its_model(tmp_path: Path) -> None:
    append(tmp_path, 0, 500)
    told = from_table(config(tmp_path))
    next(follow_data(told, 0.01))
    append(tmp_path, 500, 900)
    again = next(follow_data(told, 0.01)).certificate
    assert again["certified"]
    assert again["n_examples"] == 900


def test_what_makes_no_sense_with_follow_is_refused(tmp_path: Path, capsys: Any) -> None:
    append(tmp_path, 0, 100)
    (tmp_path / "c.toml").write_text(
        f'[data]\nurl = "{tmp_path}/data"\n[problem]\nkind = "binary"\n[output]\nurl = "{tmp_path}/m"\n'
    )
    assert_refused(call(capsys, "train", tmp_path / "c.toml", "--follow", "--poll", "0"), "--poll must be positive")
    assert_refused(call(capsys, "train", tmp_path / "c.toml", "--poll", "5"), "--poll is for --follow")
    assert_refused(call(capsys, "train", tmp_path / "c.toml", "--follow", "--dashboard"), "--dashboard")
