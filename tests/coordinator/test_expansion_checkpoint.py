"""Runs with an exact kernel that are stopped, and go on from their checkpoint."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdual import train, verify
from distdual.coordinator import expansion_trainer
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError, Suspended

DRAW = np.random.default_rng(8)
X = DRAW.normal(size=(300, 3)).astype(np.float32)
CLASS = np.argmax(X + 0.5 * DRAW.normal(size=X.shape), axis=1)


def told(folder: Path, kind: str = "multiclass", **solver: Any) -> dict[str, Any]:
    return {
        "data": {"url": str(folder / "data")},
        "problem": {"kind": kind, "bias": 0.5},
        "solver": {"gap": 1e-4, "C": 3.0, **solver},
        "kernel": {"kind": "rbf", "gamma": 0.4},
        "output": {"url": str(folder / "model")},
    }


@pytest.fixture
def small_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion_trainer, "FIRST_STAGE", 40)


@pytest.fixture(params=["multiclass", "binary"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def prepared(folder: Path, kind: str, n: int = len(X)) -> Path:
    y = np.array(["a", "b", "c"])[CLASS] if kind == "multiclass" else (CLASS == 0)
    prepare_arrays(X[:n], y[:n], str(folder / "data"), kind, shard_bytes=600)
    return folder


def suspended_after(rounds: int, config: dict[str, Any]) -> None:
    seen: list[Any] = []
    with pytest.raises(Suspended, match="continue with --resume"):
        train(config, watch=seen.append, terminated=lambda: len(seen) >= rounds)


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_stopped_run_goes_on(tmp_path: Path, small_stages: None, kind: str, rounds: int) -> None:
    folder = prepared(tmp_path, kind)
    suspended_after(rounds, told(folder, kind))
    found = train(told(folder, kind), resume=True)
    assert found.certificate["certified"]
    assert found.history[0].seconds <= found.history[rounds].seconds
    assert len(found.history) > rounds
    assert found.certificate["rounds"] == len(found.history)
    assert verify(str(folder / "model")).certified
    assert not (folder / "model" / "checkpoint").exists()
    again = train(told(folder, kind), resume=True)
    assert again.finished_before
    assert {**again.certificate, "sha256": None} == {**found.certificate, "sha256": None}


def test_searches_that_are_done_are_not_repeated(tmp_path: Path, small_stages: None, kind: str) -> None:
    folder = prepared(tmp_path, kind)
    whole = train(told(folder, kind) | {"output": {"url": str(folder / "whole")}}).certificate
    suspended_after(2, told(folder, kind))
    resumed = train(told(folder, kind), resume=True).certificate
    assert resumed["oracle_calls"] <= whole["oracle_calls"] * 1.5


def test_appended_shards_are_searched(tmp_path: Path, small_stages: None, kind: str) -> None:
    folder = prepared(tmp_path, kind, 200)
    suspended_after(2, told(folder, kind))
    y = np.array(["a", "b", "c"])[CLASS] if kind == "multiclass" else (CLASS == 0)
    prepare_arrays(X[200:], y[200:], str(folder / "data"), kind, append=True)
    found = train(told(folder, kind), resume=True).certificate
    assert found["certified"]
    assert found["n_examples"] == len(X)
    assert verify(str(folder / "model")).certified


def test_another_kernel_does_not_resume(tmp_path: Path, small_stages: None) -> None:
    folder = prepared(tmp_path, "multiclass")
    suspended_after(1, told(folder))
    with pytest.raises(InputError, match=r"the checkpoint is of a run with kernel\.gamma = 0\.4"):
        train(told(folder) | {"kernel": {"kind": "rbf", "gamma": 0.5}}, resume=True)
    linear = {name: section for name, section in told(folder).items() if name != "kernel"}
    with pytest.raises(InputError, match="the checkpoint is of a run with kernel = "):
        train(linear, resume=True)
    assert train(told(folder), resume=True).certificate["certified"]
    with pytest.raises(InputError, match="made with another kernel"):
        train(told(folder) | {"kernel": {"kind": "rbf", "gamma": 0.5}}, resume=True)


def forge(folder: Path, **changed: Any) -> None:
    """Change arrays of a checkpoint, digests and all."""
    place = folder / "model" / "checkpoint"
    name = next(path.name for path in place.iterdir() if path.name.endswith("expansion.npz"))
    with np.load(place / name) as found:
        arrays = dict(found) | changed
    np.savez(place / name, **arrays)
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256((place / name).read_bytes()).hexdigest()
    (place / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("b", lambda b: b + 9.0, "coefficients are not feasible"),
        ("b", lambda b: b[:-1], "b: "),
        ("b", lambda b: b[:, :1].copy(), "coefficients are not feasible"),
        ("b", lambda b: b * np.nan, "b: "),
        ("example", lambda example: example + 300, "example .* of 300"),
        ("example", lambda example: example * 0, "a number is there twice"),
        ("example", lambda example: -example - 1, "example"),
        ("more", lambda _: np.zeros(1), r"expansion\.npz with the arrays"),
    ],
)
def test_a_forged_checkpoint_is_refused(
    tmp_path: Path, small_stages: None, name: str, change: Any, message: str
) -> None:
    folder = prepared(tmp_path, "multiclass")
    suspended_after(1, told(folder))
    place = folder / "model" / "checkpoint"
    with np.load(next(path for path in place.iterdir() if path.name.endswith(".npz"))) as found:
        forged = change(found.get(name))
    forge(folder, **{name: forged})
    with pytest.raises(InputError, match=message):
        train(told(folder), resume=True)
