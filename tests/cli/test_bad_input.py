"""Bad input is refused with exit code 2 and one sentence that names the source; nothing is half-written."""

import json
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdual.coordinator.run import train
from distdual.data.layout import FORMAT
from distdual.data.prepare.api import prepare_arrays
from distdual.model.io import MODEL_FORMAT
from tests.s3_server import S3Server
from tests.shell import assert_refused, call, distdual, environment

N, D = 60, 3

CONFIG = """
[data]
url = "data"

[problem]
kind = "binary"

[solver]
gap = 0.1

[output]
url = "model"
"""


def arrays(n: int = N, d: int = D) -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    return x, np.where(x[:, 0] > 0, 1, -1)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data set of five shards, a wider one, one of three classes, and a model of the first."""
    folder = tmp_path_factory.mktemp("ready")
    prepare_arrays(*arrays(), str(folder / "data"), "binary", shard_bytes=4 * N * D // 5)
    prepare_arrays(*arrays(d=D + 1), str(folder / "wide"), "binary")
    prepare_arrays(arrays()[0], np.arange(N) % 3, str(folder / "three"), "multiclass")
    config = {"data": {"url": str(folder / "data")}, "problem": {"kind": "binary"}, "solver": {"gap": 0.1}}
    train({**config, "output": {"url": str(folder / "trained")}})
    return folder


@pytest.fixture
def here(ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working copy of `ready`, with a config in it."""
    shutil.copytree(ready, tmp_path, dirs_exist_ok=True)
    (tmp_path / "run.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DASK_LOGGING__DISTRIBUTED", "critical")  # put back what the command line sets
    return tmp_path


# --- prepare: what a source holds, and what the refusal says


