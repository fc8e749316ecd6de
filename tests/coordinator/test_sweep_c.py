"""A sweep finds the C that held-out examples ask for; its model is one like any other."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdual
from distdual.cluster.dask_client import connect
from distdual.config import ClusterConfig, LocalCluster
from distdual.coordinator.sweep_c import Sweep, grid
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.model.cv_scores import best_of
from distdual.scan.cv_folds import folds_of
from tests.build import examples
from tests.shell import assert_refused, call

N, D, FOLDS = 240, 6, 3
VALUES = [0.001, 0.03, 1.0, 30.0]
MADE = examples(2, N, D, flip=0.2)


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    prepare_arrays(MADE.x, MADE.y, str(tmp_path / "data"), "binary", shard_bytes=1000)
    return {
        "data": {"url": str(tmp_path / "data")},
        "problem": {"kind": "binary", "bias": 1.0},
        "solver": {"gap": 1e-5, "seed": 7},
        "output": {"url": str(tmp_path / "model"), "log": str(tmp_path / "run.jsonl")},
    }


def shown(found: Sweep) -> list[tuple[float, float, Any]]:
    return [(point.lower, point.upper or 0.0, point.passes) for point in found.points]


def test_every_point_is_certified_and_is_what_a_cold_run_finds(config: dict[str, Any], tmp_path: Path) -> None:
    found = distdual.sweep(config, VALUES, FOLDS)
    assert found.certified
    assert [point.C for point in found.points] == VALUES
    assert all(point.gap is not None and point.gap <= 1e-5 for fold in found.folds for point in fold)
    for number, point in enumerate(found.points):
        told = {**config, "solver": {**config["solver"], "C": point.C}, "output": {"url": str(tmp_path / f"{number}")}}
        cold = distdual.train(told).certificate
        assert point.upper is not None
        assert point.lower <= cold["upper"] * (1 + 1e-12)
        assert cold["lower"] <= point.upper * (1 + 1e-12)


def test_the_score_of_a_fold_is_that_of_a_model_which_never_saw_it(config: dict[str, Any], tmp_path: Path) -> None:
    found = distdual.sweep(config, VALUES, FOLDS)
    fold = folds_of(np.arange(N), FOLDS, 7)
    for number in range(FOLDS):
        kept = fold != number
        prepare_arrays(MADE.x[kept], MADE.y[kept], str(tmp_path / f"train{number}"), "binary")
        prepare_arrays(MADE.x[~kept], MADE.y[~kept], str(tmp_path / f"test{number}"), "binary")
        for at, C in enumerate(VALUES):
            model = str(tmp_path / f"model{number}-{at}")
            cold = distdual.train(
                {
                    **config,
                    "data": {"url": str(tmp_path / f"train{number}")},
                    "solver": {"C": C, "gap": 1e-5},
                    "output": {"url": model},
                }
            )
            point = found.folds[number][at]
            assert point.lower <= cold.certificate["upper"] * (1 + 1e-12)
            assert cold.certificate["lower"] <= (point.upper or 0.0) * (1 + 1e-12)
            score = distdual.predict(model, str(tmp_path / f"test{number}")).score
            assert score is not None
            size = (~kept).sum()  # of which one may lie on the border
            assert abs(found.scores["accuracy"][number][at] - score["accuracy"]) <= 1.01 / size


def test_the_model_is_that_of_the_best_C_and_verify_certifies_it(config: dict[str, Any]) -> None:
    found = distdual.sweep(config, "1e-3:30:4", FOLDS)
    mean = found.mean("accuracy")
    assert found.chosen == found.points[int(np.argmax(mean))].C
    assert found.model is not None
    assert found.chosen == found.model.C == distdual.load_model(Location(config["output"]["url"])).C
    checked = distdual.verify(config["output"]["url"])
    assert checked.certified, checked.findings
    assert checked.lower == pytest.approx(found.model.certificate["lower"], rel=1e-9)
    lines = [json.loads(line) for line in Path(config["output"]["log"]).read_text().splitlines()]
    assert lines[-1]["lower"] == found.model.certificate["lower"]
    assert sum(event.startswith("C is ") for line in lines for event in line["events"]) == 5


@pytest.mark.parametrize("slack", ["block:8", "shard", "all"])
def test_examples_may_share_slacks(config: dict[str, Any], slack: str) -> None:
    config["solver"] |= {"slack": slack, "gap": 1e-3}
    found = distdual.sweep(config, VALUES[1:3], 2)
    assert found.certified
    assert distdual.verify(config["output"]["url"]).certified


def test_weights_may_be_bounded_under_a_full_prior(config: dict[str, Any], tmp_path: Path) -> None:
    root = np.random.default_rng(3).normal(size=(D + 1, D + 1))
    np.save(tmp_path / "precision.npy", np.eye(D + 1) + 0.1 * root @ root.T)
    config |= {"prior": {"precision": str(tmp_path / "precision.npy"), "nonnegative": ["0:3"]}}
    config["solver"] |= {"gap": 1e-3}
    found = distdual.sweep(config, VALUES, 2)
    assert found.certified
    assert found.model is not None
    assert found.model.w[:3].min() >= 0
    assert distdual.verify(config["output"]["url"]).certified


def test_memory_may_be_limited(config: dict[str, Any]) -> None:
    config["solver"] |= {"cache_bytes": 20_000.0, "gap": 1e-2}
    found = distdual.sweep(config, VALUES[1:3], 2)
    assert found.certified
    assert distdual.verify(config["output"]["url"]).certified


def test_a_cluster_finds_the_same(config: dict[str, Any]) -> None:
    config["output"]["overwrite"] = True
    here = distdual.sweep(config, VALUES, FOLDS)
    with connect(ClusterConfig(local=LocalCluster(workers=1))) as client:
        there = distdual.sweep(config, VALUES, FOLDS, client)
    assert shown(here) == shown(there)
    assert here.scores == there.scores


def test_sequences_have_folds_of_whole_sequences(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 6, 40)
    y = rng.integers(0, 3, lengths.sum())
    x = np.eye(3)[y] + rng.normal(scale=0.4, size=(len(y), 3))
    prepare_arrays(x, y, str(tmp_path / "data"), "chain", lengths=lengths, shard_bytes=500)
    config = {
        "data": {"url": str(tmp_path / "data")},
        "problem": {"kind": "chain"},
        "solver": {"gap": 0.01},
        "output": {"url": str(tmp_path / "model")},
    }
    found = distdual.sweep(config, [0.01, 1.0], 4, score="sequence_accuracy")
    assert found.certified
    assert set(found.scores) >= {"accuracy", "sequence_accuracy"}
    assert found.score == "sequence_accuracy"
    assert distdual.verify(str(tmp_path / "model")).certified


def test_errors_are_better_the_smaller_and_of_equals_the_smallest_C_wins() -> None:
    assert best_of([[3.0, 1.0, 2.0], [3.0, 1.0, 0.0]], "squared_error") == 1
    assert best_of([[3.0, 1.0, 2.0], [3.0, 1.0, 0.0]], "accuracy") == 0
    assert best_of([[0.5, 0.5]], "accuracy") == 0


def test_without_folds_nothing_is_chosen_or_written(config: dict[str, Any], tmp_path: Path) -> None:
    found = distdual.sweep(config, VALUES, 0)
    assert found.certified
    assert (found.chosen, found.model, found.folds, found.scores) == (None, None, [], {})
    assert not (tmp_path / "model").exists()


def test_a_grid_is_even_by_ratio_and_sorted() -> None:
    assert grid("1e-2:1e2:5") == [0.01, 0.1, 1.0, 10.0, 100.0]
    assert grid("10,0.1,1,1") == [0.1, 1.0, 10.0]
    assert grid([2, 1]) == [1.0, 2.0]


@pytest.mark.parametrize(
    "told", ["", "1:2", "0:1:5", "1:inf:5", "-1", "1:2:0", "1:2:-3", "1:2:x", "nan", [], [0.0], [True, "x"]]
)
def test_what_is_no_grid_is_refused(told: Any) -> None:
    with pytest.raises(InputError, match="C takes positive numbers"):
        grid(told)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"start": "somewhere"}, "solver.start is not possible in a sweep"),
        ({"schedule": "one-pass"}, "one-pass"),
        ({"schedule": "reprocess:2", "average": True}, "solver.average"),
        ({"offender_cache": 2, "slack": "all"}, "solver.offender_cache"),
    ],
)
def test_what_a_path_cannot_do_is_refused(config: dict[str, Any], change: dict[str, Any], words: str) -> None:
    config["solver"] |= change
    with pytest.raises(InputError, match=words):
        distdual.sweep(config, VALUES, FOLDS)


def test_a_sweep_takes_no_checkpoints_and_says_so(config: dict[str, Any]) -> None:
    config["output"] |= {"checkpoint_every": 5.0}
    with pytest.raises(InputError, match=r"output.checkpoint_every is not possible in a sweep"):
        distdual.sweep(config, VALUES, FOLDS)


@pytest.mark.parametrize(("folds", "words"), [(1, "at least 2 folds"), (-1, "at least 2"), (N + 1, "do not make 241")])
def test_folds_that_cannot_be_are_refused(config: dict[str, Any], folds: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        distdual.sweep(config, VALUES, folds)


def test_a_score_that_is_none_is_refused_and_no_model_is_left(config: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one of accuracy, got luck"):
        distdual.sweep(config, VALUES, FOLDS, score="luck")
    assert not (tmp_path / "model").exists()


def written(config: dict[str, Any], tmp_path: Path) -> Path:
    file = tmp_path / "run.toml"
    sections = (
        f"[{name}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in keys.items()) for name, keys in config.items()
    )
    file.write_text("".join(sections))
    return file


def test_the_command_prints_a_table_and_draws(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "pictures" / "c.png"
    file = written(config, tmp_path)
    ran = call(capsys, "sweep", file, "--C", "1e-3:30:4", "--folds", 3, "--plot", picture)
    assert ran.code == 0, ran
    lines = ran.out.splitlines()
    assert lines[0].split() == ["C", "lower", "upper", "gap", "support", "accuracy"]
    assert sum(line.endswith(" *") for line in lines) == 1
    assert lines[-2] == "certified  every point of 4 paths"
    assert lines[-1] == f"model      {tmp_path}/model"
    assert "fold 1 of 3: C=0.001 gap=" in ran.err
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_command_gives_json_and_1_if_a_point_is_not_certified(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(config, tmp_path)
    ran = call(capsys, "sweep", file, "--C", "0.1,1", "--folds", 2, "--json", "--set", "solver.max_passes=1")
    assert ran.code == 1, ran
    told = json.loads(ran.out)
    assert not told["certified"]
    assert [point["C"] for point in told["points"]] == [0.1, 1.0]
    assert np.shape(told["scores"]["accuracy"]) == (2, 2)
    assert told["model"] == f"{tmp_path}/model"


def test_the_command_refuses_in_a_sentence(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(config, tmp_path)
    assert_refused(call(capsys, "sweep", file, "--C", "many"), "C takes positive numbers", "'many'")
    assert_refused(call(capsys, "sweep", file, "--C", "1", "--folds", 1), "at least 2 folds")
    assert_refused(call(capsys, "sweep", tmp_path / "none.toml", "--C", "1"), "none.toml: cannot be read")
