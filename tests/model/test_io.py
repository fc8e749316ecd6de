"""A model is a folder that is whole or not there, readable with NumPy and json alone, and never executed."""

import dataclasses
import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdual import train
from distdual.data.storage.claim import claimed
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.model.io import Model, changed_files, load_model
from tests import naive
from tests.build import CLASSES, examples, shard_of, write
from tests.shell import run

MADE = examples(0, 80, 4, cost=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A data set and a model trained on it; copy it before changing anything."""
    folder = tmp_path_factory.mktemp("model")
    write(folder / "data", MADE)
    train(
        {
            "data": {"url": str(folder / "data")},
            "problem": {"kind": "binary", "bias": 1.0, "class_cost": {"1": 2.0}},
            "solver": {"C": 0.5},
            "output": {"url": str(folder / "model")},
        }
    )
    return folder / "model"


@pytest.fixture
def folder(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "model"))


def at(folder: Path) -> Location:
    return Location(str(folder))


def assert_same_model(a: Model, b: Model) -> None:
    for left, right in zip((a.w, *a.dual.keys, a.dual.example), (b.w, *b.dual.keys, b.dual.example), strict=True):
        np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(a.dual.alpha, b.dual.alpha)
    np.testing.assert_array_equal(a.data.checksum, b.data.checksum)
    assert (a.problem, a.C, a.config, a.data[:3]) == (b.problem, b.C, b.config, b.data[:3])


def test_it_comes_back_as_it_was_saved(folder, tmp_path):
    model = load_model(at(folder))
    model.save(at(tmp_path / "copy"))
    assert_same_model(load_model(at(tmp_path / "copy")), model)


def test_it_holds_what_training_found(folder):
    model = load_model(at(folder))
    program = naive.binary_program(model.problem, shard_of(MADE), model.C)
    alpha = np.zeros(80)
    alpha[model.dual.example] = model.dual.alpha
    assert model.certificate["certified"]
    assert model.certificate["upper"] == pytest.approx(naive.primal(program, model.w), rel=1e-9)
    assert model.certificate["lower"] == pytest.approx(naive.dual(program, alpha), rel=1e-9)
    assert model.certificate["support"] == len(model.dual.alpha)
    assert (model.dual.alpha > 0).all()
    assert (np.diff(model.dual.example) > 0).all()


def test_numpy_and_json_alone_can_read_it(folder):
    """In a process that has not even distdual on its path."""
    script = (
        "import json, sys, numpy as np;"
        "w = np.load('weights.npy', allow_pickle=False);"
        "about = json.load(open('model.json'));"
        "certificate = json.load(open('certificate.json'));"
        "assert len(w) == about['problem']['n_features'] + 1;"
        "assert not any(name.startswith('distdual') for name in sys.modules);"
        "print(certificate['gap'] <= certificate['target'], about['problem']['classes'])"
    )
    found = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True)
    assert found.stdout.strip() == f"True {list(CLASSES)}", found.stderr


def test_no_file_of_it_is_a_pickle(folder):
    for path in folder.rglob("*.npy"):
        assert not np.load(path, allow_pickle=False).dtype.hasobject
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".npy", ".json"}


def other_than(model: Model) -> Model:
    return dataclasses.replace(model, w=model.w + 1.0, certificate={**model.certificate, "reason": "another"})


@pytest.mark.parametrize("kind", ["new", "overwrite"])
def test_killed_at_any_write_a_save_leaves_the_old_model_or_the_new_one(kind, folder, tmp_path):
    ran = run(sys.executable, "-m", "tests.saving", folder, tmp_path / "saved", kind, cwd=Path(__file__).parents[2])
    assert ran.code == 0, ran.err
    seen = json.loads(ran.out)
    before = "none" if kind == "new" else "old"
    decided = seen.index("new")
    assert decided > 5
    assert seen == [before] * decided + ["new"] * (len(seen) - decided)


def test_a_model_that_was_left_half_moved_is_whole_and_the_next_save_tidies_up(folder):
    old = load_model(at(folder))
    new = other_than(old)
    new.save(at(folder / "replacement-00000000"))
    about = {"folder": "replacement-00000000", "files": FILES, "obsolete": []}
    (folder / "replacement.json").write_text(json.dumps(about))
    shutil.copy(folder / "replacement-00000000" / "weights.npy", folder / "weights.npy")
    assert_same_model(load_model(at(folder)), new)
    assert changed_files(at(folder), load_model(at(folder)).certificate) == []
    old.save(at(folder), overwrite=True)
    assert_same_model(load_model(at(folder)), old)
    assert not [path.name for path in folder.iterdir() if path.name.startswith("replacement")]


def test_a_replacement_elsewhere_is_not_followed(folder):
    for name in ("../replacement-00000000", "replacement-00000000/../..", "/etc", 7):
        (folder / "replacement.json").write_text(json.dumps({"folder": name, "files": [], "obsolete": []}))
        with pytest.raises(InputError, match=r"replacement\.json: it is not what `distdual train` writes"):
            load_model(at(folder))
    about = {"folder": "replacement-00000000", "files": ["../../passwd"], "obsolete": []}
    (folder / "replacement.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"replacement\.json: it is not what"):
        load_model(at(folder))


def test_a_save_that_fails_leaves_what_was_there(folder, tmp_path, monkeypatch):
    model, write = load_model(at(folder)), Location.write

    def full(self: Location, name: str, content: bytes) -> None:
        if name == "dual/alpha.npy":
            raise InputError("no room")
        write(self, name, content)

    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setattr(Location, "write", full)
    for place in (folder, tmp_path / "new"):
        with pytest.raises(InputError, match="no room"):
            other_than(model).save(at(place), overwrite=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert not any(path.is_file() for path in (tmp_path / "new").rglob("*"))
    monkeypatch.undo()
    model.save(at(tmp_path / "new"))
    other_than(model).save(at(folder), overwrite=True)


def test_two_saves_at_once_are_one(folder):
    model = load_model(at(folder))
    with claimed(at(folder)), pytest.raises(InputError, match="is writing there"):
        model.save(at(folder), overwrite=True)


def test_a_folder_without_model_json_holds_no_model(folder):
    (folder / "model.json").unlink()
    with pytest.raises(InputError, match=r"there is no model: model\.json not found"):
        load_model(at(folder))


def test_a_model_is_replaced_only_if_that_is_asked_for(folder):
    model = load_model(at(folder))
    with pytest.raises(InputError, match="already holds a model; choose another place, or pass overwrite=True"):
        model.save(at(folder))
    model.save(at(folder), overwrite=True)
    assert_same_model(load_model(at(folder)), model)


def test_a_folder_that_holds_something_else_is_never_written_to(folder, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("…")
    model = load_model(at(folder))
    for overwrite in (False, True):
        with pytest.raises(InputError, match="already holds something that is not a model"):
            model.save(at(tmp_path / "other"), overwrite=overwrite)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.tex"]


def test_what_an_interrupted_save_left_may_be_written_over(folder):
    model = load_model(at(folder))
    (folder / "model.json").unlink()
    model.save(at(folder))
    assert_same_model(load_model(at(folder)), model)


FILES = [
    "weights.npy",
    "model.json",
    "certificate.json",
    "dual/example.npy",
    "dual/key_indptr.npy",
    "dual/key_values.npy",
    "dual/alpha.npy",
    "dual/beta.npy",
    "dual/checksum.npy",
]


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.npy", b"")
    return buffer.getvalue()


def pickled() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def array(value: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, value)
    return buffer.getvalue()


GARBAGE = {
    "nothing": b"",
    "noise": bytes(range(256)) * 3,
    "text": b"hello",
    "a list": b"[1, 2]",
    "a pickled array": pickled(),
    "an archive": zipped(),
    "an array of another kind": array(np.array([["a", "b"]])),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("content", GARBAGE)
def test_a_file_that_was_replaced_is_named_when_it_holds(content, name, folder):
    (folder / name).write_bytes(GARBAGE[content])
    with pytest.raises(InputError, match=name):
        load_model(at(folder))


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_cut_short_anywhere_is_named(name, folder):
    whole = (folder / name).read_bytes()
    for length in {1, 5, 10, len(whole) // 2, len(whole) - 2} & set(range(len(whole))):
        (folder / name).write_bytes(whole[:length])
        with pytest.raises(InputError, match=name):
            load_model(at(folder))


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_missing_is_named(name, folder):
    (folder / name).unlink()
    with pytest.raises(InputError, match=name):
        load_model(at(folder))


@pytest.mark.parametrize(
    "changes",
    [
        {"problem": None},
        {"problem": []},
        {"problem": {"kind": "binary"}},
        {"problem": {"kind": "binary", "n_features": "four", "classes": ["a", "b"]}},
        {"C": "much"},
        {"C": None},
        {"data": []},
        {"data": {"url": "x"}},
        {"prior": 3},
        {"prior": ["variance"]},
        {"format": "one"},
        {"format": None},
    ],
    ids=str,
)
def test_a_model_json_that_makes_no_sense_is_an_error(changes, folder):
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**about, **changes}))
    with pytest.raises(InputError, match=r"model\.json"):
        load_model(at(folder))


def test_a_newer_format_asks_for_an_upgrade(folder):
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**about, "format": 99}))
    with pytest.raises(InputError, match="model format 99 is newer than 2, the newest this version reads; upgrade"):
        load_model(at(folder))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("weights.npy", lambda a: a[:-1], r"weights\.npy: 4 weights, but model\.json describes 5"),
        ("dual/alpha.npy", lambda a: a[:-1], "dual: example, key_indptr and alpha differ in length"),
        ("dual/example.npy", lambda a: a[1:], "dual: example, key_indptr and alpha differ in length"),
        ("dual/key_indptr.npy", lambda a: a + 5, "dual/key_indptr"),
        ("dual/key_indptr.npy", lambda a: -a - 1, "dual/key_indptr"),
        ("weights.npy", lambda a: a.astype(np.float32), "expected a flat float64 array, found float32"),
    ],
    ids=[
        "too few weights",
        "too few α",
        "too few examples",
        "keys beyond their end",
        "keys before their beginning",
        "weights in single precision",
    ],
)
def test_files_that_do_not_fit_together_are_an_error(name, change, message, folder):
    np.save(folder / name, change(np.load(folder / name)))
    with pytest.raises(InputError, match=message):
        load_model(at(folder))


def test_a_file_changed_after_training_is_found(folder):
    certificate = json.loads((folder / "certificate.json").read_text())
    assert changed_files(at(folder), certificate) == []
    alpha = np.load(folder / "dual" / "alpha.npy")
    np.save(folder / "dual" / "alpha.npy", alpha * 0.5)
    assert changed_files(at(folder), certificate) == ["dual/alpha.npy"]


def test_credentials_are_not_written_down(folder):
    text = (folder / "model.json").read_text() + (folder / "certificate.json").read_text()
    assert "storage_options" not in text