def npz(**changes: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        x, y = arrays()
        np.savez(folder / "source.npz", **{"x": x, "y": y, **changes})
        return folder / "source.npz"

    return write


def text(content: str, name: str = "source.txt") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return write


def changed(row: int, column: int, value: float) -> Any:
    x, _ = arrays()
    x[row, column] = value
    return x


def cost(row: int, value: float) -> Any:
    column = np.ones(N)
    column[row] = value
    return column


SOURCES = {
    "a missing file": (lambda folder: folder / "none.txt", ["none.txt", "not found"]),
    "NaN in a feature": (npz(x=changed(7, 1, np.nan)), ["source.npz", "row 7", "NaN"]),
    "infinity in a feature": (npz(x=changed(9, 2, np.inf)), ["source.npz", "row 9", "infinite"]),
    "NaN in text": (text("1 1:1\n-1 1:nan\n"), ["source.txt", "line 2", "nan"]),
    "three labels": (npz(y=np.arange(N) % 3), ["dest: shard 0, row 2", "has 2 labels", "found more"]),
    "one class only": (npz(y=np.ones(N)), ["label 1", "two classes are needed"]),
    "a negative cost": (npz(cost=cost(5, -1.0)), ["row 5", "cost", "negative"]),
    "an empty text file": (text(""), ["source.txt", "empty"]),
    "arrays without rows": (npz(x=np.empty((0, D)), y=np.empty(0)), ["source.npz", "no examples"]),
    "feature index 0": (text("1 1:1\n-1 0:2\n"), ["source.txt", "line 2", "index 0", "count from 1"]),
    "feature indices out of order": (text("1 1:1\n-1 3:2 2:1\n"), ["source.txt", "line 2", "2:1", "must rise"]),
    "prose": (
        text("It was a dark and stormy night.\n"),
        ["source.txt", "format", "csv, parquet, svmlight, svmhmm, conll, npz, npy, zarr, brackets"],
    ),
    "a file cut short": (text("PK\x03\x04 and no more", "source.npz"), ["source.npz", "damaged or cut short"]),
}


@pytest.mark.parametrize("case", SOURCES)
def test_prepare_refuses(case: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, words = SOURCES[case]
    ran = call(capsys, "prepare", make(here), "dest", "--problem", "binary")
    assert_refused(ran, *words)
    assert not list(here.glob("dest*"))


@pytest.mark.parametrize("case", ["NaN in a feature", "three labels"])
def test_a_failed_split_writes_neither_part(case: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, words = SOURCES[case]
    ran = call(capsys, "prepare", make(here), "dest", "--problem", "binary", "--test-fraction", 0.5, "--shuffle", 1)
    assert_refused(ran, words[-1])
    assert not [path for path in here.glob("dest/**/*") if path.is_file()]


@pytest.mark.parametrize("flags", [[], ["--overwrite"]], ids=["plain", "overwrite"])
def test_prepare_refuses_a_folder_with_other_files(
    flags: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "dest").mkdir()
    (here / "dest" / "diary.txt").write_text("dear diary")
    ran = call(capsys, "prepare", npz()(here), "dest", "--problem", "binary", *flags)
    assert_refused(ran, "dest", "is not empty")
    assert [path.name for path in (here / "dest").iterdir()] == ["diary.txt"]


def test_a_failed_prepare_keeps_the_data_set_it_would_replace(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = call(capsys, "prepare", here / "none.txt", "data", "--problem", "binary", "--overwrite")
    assert_refused(ran, "none.txt")
    assert call(capsys, "info", "data").code == 0


# --- train: configs and data sets


CONFIGS = {
    "C = 0": (["solver.C=0"], ["run.toml", "solver.C", "positive", "0"]),
    "C < 0": (["solver.C=-2"], ["run.toml", "solver.C", "positive", "-2"]),
    "C is NaN": (["solver.C=nan"], ["run.toml", "solver.C", "positive", "nan"]),
    "a gap of 1": (["solver.gap=1.0"], ["solver.gap", "between 0 and 1", "1.0"]),
    "an unknown key": (["solver.sede=1"], ["run.toml", "unknown key solver.sede", "did you mean solver.seed?"]),
    "an unknown section": (["slover.C=1"], ["run.toml", "unknown key slover", "solver"]),
    "an unknown key of the problem": (["problem.biass=1"], ["unknown key biass", "problem.bias"]),
    "an unknown problem": (["problem.kind=ternary"], ["problem.kind", "'binary'", "'ternary'"]),
    "a word for a number": (["solver.C=much"], ["run.toml", "solver.C", "a number", "'much'"]),
    "a fraction for a count": (["solver.max_passes=1.5"], ["solver.max_passes", "a whole number", "1.5"]),
    "a negative class cost": (["problem.class_cost.1=-1"], ["class_cost", "'1'", "at least 0", "-1"]),
    "a cost for a class that is not there": (["problem.class_cost.7=1"], ["class_cost", "'7'", "-1, 1"]),
    "no such data set": (["data.url=nowhere"], ["nowhere", "no data set", "distdual prepare"]),
    "a model in place of data": (["data.url=trained"], ["trained", "no data set"]),
    "two labels of three": (["data.url=three"], ["three", "two labels", "0, 1, 2", "'multiclass'", "--problem binary"]),
    "sequences of rows": (["problem.kind=chain"], ["data", "needs sequences", "'binary'", "--problem chain"]),
    "numbers of labels": (["problem.kind=regression"], ["numbers for labels", "'binary'", "--problem regression"]),
    "a key of another problem": (
        ["data.url=three", "problem.kind=regression", "problem.bias=1"],
        ["numbers for labels"],
    ),
    "two clusters": (["cluster.scheduler=tcp://a:1", "cluster.local={}"], ["cluster.scheduler", "cluster.local"]),
    "a setting without a value": (["solver.C"], ["--set solver.C", "section.key=value"]),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_train_refuses(case: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings, words = CONFIGS[case]
    ran = call(capsys, "train", "run.toml", *(word for each in settings for word in ("--set", each)))
    assert_refused(ran, *words)
    assert not (here / "model").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"data = [", ["run.toml", "not a TOML file", "Invalid value"]),
        (b"\xff\xfe\x00", ["run.toml", "not a TOML file"]),
        (None, ["run.toml", "cannot be read", "No such file", "expected a TOML file"]),
        (b"[data]\n", ["run.toml", "missing", "a run needs data.url"]),
    ],
    ids=["broken", "binary", "absent", "incomplete"],
)
def test_a_config_must_be_a_complete_toml_file(
    content: bytes | None, words: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "run.toml").unlink()
    if content is not None:
        (here / "run.toml").write_bytes(content)
    assert_refused(call(capsys, "train", "run.toml"), *words)
    assert not (here / "model").exists()


def test_train_refuses_a_folder_with_other_files(here: Path) -> None:
    (here / "model").mkdir()
    (here / "model" / "diary.txt").write_text("dear diary")
    ran = distdual("train", "run.toml", "--set", "output.overwrite=true", cwd=here)
    assert_refused(ran, "model", "already holds something")
    assert [path.name for path in (here / "model").iterdir()] == ["diary.txt"]


def test_train_replaces_a_model_only_with_overwrite(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["train", "run.toml", "--set", "output.url=trained"]
    before = (here / "trained" / "model.json").read_bytes()
    assert_refused(call(capsys, *arguments), "trained", "already holds a model", "output.overwrite")
    assert (here / "trained" / "model.json").read_bytes() == before
    assert call(capsys, *arguments, "--set", "output.overwrite=true").code == 0
    assert (here / "trained" / "model.json").read_bytes() != before


# --- damaged data, on threads and on a Dask cluster


def cut(chunk: Path) -> None:
    chunk.write_bytes(chunk.read_bytes()[:-7])


def flip(chunk: Path) -> None:
    content = bytearray(chunk.read_bytes())
    content[5] ^= 1
    chunk.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink], ids=["truncated", "bit-flipped", "missing"])
@pytest.mark.parametrize("array", ["x", "y"])
@pytest.mark.parametrize("command", ["train", "verify", "predict"])
def test_a_damaged_chunk_is_named(
    damage: Callable[[Path], None], array: str, command: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(here / "data" / array / "c" / ("3/0" if array == "x" else "3"))
    arguments = {
        "train": ["run.toml", "--set", f"data.url={here}/data"],
        "verify": ["trained", "--data", here / "data"],
        "predict": ["trained", here / "data", "--out", "labels.txt"],
    }
    ran = call(capsys, command, *arguments[command])
    assert_refused(ran, f"{here}/data: shard 3", f"array '{array}'", "the chunk is")
    assert not (here / "model").exists()
    assert not (here / "labels.txt").exists()


def test_workers_report_a_damaged_chunk_in_one_sentence(here: Path) -> None:
    flip(here / "data" / "x" / "c" / "3" / "0")
    ran = distdual("train", "run.toml", "--set", "cluster.local={workers=1}", cwd=here)
    assert_refused(ran, "data: shard 3", "array 'x'", "damaged")
    assert not (here / "model").exists()


@pytest.mark.parametrize("command", ["train", "info"])
def test_a_data_set_of_a_newer_format_is_refused(command: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    about = json.loads((here / "data" / "zarr.json").read_text())
    (attributes,) = about["attributes"].values()
    attributes["format"] = FORMAT + 1
    (here / "data" / "zarr.json").write_text(json.dumps(about))
    ran = call(capsys, command, "run.toml" if command == "train" else "data")
    assert_refused(ran, "data", f"format {attributes['format']}", "newer", "upgrade")
    assert not (here / "model").exists()


# --- models and data that do not belong together


@pytest.mark.parametrize("command", [["verify", "trained", "--data", "wide"], ["predict", "trained", "wide"]])
def test_model_and_data_must_have_the_same_features(
    command: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", "labels.txt"] if command[0] == "predict" else []
    assert_refused(call(capsys, *command, *out), "wide", str(D), str(D + 1), "the model was trained with")
    assert not (here / "labels.txt").exists()


@pytest.mark.parametrize("command", [["verify", "data"], ["predict", "data", "data", "--out", "labels.txt"]])
def test_a_data_set_is_not_a_model(command: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(call(capsys, *command), "data", "no model", "model.json", "distdual train")


def test_a_model_of_a_newer_format_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    about = json.loads((here / "trained" / "model.json").read_text())
    (here / "trained" / "model.json").write_text(json.dumps({**about, "format": MODEL_FORMAT + 1}))
    assert_refused(call(capsys, "info", "trained"), "trained", "newer", "upgrade")


def test_the_suffix_of_the_output_is_checked_first(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(call(capsys, "predict", "nowhere", "nowhere", "--out", "labels.xls"), "labels.xls", ".txt or .npy")


# --- servers


def test_a_missing_bucket_is_named(here: Path, s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "s3.toml").write_text(storage(s3.storage_options))
    arguments = ["--problem", "binary", "--storage-options", "s3.toml"]
    ran = call(capsys, "prepare", npz()(here), "s3://no-such-bucket/set", *arguments)
    assert_refused(ran, "s3://no-such-bucket/set", "no such bucket")


def test_a_bucket_without_permission_is_named(here: Path, s3: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "s3.toml").write_text(storage(s3.guest_options))
    url = s3.url()
    ran = call(capsys, "prepare", npz()(here), url, "--problem", "binary", "--storage-options", "s3.toml")
    assert_refused(ran, url, "no permission", "credentials")
    assert not s3.files().exists(url)


def test_missing_credentials_are_reported(here: Path) -> None:
    ran = distdual("prepare", npz()(here), "s3://data/set", "--problem", "binary", cwd=here, env=environment())
    assert_refused(ran, "s3://data/set", "no credentials", "environment")


def storage(options: dict[str, Any]) -> str:
    flat = {name: value for name, value in options.items() if not isinstance(value, dict)}
    tables = {name: value for name, value in options.items() if isinstance(value, dict)}
    lines = [f"{name} = {json.dumps(value)}" for name, value in flat.items()]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines)


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_reported_within_15_seconds(here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        begin = time.monotonic()
        ran = distdual("train", "run.toml", "--scheduler", address, cwd=here)
    assert_refused(ran, address, "did not answer", "10 s")
    assert time.monotonic() - begin < 15
    assert not (here / "model").exists()


@pytest.mark.slow
def test_a_closed_port_is_reported_as_no_scheduler(here: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    ran = distdual("verify", "trained", "--scheduler", address, cwd=here)
    assert_refused(ran, address, "did not answer", "`dask scheduler`", "without an address, scans run in this process")


@pytest.mark.parametrize("address", ["nonsense://host:1", "tcp://host:port", "tcp://", "8786 please"])
def test_an_invalid_address_is_refused(address: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = call(capsys, "train", "run.toml", "--scheduler", address)
    assert_refused(ran, address, "not an address", "tcp://10.0.0.1:8786")


# --- arguments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train"], ["Missing argument", "CONFIG.toml", "distdual train --help"]),
        (["prepare", "a", "b"], ["--problem", "distdual prepare --help"]),
        (["prepare", "a", "b", "--problem", "ternary"], ["problem", "binary", "'ternary'"]),
        (["predict", "a", "b"], ["--out", "distdual predict --help"]),
        (["dance"], ["dance", "see `distdual --help`"]),
        (["trian"], ["Did you mean 'train'? see `distdual --help`"]),
        (["info", "nowhere"], ["nowhere", "not a data set, a model or a checkpoint", "distdual prepare"]),
        (["verify", "trained", "--storage-options", "none.toml"], ["none.toml", "cannot be read"]),
        (["info", "s3://key:secret@bucket/x"], ["credentials", "storage_options"]),
    ],
)
def test_arguments_are_checked(
    arguments: list[str], words: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = call(capsys, *arguments)
    assert_refused(ran, *words)
    assert "secret@" not in ran.err
