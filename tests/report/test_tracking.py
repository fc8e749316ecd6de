"""MLflow and TensorBoard, by the real packages, receive the content of the run log; missing packages are reported."""

import importlib
import json
import logging
import struct
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from distdual.report.run_log import About
from distdual.report.tracking import MlflowLog, flat, metrics
from tests.build import examples
from tests.report.sample import asynchronous, round_of
from tests.s3_server import free_ports
from tests.shell import assert_refused, call


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tracking")
    made = examples(1, 600, 5)
    prepare_arrays(made.x, made.y, str(folder / "data"), "binary", shard_bytes=5_000)
    return folder / "data"


def train(data: Path, folder: Path, **output: str) -> Any:
    output = {"url": str(folder / "model"), **output}
    return distdual.train(
        {"data": {"url": str(data)}, "problem": {"kind": "binary"}, "solver": {"gap": 1e-5}, "output": output}
    )


def event_files(folder: Path) -> list[Any]:
    """The events in a TensorBoard file: length, its checksum, event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    (file,) = folder.glob("events.out.tfevents.*")
    content, found = file.read_bytes(), []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        found.append(Event.FromString(content[12 : 12 + length]))
        content = content[16 + length :]
    return found


def test_tensorboard_gets_every_round_and_the_certificate(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed: pip install tensorboardX")
    result = train(data, tmp_path, tensorboard=str(tmp_path / "board" / "run"))
    scalars: dict[str, list[tuple[int, float]]] = {}
    texts: dict[str, str] = {}
    for event in event_files(tmp_path / "board" / "run"):
        for value in event.summary.value:
            if value.HasField("tensor"):
                texts[value.tag] = value.tensor.string_val[0].decode()
            else:
                scalars.setdefault(value.tag, []).append((event.step, value.simple_value))
    lower = [line.lower for line in result.history]
    assert [step for step, _ in scalars["bounds/lower"]] == list(range(1, 1 + len(lower)))
    assert [value for _, value in scalars["bounds/lower"]] == pytest.approx(lower, rel=1e-6)
    assert scalars["bounds/gap"][-1][1] == pytest.approx(result.certificate["gap"], rel=1e-5)
    assert scalars["bounds/certified"][-1][1] == 1.0
    assert scalars["run/oracle_calls"][-1][1] == result.certificate["oracle_calls"]
    certificate = json.loads(texts["certificate/text_summary"])
    assert certificate["upper"] == result.certificate["upper"]
    assert json.loads(texts["config/text_summary"])["solver"]["gap"] == 1e-5


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the only built-in store of mlflow-skinny
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    return importlib.import_module("mlflow")


def test_mlflow_gets_params_rounds_and_the_certificate(data: Path, tmp_path: Path, mlflow: Any) -> None:
    uri = (tmp_path / "mlruns").as_uri()
    result = train(data, tmp_path, mlflow=uri)
    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("distdual").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["solver.gap"] == "1e-05"
    assert run.data.params["n_examples"] == "600"
    assert run.data.tags["certified"] == "True"
    assert run.data.metrics["gap"] == result.certificate["gap"]
    lower = sorted(client.get_metric_history(run.info.run_id, "lower"), key=lambda metric: metric.step)
    assert [metric.value for metric in lower] == [line.lower for line in result.history]


def test_an_mlflow_run_that_fails_is_marked_as_failed(tmp_path: Path, mlflow: Any) -> None:
    uri = (tmp_path / "mlruns").as_uri()
    log = MlflowLog(uri)
    log.begin(About({"output": {"url": "a"}}, 1, 1))
    log.write(round_of(asynchronous()[5]))
    log.__exit__(ValueError, ValueError(), None)
    found = mlflow.MlflowClient(tracking_uri=uri).get_run(log.run)
    assert found.info.status == "FAILED"
    assert found.data.metrics["lower"] == asynchronous()[5]["lower"]


def test_an_unreachable_mlflow_server_is_bad_input(data: Path, tmp_path: Path, mlflow: Any) -> None:
    port = free_ports("mlflow")["mlflow"]
    with pytest.raises(InputError, match=f"output.mlflow: http://127.0.0.1:{port} cannot be used"):
        train(data, tmp_path, mlflow=f"http://127.0.0.1:{port}")
    assert not (tmp_path / "model" / "model.json").exists()


def test_an_mlflow_store_that_fails_later_is_logged_once(
    tmp_path: Path, mlflow: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), MlflowLog((tmp_path / "mlruns").as_uri()) as log:
        log.run = "0" * 32  # a run that does not exist
        log.begin(About({"output": {"url": "a"}}, 1, 1))
        log.write(round_of(asynchronous()[5]))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "training continues without" in caplog.text


@pytest.mark.parametrize(
    ("module", "key", "extra"),
    [("mlflow", "output.mlflow=http://127.0.0.1:1", "mlflow"), ("tensorboardX", "output.tensorboard=b", "tensorboard")],
)
def test_a_missing_package_is_reported_with_its_install_command(
    module: str,
    key: str,
    extra: str,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(
        f'[data]\nurl = "{data}"\n[problem]\nkind = "binary"\n[output]\nurl = "model"\n', encoding="utf-8"
    )
    ran = call(capsys, "train", "run.toml", "--set", key)
    assert_refused(ran, key.partition("=")[0], f"pip install {extra}")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("folder", ["", "s3://bucket/board"])
def test_tensorboard_needs_a_local_folder(folder: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"output.tensorboard must name a local folder"):
        train(data, tmp_path, tensorboard=folder)


def test_a_sweep_refuses_both() -> None:
    for key in ("mlflow", "tensorboard"):
        config = {"data": {"url": "d"}, "problem": {"kind": "binary"}, "output": {"url": "m", key: "x"}}
        with pytest.raises(InputError, match=f"output.{key} is not possible in a sweep"):
            distdual.sweep(config, "1,2")


def test_metrics_omit_unknown_values() -> None:
    first = metrics(round_of(asynchronous()[0]))
    assert "upper" not in first
    assert "gap" not in first
    assert first["lower"] == asynchronous()[0]["lower"]
    assert first["staleness"] == pytest.approx(5 / 9)
    assert first["workers"] == 3
    assert metrics(round_of(asynchronous()[5]))["upper"] == asynchronous()[5]["upper"]


def test_a_config_is_flattened() -> None:
    assert flat({"a": {"b": 1, "c": {"d": [2]}, "e": None}, "f": "x" * 1000}) == {
        "a.b": "1",
        "a.c.d": "[2]",
        "f": "x" * 500,
    }


class TestMlflowModel:
    @pytest.fixture
    def uri(self, tmp_path: Path, mlflow: Any) -> str:
        uri = (tmp_path / "mlruns").as_uri()
        mlflow.set_tracking_uri(uri)
        return uri

    def loaded(self, mlflow: Any, uri: str) -> Any:
        client = mlflow.MlflowClient(tracking_uri=uri)
        run = client.search_runs([client.get_experiment_by_name("distdual").experiment_id])[0]
        with warnings.catch_warnings(action="ignore"):  # of its own type hints
            pyfunc = importlib.import_module("mlflow.pyfunc")
        return pyfunc.load_model(f"runs:/{run.info.run_id}/model")

    def test_it_loads_and_predicts(self, data: Path, tmp_path: Path, mlflow: Any, uri: str) -> None:
        result = train(data, tmp_path, mlflow=uri)
        x = np.random.default_rng(0).standard_normal((20, result.model.problem.describe()["n_features"]))
        expected = result.model.to_estimator().predict(x)
        np.testing.assert_array_equal(self.loaded(mlflow, uri).predict(x), expected)
        np.testing.assert_array_equal(self.loaded(mlflow, uri).predict(pd.DataFrame(x)), expected)

    def test_it_takes_raw_rows_of_a_table(self, tmp_path: Path, mlflow: Any, uri: str) -> None:
        frame = pd.DataFrame(
            {"size": [1.0, 2.0, 3.0, 4.0], "colour": ["red", "blue", "red", "blue"], "y": [0, 1, 0, 1]}
        )
        distdual.prepare_frame(frame, tmp_path / "table", "binary", label="y")
        train(tmp_path / "table", tmp_path, mlflow=uri)
        assert self.loaded(mlflow, uri).predict(frame.drop(columns="y")).tolist() == [0, 1, 0, 1]
