"""The independent check agrees with `verify`, and both refuse every model, data set or certificate that was changed."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import zarr
from numcodecs import Blosc

from distdual import distdual_check, train, verify
from distdual.data.prepare.api import prepare_arrays, prepare_frame
from distdual.data.prepare.writer import write_dataset
from distdual.data.shard import Block
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows

GAP = 1e-3
LINES = 400


def make(folder: Path, kind: str, **problem: Any) -> Path:
    """A small data set and a model of it, below `folder`."""
    make_data(folder, kind)
    told = {"kind": kind, **problem}
    run = {"data": {"url": str(folder / "data")}, "problem": told, "output": {"url": str(folder / "model")}}
    train({**run, "solver": {"gap": GAP, "slack": "example"}})
    return folder


def make_data(folder: Path, kind: str, *, overwrite: bool = False, sparse: bool = False) -> None:
    rng = np.random.default_rng(len(kind))
    n, tokens = 60, None
    x = rng.normal(size=(n, 5)).astype(np.float32)
    score = x @ rng.normal(size=5) + rng.normal(size=n)
    y = {"binary": np.where(score > 0, 1, -1), "regression": score}.get(kind, np.digitize(score, [-1, 1]))
    if kind == "chain":
        tokens = np.arange(0, n + 1, 5)
        block = Block(DenseRows(np.rint(2 * x)), y, tokens=tokens)
        write_dataset(Location(str(folder / "data")), kind, [block], shard_bytes=600)
    else:
        cost = rng.uniform(0.5, 2, n)
        features = scipy.sparse.csr_matrix(x * (x > 0)) if sparse else x
        prepare_arrays(features, y, folder / "data", kind, cost=cost, shard_bytes=600, overwrite=overwrite)


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "binary": ("binary", {"bias": 1.0, "class_cost": {"1": 2.0}}),
    "multiclass": ("multiclass", {"bias": 0.5}),
    "multiclass, slack rescaling": (
        "multiclass",
        {"loss": [[0, 1, 2], [1, 0, 1], [2, 1, 0]], "rescaling": "slack"},
    ),
    "regression": ("regression", {"epsilon": 0.2, "bias": 1.0}),
    "chain": ("chain", {}),
    "chain, slack rescaling": ("chain", {"rescaling": "slack"}),
    "chain, no transitions": ("chain", {"transitions": False, "boundaries": False, "tag_cost": {"1": 3.0}}),
}


@pytest.fixture(scope="module", params=MODELS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kind, problem = MODELS[request.param]
    return make(tmp_path_factory.mktemp("model"), kind, **problem)


def refused_by_verify(place: Path, gap: float | None = GAP) -> bool:
    try:
        return not verify(str(place / "model"), str(place / "data"), gap=gap).certified
    except InputError:
        return True


def refused_by_check(place: Path, gap: float | None = GAP) -> bool:
    arguments = [str(place / "model"), str(place / "data"), *([] if gap is None else ["--gap", str(gap)])]
    return distdual_check.main(arguments) != 0


def test_it_agrees_with_verify_on(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not refused_by_verify(trained)
    assert not refused_by_check(trained), capsys.readouterr()
    said = capsys.readouterr().out
    assert "target 1.00e-03 (as given)" in said
    assert "C=1" in said


def test_it_agrees_on_sparse_rows_and_a_prior(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_data(tmp_path, "binary", sparse=True)
    np.save(tmp_path / "mean.npy", np.linspace(-0.3, 0.3, 5))
    np.save(tmp_path / "precision.npy", np.linspace(0.5, 2.0, 5))
    prior = {"mean": str(tmp_path / "mean.npy"), "precision": str(tmp_path / "precision.npy"), "nonnegative": ["1:4"]}
    run = {"data": {"url": str(tmp_path / "data")}, "problem": {"kind": "binary"}, "prior": prior}
    train({**run, "solver": {"gap": GAP, "slack": "example"}, "output": {"url": str(tmp_path / "model")}})
    assert not refused_by_verify(tmp_path)
    assert not refused_by_check(tmp_path), capsys.readouterr()
    change_array("prior/mean.npy", at(2, lambda m: m + 0.1))(tmp_path)
    assert refused_by_verify(tmp_path)
    assert refused_by_check(tmp_path)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["model/weights.npy", "model/model.json", "data/zarr.json", "data/y/c/0"])
def test_a_pipe_in_place_of_a_file_is_refused_at_once(name: str, originals: dict[str, Path], tmp_path: Path) -> None:
    place = copied(originals["multiclass"], tmp_path / "copy")
    (place / name).unlink()
    os.mkfifo(place / name)
    assert refused_by_check(place)


def test_an_option_that_it_does_not_know_is_not_covered(originals: dict[str, Path], tmp_path: Path) -> None:
    place = copied(originals["multiclass"], tmp_path / "copy")
    change_json(ABOUT, "problem", to=lambda problem: {**problem, "twist": 1})(place)
    assert distdual_check.main([str(place / "model"), str(place / "data")]) == 2


def test_it_reads_a_data_set_that_replaced_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = make(tmp_path, "multiclass")
    make_data(place, "multiclass", overwrite=True)
    assert list((place / "data" / "x").glob("c.*"))
    assert not refused_by_verify(place)
    assert not refused_by_check(place), capsys.readouterr()


def test_it_reads_the_model_whose_replacement_was_cut_short(tmp_path: Path) -> None:
    place = make(tmp_path, "multiclass")
    model, folder = place / "model", "replacement-0123abcd"
    shutil.copytree(model, model / folder)
    (model / "weights.npy").write_bytes(b"of the model before")
    assert refused_by_verify(place)
    assert refused_by_check(place)
    pointer = {"folder": folder, "files": ["weights.npy"], "obsolete": []}
    (model / "replacement.json").write_text(json.dumps(pointer))
    assert not refused_by_verify(place)
    assert not refused_by_check(place)
    (model / "replacement.json").write_text(json.dumps({**pointer, "folder": "../model"}))
    assert refused_by_verify(place)
    assert refused_by_check(place)


def test_both_judge_by_the_target_that_is_given(trained: Path) -> None:
    assert refused_by_verify(trained, 1e-12)
    assert refused_by_check(trained, 1e-12)


# --- tampering


def change_array(name: str, change: Callable[[Any], Any], *, repair: bool = True) -> Callable[[Path], None]:
    """Change a file of the model folder and, with `repair`, its digest."""

    def tamper(place: Path) -> None:
        path = place / "model" / name
        np.save(path, change(np.load(path)))
        if repair:
            certificate = read(place, "certificate.json")
            certificate["sha256"][name] = hashlib.sha256(path.read_bytes()).hexdigest()
            write(place, "certificate.json", certificate)

    return tamper


def read(place: Path, name: str) -> dict[str, Any]:
    return json.loads((place / "model" / name).read_text())


def write(place: Path, name: str, content: Any) -> None:
    (place / "model" / name).write_text(json.dumps(content))


def change_json(name: str, *path: str, to: Any) -> Callable[[Path], None]:
    def tamper(place: Path) -> None:
        content = found = read(place, name)
        for key in path[:-1]:
            found = found[key]
        found[path[-1]] = to(found[path[-1]]) if callable(to) else to
        write(place, name, content)

    return tamper


def both(*steps: Callable[[Path], None]) -> Callable[[Path], None]:
    def tamper(place: Path) -> None:
        for step in steps:
            step(place)

    return tamper


def change_data(name: str, at: Any, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Through Zarr, so that the chunk's own checksum is right."""

    def tamper(place: Path) -> None:
        array = zarr.open_group(str(place / "data"), mode="r+")[name]
        array[at] = change(np.asarray(array[at]))

    return tamper


