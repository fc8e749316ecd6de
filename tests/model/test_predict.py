"""Predictions: in the data set's order, with the data set's labels, at the place that was named."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdual.coordinator.run import train
from distdual.data.prediction_files import check_file_name, write_rows
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.model.io import load_model
from distdual.model.predict import label_array, predict
from tests.build import examples
from tests.shell import call


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data sets of the same examples in dense and sparse form, and a model."""
    from scipy.sparse import csr_matrix

    made = tmp_path_factory.mktemp("prediction")
    x, y, *_ = examples(3, 90, 4)
    labels = np.where(y == 1, "good", "bad")
    prepare_arrays(x, labels, str(made / "dense"), "binary", shard_bytes=400)
    prepare_arrays(csr_matrix(x), labels, str(made / "sparse"), "binary", shard_bytes=400)
    told = {"data": {"url": str(made / "dense")}, "problem": {"kind": "binary", "bias": 1.0}, "solver": {"gap": 0.01}}
    train({**told, "output": {"url": str(made / "model")}})
    return made


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_predictions_are_the_sign_of_the_score_in_order(folder: Path, storage: str) -> None:
    x, y, *_ = examples(3, 90, 4)
    w = load_model(Location(str(folder / "model"))).w
    expected = np.where(x.astype(float) @ w[:-1] + w[-1] > 0, "good", "bad")
    found = predict(str(folder / "model"), str(folder / storage))
    assert found.labels.tolist() == expected.tolist()
    assert found.score is not None
    assert found.score["accuracy"] == pytest.approx((expected == np.where(y == 1, "good", "bad")).mean())


def test_labels_are_matched_by_name_not_by_code(folder: Path, tmp_path: Path) -> None:
    """In the other data set "good" comes first, so the codes are the other way round."""
    x, y, *_ = examples(3, 90, 4)
    order = np.argsort(-y, kind="stable")
    prepare_arrays(x[order], np.where(y == 1, "good", "bad")[order], str(tmp_path / "other"), "binary")
    here, there = (predict(str(folder / "model"), place) for place in (str(folder / "dense"), str(tmp_path / "other")))
    assert there.labels.tolist() == here.labels[order].tolist()
    assert there.score == pytest.approx(here.score)


def test_labels_that_the_model_does_not_know_give_predictions_without_a_score(folder: Path, tmp_path: Path) -> None:
    x, y, *_ = examples(3, 90, 4)
    prepare_arrays(x, np.where(y == 1, "good", "ugly"), str(tmp_path / "other"), "binary")
    found = predict(str(folder / "model"), str(tmp_path / "other"))
    assert found.score is None
    assert set(found.labels) <= {"good", "bad"}


def test_narrower_sparse_data_is_welcome(folder: Path, tmp_path: Path) -> None:
    """Its last features happen to be zero everywhere."""
    from scipy.sparse import csr_matrix

    x, y, *_ = examples(3, 90, 4)
    x[:, 3] = 0
    labels = np.where(y == 1, "good", "bad")
    prepare_arrays(csr_matrix(x[:, :3]), labels, str(tmp_path / "narrow"), "binary")
    prepare_arrays(x, labels, str(tmp_path / "full"), "binary")
    narrow, full = (predict(str(folder / "model"), str(tmp_path / name)) for name in ("narrow", "full"))
    assert narrow.labels.tolist() == full.labels.tolist()


@pytest.mark.parametrize(
    ("classes", "kind"),
    [
        (("-1", "1"), "i"),
        (("0.5", "1"), "f"),
        (("01", "1"), "U"),  # two labels, not the number 1 twice
        (("1_0", "11"), "U"),
        (("inf", "nan"), "U"),
        (("no", "yes"), "U"),
        (("1", str(2**70 + 1)), "U"),
    ],
)
def test_labels_become_numbers_only_if_they_are_spelt_as_such(classes: tuple[str, ...], kind: str) -> None:
    found = label_array(classes)
    assert found.dtype.kind == kind
    assert len(set(found.tolist())) == 2


@pytest.mark.parametrize("labels", [np.array([1, -1]), np.array([0.5, 1.0]), np.array(["näh", "yes"])])
def test_what_was_saved_can_be_read(labels: Any, location: Location) -> None:
    write_rows([{"prediction": labels}], location / "labels.npy")
    write_rows([{"prediction": labels}], location / "labels.txt")
    assert np.load(io.BytesIO(location.read("labels.npy")), allow_pickle=False).tolist() == labels.tolist()
    assert location.read("labels.txt").decode() == "".join(f"{label}\n" for label in labels)


@pytest.mark.parametrize("name", ["labels.txt", "sub/labels.txt", "./labels.txt"])
def test_a_relative_place_is_below_the_current_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows([{"prediction": np.array([1])}], Location(name))
    assert (tmp_path / name).read_text() == "1\n"


@pytest.mark.skipif(not os.access("/", os.W_OK), reason="the root folder is not writable for this user")
def test_a_file_in_the_root_folder_lands_there() -> None:
    target = Path(f"/distdual-test-{os.getpid()}.txt")
    try:
        write_rows([{"prediction": np.array([1])}], Location(str(target)))
        assert target.read_text() == "1\n"
    finally:
        target.unlink(missing_ok=True)


@pytest.mark.parametrize("name", ["labels.json", "labels", "txt"])
def test_other_endings_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.txt or \.npy"):
        check_file_name(str(tmp_path / name))
    assert not list(tmp_path.iterdir())


def test_the_command_prints_the_score(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = call(capsys, "predict", folder / "model", folder / "dense", "--out", tmp_path / "labels.npy")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == f"90 predictions in {tmp_path}/labels.npy"
    accuracy = float(ran.out.splitlines()[1].removeprefix("accuracy "))
    truth = np.where(examples(3, 90, 4).y == 1, "good", "bad")
    assert accuracy == pytest.approx((np.load(tmp_path / "labels.npy") == truth).mean(), abs=1e-4)
