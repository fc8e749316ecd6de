"""A latent run that was ended goes on from its last checkpoint, and ends with the same model, bit for bit."""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdual import train, verify
from distdual.coordinator.run import Result
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError, Suspended
from tests.coordinator.test_checkpoint import OFTEN, after, ended_by, killed, suspend, toml, weights
from tests.coordinator.test_latent_loop import clouds, crossed, planted
from tests.shell import distdual

KINDS: dict[str, dict[str, Any]] = {
    "bags": {"kind": "latent", "bias": 1.0, "init": "random", "restarts": 3},
    "mixtures": {"kind": "latent_multiclass", "components": 2, "restarts": 2, "min_examples": 5, "init": "random"},
    "sub-states": {"kind": "latent_chain", "init": "random", "restarts": 2},
}


def prepared(folder: Path, kind: str) -> str:
    place = folder / "data"
    if not place.exists():
        if kind == "bags":
            made = planted(0, n=60)
            prepare_arrays(made.x, made.y, place, "latent", shard_bytes=1500)
        elif kind == "mixtures":
            prepare_arrays(*clouds(0), place, "multiclass", shard_bytes=300)
        else:
            prepare_arrays(*crossed(0, n=30), place, "chain", shard_bytes=600)
    return str(place)


def told(folder: Path, kind: str, name: str = "model", *, output: Any = None, **solver: Any) -> dict[str, Any]:
    return {
        "data": {"url": prepared(folder, kind)},
        "problem": KINDS[kind],
        "solver": {"gap": 1e-4, **solver},
        "output": {"url": str(folder / name), **(output or {})},
    }


def same(one: Path, other: Path) -> None:
    """Weights, latent values and the trace of turns."""
    assert weights(one) == weights(other)
    for name in ("latent.npy", "latent_indptr.npy", "dual/alpha.npy"):
        assert (one / name).exists() == (other / name).exists()
        if (one / name).exists():
            assert (one / name).read_bytes() == (other / name).read_bytes()
    traces = [json.loads((model / "certificate.json").read_text())["latent"] for model in (one, other)]
    assert traces[0] == traces[1]


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] if kind != "bags" else []) for kind in KINDS]
)
def test_a_latent_run_killed_at_any_moment_goes_on_and_ends_the_same_with(kind: str, tmp_path: Path) -> None:
    config = told(tmp_path, kind, output={"checkpoint_every": OFTEN})
    for each in killed("moments", tmp_path / "runs", config, 1, 2):
        model = tmp_path / "runs" / str(each["seed"]) / "model"
        same(model, tmp_path / "runs" / "whole" / "model")
        assert not (model / "checkpoint").exists()
        assert verify(str(model)).certified


@pytest.mark.parametrize("kind", KINDS)
def test_a_latent_run_that_is_ended_over_and_over_ends_the_same_with(kind: str, tmp_path: Path) -> None:
    whole = train(told(tmp_path, kind, "whole"))
    config = told(tmp_path, kind, output={"log": str(tmp_path / "log")})
    suspend(config, 2)
    result, restarts = None, set[int]()
    while result is None:
        try:
            result = train(config, resume=True, terminated=after(4))
        except Suspended:
            restarts.add(restart_of(tmp_path / "model" / "checkpoint"))
    same(tmp_path / "model", tmp_path / "whole")
    assert restarts == set(range(KINDS[kind]["restarts"]))
    assert history(result) == history(whole)
    assert len((tmp_path / "log").read_text().splitlines()) == len(whole.history)
    assert result.certificate["oracle_calls"] == whole.certificate["oracle_calls"]
    assert not (tmp_path / "model" / "checkpoint").exists()


def test_an_asynchronous_latent_run_goes_on(tmp_path: Path) -> None:
    config = told(tmp_path, "sub-states", mode="async")
    suspend(config, 20)
    result = train(config, resume=True)
    assert result.certificate["certified"]
    assert verify(str(tmp_path / "model")).certified


def restart_of(checkpoint: Path) -> int:
    (found,) = checkpoint.glob("*-latent.json")
    return int(json.loads(found.read_text())["restart"])


def history(result: Result) -> list[tuple[int, float, float, list[str]]]:
    return [(line.version, line.lower, line.upper, line.events) for line in result.history]


@pytest.mark.slow
def test_the_command_line_goes_on_after_sigterm(tmp_path: Path) -> None:
    config = told(tmp_path, "mixtures", gap=1e-12, max_passes=60, output={"log": str(tmp_path / "run.jsonl")})
    (tmp_path / "run.toml").write_text("\n".join(toml(config)))
    code, _, err = ended_by(signal.SIGTERM, tmp_path)
    assert code == 1
    assert err.splitlines()[-1].endswith("model/checkpoint: continue with --resume")
    resumed = distdual("train", "run.toml", "--resume", "--json", cwd=tmp_path)
    assert resumed.code in (0, 1), resumed.err
    train({**config, "output": {"url": str(tmp_path / "whole")}})
    same(tmp_path / "model", tmp_path / "whole")


def test_the_gap_may_change_when_a_latent_run_goes_on(tmp_path: Path) -> None:
    suspend(told(tmp_path, "bags", gap=1e-6), 5)
    result = train(told(tmp_path, "bags", gap=0.05), resume=True)
    assert result.certificate["certified"]
    assert result.certificate["target"] == 0.05


def test_a_budget_counts_what_was_spent_before(tmp_path: Path) -> None:
    suspend(told(tmp_path, "bags"), 5)
    result = train(told(tmp_path, "bags", max_seconds=1e-9), resume=True)
    assert result.certificate["reason"] == "1e-09 seconds are over"
    assert not result.certificate["certified"]
    assert len(result.certificate["latent"]["restarts"]) == 1
    assert verify(str(tmp_path / "model")).findings == ()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"init": "guess"}, r"problem\.init = random, this one has guess"),
        ({"restarts": 5}, r"problem\.restarts = 3, this one has 5"),
    ],
)
def test_a_checkpoint_of_another_latent_problem_is_refused(changed: Any, words: str, tmp_path: Path) -> None:
    config = told(tmp_path, "bags")
    suspend(config)
    with pytest.raises(InputError, match=words):
        train({**config, "problem": {**config["problem"], **changed}}, resume=True)


def test_a_latent_run_does_not_go_on_with_more_data(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(120, 6)).astype(np.float32), np.repeat(np.arange(60) % 2, 2)
    for name, n in (("few", 30), ("data", 60)):
        prepare_arrays(x[: 2 * n], y[: 2 * n], tmp_path / name, "latent", lengths=[2] * n, shard_bytes=480)
    config = told(tmp_path, "bags")
    suspend({**config, "data": {"url": str(tmp_path / "few")}})
    with pytest.raises(InputError, match="shards were appended to the data set since; a latent problem has no latent"):
        train(config, resume=True)


def test_a_damaged_latent_checkpoint_is_refused_by_the_name_of_the_file(tmp_path: Path) -> None:
    config = told(tmp_path, "sub-states")
    suspend(config)
    for name in ("latent.npz", "latent.json"):
        (file,) = (tmp_path / "model" / "checkpoint").glob(f"*-{name}")
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])
        with pytest.raises(InputError, match=file.name):
            train(config, resume=True)
        file.write_bytes(content)
    assert np.isfinite(train(config, resume=True).certificate["upper"])