def flip(place: Path) -> None:
    path = next((place / "data" / "x" / "c").rglob("0"))
    path = path if path.is_file() else next(path.rglob("0"))
    content = bytearray(path.read_bytes())
    content[10] ^= 4
    path.write_bytes(content)


def at(k: int, value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array = array.copy()
        array[k] = value(array[k])
        return array

    return change


ALPHA, W = "dual/alpha.npy", "weights.npy"
CERTIFICATE, ABOUT = "certificate.json", "model.json"

TAMPERINGS: dict[str, Callable[[Path], None]] = {
    "a weight": change_array(W, at(0, lambda w: 1.01 * w + 0.01), repair=False),
    "a weight and its digest": change_array(W, at(0, lambda w: 1.1 * w + 0.1)),
    "a weight that is no number": change_array(W, at(1, lambda _: np.nan)),
    "an infinite weight": change_array(W, at(1, lambda _: np.inf)),
    "a weight too many": change_array(W, lambda w: np.append(w, 0.0)),
    "weights in single precision": change_array(W, lambda w: w.astype(np.float32)),
    "all weights halved": change_array(W, lambda w: 0.5 * w),
    "an alpha": change_array(ALPHA, at(0, lambda a: 0.9 * a), repair=False),
    "an alpha and its digest": change_array(ALPHA, at(0, lambda a: 0.5 * a)),
    "a negative alpha": change_array(ALPHA, at(0, lambda a: -a)),
    "an alpha above its capacity": change_array(ALPHA, at(0, lambda _: 1e6)),
    "an infinite alpha": change_array(ALPHA, at(0, lambda _: np.inf)),
    "an alpha that is no number": change_array(ALPHA, at(0, lambda _: np.nan)),
    "an alpha too few": change_array(ALPHA, lambda a: a[:-1]),
    "a key beyond the classes": change_array("dual/key_values.npy", at(0, lambda _: np.int32(99))),
    "a negative key": change_array("dual/key_values.npy", at(0, lambda _: np.int32(-1))),
    "another key": change_array("dual/key_values.npy", lambda k: ((k + 1) % 2).astype(np.int32)),
    "a key for two constraints": both(
        change_array("dual/key_values.npy", lambda k: k[:-1]),
        change_array("dual/key_indptr.npy", lambda p: np.minimum(p, p[-1] - 1)),
    ),
    "an example beyond the data": change_array("dual/example.npy", at(-1, lambda _: 10**6)),
    "a negative example": change_array("dual/example.npy", at(0, lambda _: -1)),
    "constraints of other examples": change_array("dual/example.npy", lambda e: e[::-1].copy()),
    "a feature": change_data("x", (3, 1), lambda x: x + np.float32(0.5)),
    "a label": change_data("y", 4, lambda y: 1 - y),
    "a byte of a chunk": flip,
    "the checksums of the model": change_array("dual/checksum.npy", at(0, lambda c: c ^ np.uint32(1))),
    "the table of checksums": change_data("checksum", 0, lambda c: c ^ np.uint32(1)),
    "a shard less": change_array("dual/checksum.npy", lambda c: c[:-1]),
    "a higher lower bound": change_json(CERTIFICATE, "lower", to=lambda v: 1.0001 * v),
    "a lower upper bound": change_json(CERTIFICATE, "upper", to=lambda v: 0.9999 * v),
    "bounds that are null": change_json(CERTIFICATE, "upper", to=None),
    "a smaller gap": change_json(CERTIFICATE, "gap", to=0.0),
    "a huge rounding": change_json(CERTIFICATE, "rounding", to=1e30),
    "a negative rounding": change_json(CERTIFICATE, "rounding", to=-1.0),
    "an infinite target": change_json(CERTIFICATE, "target", to=float("inf")),
    "a larger target": change_json(CERTIFICATE, "target", to=0.5),
    "a smaller C": change_json(ABOUT, "C", to=0.9),
    "a larger C, in the config too": both(
        change_json(ABOUT, "C", to=2.0), change_json(ABOUT, "config", "solver", "C", to=2.0)
    ),
    "the fingerprint": change_json(ABOUT, "data", "fingerprint", to="0" * 64),
    "the kind": change_json(ABOUT, "problem", "kind", to="binary"),
    "the number of features": change_json(ABOUT, "problem", "n_features", to=4),
    "the problem's costs": change_json(ABOUT, "problem", "class_cost", to={"0": 3.0}),
}

OF_REGRESSION = {
    "epsilon": change_json(ABOUT, "problem", "epsilon", to=0.3),
    "another bias": change_json(ABOUT, "problem", "bias", to=2.0),
    "labels for targets": change_json(ABOUT, "problem", "classes", to=["0", "1"]),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("originals")
    kinds = ("multiclass", "regression", "chain")
    for kind in kinds:
        (folder / kind).mkdir()
    return {kind: make(folder / kind, kind) for kind in kinds}


def copied(original: Path, place: Path) -> Path:
    shutil.copytree(original, place, dirs_exist_ok=True)
    return place


@pytest.mark.parametrize("name", TAMPERINGS)
def test_both_refuse_a_model_after_a_change_of(name: str, originals: dict[str, Path], tmp_path: Path) -> None:
    place = copied(originals["multiclass"], tmp_path / "copy")
    TAMPERINGS[name](place)
    assert refused_by_verify(place)
    assert refused_by_check(place)


@pytest.mark.parametrize("name", [*OF_REGRESSION, "a key for two constraints", "another key", "a negative key"])
def test_both_refuse_a_regression_after_a_change_of(name: str, originals: dict[str, Path], tmp_path: Path) -> None:
    place = copied(originals["regression"], tmp_path / "copy")
    {**TAMPERINGS, **OF_REGRESSION}[name](place)
    assert refused_by_verify(place)
    assert refused_by_check(place)


@pytest.mark.slow
@pytest.mark.parametrize("name", TAMPERINGS)
@pytest.mark.parametrize("kind", ["regression", "chain"])
def test_both_refuse_models_of_other_kinds_after_a_change_of(
    kind: str, name: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    place = copied(originals[kind], tmp_path / "copy")
    TAMPERINGS[name](place)
    assert refused_by_verify(place)
    assert refused_by_check(place)


def test_there_are_thirty_changes_at_least() -> None:
    assert len(TAMPERINGS) >= 30


def test_a_forged_target_is_noticed_when_the_user_states_the_target(originals: dict[str, Path], tmp_path: Path) -> None:
    """Certificate and config agree on it, so that nothing in the folder contradicts it."""
    place = copied(originals["multiclass"], tmp_path / "copy")
    change_json(CERTIFICATE, "target", to=0.5)(place)
    change_json(ABOUT, "config", "solver", "gap", to=0.5)(place)
    for gap, refused in ((None, False), (1e-9, True)):
        assert refused_by_verify(place, gap) == refused
        assert refused_by_check(place, gap) == refused


# --- the file by itself


def test_it_runs_alone(originals: dict[str, Path], tmp_path: Path) -> None:
    script = tmp_path / "distdual_check.py"
    shutil.copy(distdual_check.__file__, script)
    place = originals["regression"]
    command = [sys.executable, "-I", str(script), str(place / "model"), str(place / "data")]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("checked: ")


def test_it_is_short_enough_to_be_read() -> None:
    lines = Path(distdual_check.__file__).read_text().splitlines()
    assert len(lines) < LINES
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("size", [0, 1, 9, 100, 1000, 12345])
def test_crc32c_is_that_of_the_library(size: int) -> None:
    content = np.random.default_rng(size).bytes(size)
    assert distdual_check.crc32c(content) == google_crc32c.extend(0, content)


@pytest.mark.parametrize("shuffle", [Blosc.NOSHUFFLE, Blosc.SHUFFLE])
@pytest.mark.parametrize("dtype", ["<i8", "<f4", "u1"])
@pytest.mark.parametrize("size", [1, 100, 5000, 300_000])
def test_blosc_is_that_of_the_library(size: int, dtype: str, shuffle: int) -> None:
    rng = np.random.default_rng(size)
    values = rng.integers(0, 50, size).astype(dtype)
    for content in (values, rng.bytes(size * values.itemsize)):
        plain = np.frombuffer(content, dtype=dtype).copy()
        assert distdual_check.blosc(Blosc(cname="lz4", shuffle=shuffle).encode(plain)) == plain.tobytes()


def test_a_model_of_a_table_is_checked_on_the_stored_features(tmp_path: Path, capsys: Any) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.uniform(20, 120, 60), "part": rng.choice(["north", "west"], 60)})
    frame["rent"] = 11 * frame["size"] + 250 * (frame["part"] == "north")
    prepare_frame(frame, tmp_path / "data", "regression", label="rent", scale="unit-variance")
    told = {"kind": "regression", "bias": 1.0, "epsilon": 5.0}
    train({"data": {"url": str(tmp_path / "data")}, "problem": told, "output": {"url": str(tmp_path / "model")}})
    assert distdual_check.main([str(tmp_path / "model")]) == 0
    assert "checked: " in capsys.readouterr().out


def test_what_it_does_not_cover_is_an_error_and_not_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert distdual_check.main([str(tmp_path)]) == 2
    assert "not checked" in capsys.readouterr().err
