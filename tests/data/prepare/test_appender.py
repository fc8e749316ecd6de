"""Shards are appended atomically: a reader opens the old data set or the new one."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from numpy.testing import assert_array_equal

from distdual.data.dataset import Dataset, open_dataset, open_once
from distdual.data.prepare.api import prepare, prepare_arrays
from distdual.data.prepare.appender import Appender
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows
from tests.appending import NEW, OLD
from tests.shell import assert_refused, call, run

WIDTH = 4


def made(seed: int, n: int = 20) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, WIDTH)).astype(np.float32) * (rng.random((n, WIDTH)) < 0.7)
    x[:, -1] = 1
    return x, np.where(np.arange(n) % 3 == 0, "no", "yes")


def matrix(dataset: Dataset) -> np.ndarray:
    parts = [dataset.read(s).shard.x for s in range(dataset.n_shards)]
    if isinstance(parts[0], DenseRows):
        return np.concatenate([part.values for part in parts])
    whole = [sp.csr_array((p.values, p.indices, p.indptr), shape=(len(p.indptr) - 1, WIDTH)).toarray() for p in parts]
    return np.concatenate(whole)


def labels(dataset: Dataset) -> np.ndarray:
    return np.array(dataset.classes)[np.concatenate([dataset.read(s).shard.y for s in range(dataset.n_shards)])]


def files(place: Location) -> dict[str, bytes]:
    root = Path(place.url)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_what_is_appended_follows_what_is_there(location, sparse):
    form = sp.csr_array if sparse else np.asarray
    first, second, third = made(0), made(1, 33), made(2, 1)
    prepare_arrays(form(first[0]), first[1], location, "binary", shard_bytes=100)
    old = open_dataset(location)
    for x, y in (second, third):
        prepare_arrays(form(x), y, location, "binary", append=True)
    new = open_dataset(location)
    assert_array_equal(matrix(new), np.concatenate([part[0] for part in (first, second, third)]))
    assert_array_equal(labels(new), np.concatenate([part[1] for part in (first, second, third)]))
    assert new.head(old.n_shards).fingerprint == old.fingerprint != new.fingerprint
    assert new.layout == old.layout
    assert new.n_shards > old.n_shards + 1
    stored = zarr.open_group(str(location), mode="r", storage_options=dict(location.storage_options) or None)
    own = zarr.open_array(stored.store, path="y", mode="r", zarr_format=3)
    assert own.shape == stored["y"].shape == (new.n_shards * new.layout.chunk["example"],)  # with and without the root


def test_a_shard_of_zeros_alone_is_appended_like_any_other(location):
    prepare_arrays(*made(0), location, "binary", shard_bytes=100)
    prepare_arrays(np.zeros((9, WIDTH), dtype=np.float32), np.repeat("no", 9), location, "binary", append=True)
    assert_array_equal(matrix(open_dataset(location))[20:], np.zeros((9, WIDTH)))


def test_a_run_goes_on_with_the_shards_it_began_with(location):
    prepare_arrays(*made(0), location, "binary", shard_bytes=100)
    old = open_dataset(location)
    prepare_arrays(*made(1), location, "binary", append=True)
    again = open_once(location, old.fingerprint, old.n_shards)
    assert (again.n_shards, again.n_examples) == (old.n_shards, 20)
    assert_array_equal(matrix(again), made(0)[0])


REFUSED = {
    "a third label": (
        lambda x, y: (x, np.where(y == "no", "maybe", y), {}),
        r"the label 'maybe' is not one of .* no, yes",
    ),
    "fewer features": (lambda x, y: (x[:, :3], y, {}), r"dense rows of 3 features, but n_features is 4"),
    "sparse features": (
        lambda x, y: (sp.csr_array(x), y, {}),
        r"the source has sparse features.*but the data set 4 dense",
    ),
    "costs": (lambda x, y: (x, y, {"cost": np.ones(len(y))}), r"the source has .*, cost, but the data set .*labels$"),
    "another problem": (lambda x, y: (x, y, {"kind": "multiclass"}), r"problem is multiclass, but that .* is binary"),
    "another scale": (lambda x, y: (x, y, {"scale": "unit-rows"}), r"was prepared with the scale none, not unit-rows"),
    "another width": (lambda x, y: (x, y, {"n_features": 5}), r"n_features is 5, but that of the data set is 4"),
    "shards of another size": (lambda x, y: (x, y, {"shard_bytes": 7}), r"append and shard_bytes exclude each other"),
    "compression": (lambda x, y: (x, y, {"compress": True}), r"append and compress exclude each other"),
    "overwrite": (lambda x, y: (x, y, {"overwrite": True}), r"append and overwrite exclude each other"),
    "two data sets": (lambda x, y: (x, y, {"test_fraction": 0.5}), r"append adds to one data set"),
    "a NaN late": (lambda x, y: (np.where(np.arange(20)[:, None] == 19, np.nan, x), y, {}), r"row 19 .*NaN"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_changes_when_it_is_refused_to_append(what, tmp_path):
    change, message = REFUSED[what]
    place = Location(str(tmp_path / "set"))
    prepare_arrays(*made(0), place, "binary", shard_bytes=100)
    before = files(place)
    x, y, options = change(*made(1))
    kind = options.pop("kind", "binary")
    with pytest.raises(InputError, match=message):
        prepare_arrays(x, y, place, kind, append=True, **options)
    assert files(place) == before


def test_there_must_be_something_to_append_to(location):
    with pytest.raises(InputError, match="there is no data set"):
        prepare_arrays(*made(0), location, "binary", append=True)
    assert location.is_empty()


def test_what_somebody_else_appended_meanwhile_is_not_lost(location):
    prepare_arrays(*made(0), location, "binary", shard_bytes=100)
    late = Appender(location, "binary")
    prepare_arrays(*made(2), location, "binary", append=True)
    with pytest.raises(InputError, match="another process has changed the data set meanwhile"), late:
        late.finish()
    assert_array_equal(matrix(open_dataset(location))[20:], made(2)[0])


def test_columns_are_divided_by_what_they_were_divided_by_before(tmp_path):
    place, (x, y) = Location(str(tmp_path / "set")), made(0)
    prepare_arrays(x, y, place, "binary", scale="unit-variance")
    other = 10 * made(1)[0]
    prepare_arrays(other, y, place, "binary", scale="unit-variance", append=True)
    deviation = np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
    np.testing.assert_allclose(matrix(open_dataset(place))[20:], other / deviation, rtol=1e-5)


def test_text_is_appended_in_the_features_and_tags_that_are_there(tmp_path):
    (tmp_path / "one.txt").write_text("The DT\ndog NN\n\nA DT\ncat NN\n")
    (tmp_path / "two.txt").write_text("The DT\nbird NN\n")
    (tmp_path / "three.txt").write_text("barks VBZ\n")
    place = Location(str(tmp_path / "set"))
    told = {"columns": {"word": 1}, "templates": ["word[0]"]}
    prepare(tmp_path / "one.txt", place, "chain", templates=told)
    prepare(tmp_path / "two.txt", place, "chain", format="conll", append=True)
    dataset = open_dataset(place)
    last = dataset.read(dataset.n_shards - 1).shard
    assert (dataset.n_examples, dataset.n_features) == (3, 4)
    assert np.diff(last.x.indptr).tolist() == [1, 0]  # the bird is a new word
    with pytest.raises(InputError, match="'VBZ' is not one of those in the data set: DT, NN"):
        prepare(tmp_path / "three.txt", place, "chain", format="conll", append=True)
    with pytest.raises(InputError, match="append takes the templates of the data set itself"):
        prepare(tmp_path / "two.txt", place, "chain", templates=told, append=True)
    assert open_dataset(place).fingerprint == dataset.fingerprint


def test_trees_are_appended_in_the_grammar_that_is_there(tmp_path):
    (tmp_path / "one.mrg").write_text("(S (NP (DT the) (NN dog)) (VP (VBZ barks)))\n" * 3)
    (tmp_path / "two.mrg").write_text("(S (NP (DT the) (NN dog)) (VP (VBZ barks)))\n")
    place = Location(str(tmp_path / "set"))
    prepare(tmp_path / "one.mrg", place, "cfg")
    old = open_dataset(place)
    prepare(tmp_path / "two.mrg", place, "cfg", append=True)
    new = open_dataset(place)
    assert (new.n_examples, dict(new.texts)) == (4, dict(old.texts))


@pytest.mark.slow
def test_killed_at_any_write_it_leaves_the_old_data_set_or_the_new_one(tmp_path):
    ran = run(sys.executable, "-m", "tests.appending", tmp_path, cwd=Path(__file__).parents[3])
    assert ran.code == 0, ran.err
    seen = json.loads(ran.out)
    assert seen == sorted(seen)
    assert set(seen) == {OLD, OLD + NEW}
    assert seen.count(OLD) > 10
    assert seen[-2:] == [OLD, OLD + NEW]  # the last write decides


def test_the_command_line_appends(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.txt").write_text("+1 1:0.9 2:0.1\n-1 2:1.1\n")
    (tmp_path / "two.txt").write_text("-1 1:0.1\n")
    (tmp_path / "wide.txt").write_text("-1 7:0.1\n")
    assert call(capsys, "prepare", "one.txt", "set", "--problem", "binary").code == 0
    ran = call(capsys, "prepare", "two.txt", "set", "--problem", "binary", "--append")
    assert ran.code == 0
    assert "set: 3 examples, 2 features, 2 shards, labels -1, 1\n" in ran.out
    ran = call(capsys, "prepare", "wide.txt", "set", "--problem", "binary", "--append")
    assert_refused(ran, "wide.txt has 7 features, more than the n_features of 2")
