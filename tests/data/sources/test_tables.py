"""Tables of every kind give the same examples; what columns become is found once and stored."""

import gzip
import io
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distdual.data.dataset import Dataset, open_dataset
from distdual.data.prepare.api import prepare, prepare_frame
from distdual.data.preprocess.preprocessing import of_dataset
from distdual.data.sources import arrow as arrow_module
from distdual.data.sources import tables
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows
from tests.shell import assert_refused, call

TOLD: dict[str, Any] = {"label": "y", "drop": ["id"]}


def people(n: int = 60, *, missing: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"p{k}" for k in range(n)],
            "age": rng.integers(18, 90, n).astype(float),
            "city": rng.choice(["Bonn", "Aachen", "Köln"], n),
            "member": rng.random(n) < 0.5,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), "D"),
            "cost": rng.random(n) + 0.5,
            "y": np.where(rng.random(n) < 0.5, "yes", "no"),
        }
    )
    if missing:
        frame.loc[[3, 7], "age"] = np.nan
        frame.loc[5, "city"] = None
    return frame


def dense(dataset: Dataset) -> np.ndarray:
    parts = []
    for number in range(dataset.n_shards):
        x = dataset.read(number).shard.x
        if isinstance(x, DenseRows):
            parts.append(x.values)
            continue
        rows = np.zeros((len(x.indptr) - 1, dataset.n_features), dtype=np.float32)
        rows[np.repeat(np.arange(len(rows)), np.diff(x.indptr)), x.indices] = x.values
        parts.append(rows)
    return np.concatenate(parts)


def stored(place: Any) -> Dataset:
    return open_dataset(Location(str(place)))


def names(dataset: Dataset) -> tuple[str, ...]:
    found = of_dataset(dataset).feature_names
    assert found is not None
    return found


def assert_alike(found: Dataset, expected: Dataset) -> None:
    """Means and deviations may differ in the last bit, as rows are added up in other batches."""
    assert (names(found), found.classes) == (names(expected), expected.classes)
    np.testing.assert_allclose(dense(found), dense(expected), rtol=1e-6)


def expected(frame: pd.DataFrame) -> np.ndarray:
    days = (frame["since"] - frame["since"].min()).dt.days
    cities = [frame["city"] == city for city in ("Aachen", "Bonn", "Köln")]
    return np.stack([frame["age"], *cities, frame["member"], days, frame["cost"]], axis=1).astype(np.float32)


def test_each_column_becomes_features_with_names(tmp_path: Path) -> None:
    frame = people()
    prepare_frame(frame, tmp_path / "data", "binary", **TOLD)
    made = stored(tmp_path / "data")
    assert names(made) == ("age", "city=Aachen", "city=Bonn", "city=Köln", "member", "since", "cost")
    np.testing.assert_array_equal(dense(made), expected(frame))
    y = np.concatenate([made.read(k).shard.y for k in range(made.n_shards)])
    assert np.array(made.classes)[y].tolist() == frame["y"].tolist()


FRAMES = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "arrow": pa.Table.from_pandas,
    "dask": lambda frame: dd.from_pandas(frame, npartitions=3),
    "categories": lambda frame: frame.astype({"city": "category", "y": "category"}),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_frame_gives_the_same_data_set(kind: str, tmp_path: Path) -> None:
    frame = people(missing=True)
    prepare_frame(frame, tmp_path / "expected", "binary", **TOLD, missing="indicator", scale="unit-variance")
    prepare_frame(FRAMES[kind](frame), tmp_path / "data", "binary", **TOLD, missing="indicator", scale="unit-variance")
    assert_alike(stored(tmp_path / "data"), stored(tmp_path / "expected"))


def csv_bytes(frame: pd.DataFrame, **options: Any) -> bytes:
    return frame.to_csv(index=False, **options).encode()


def files_of(kind: str, frame: pd.DataFrame) -> dict[str, bytes]:
    """The table as files by name."""
    if kind == "parquet":
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pandas(frame), buffer, row_group_size=17)
        return {"people.parquet": buffer.getvalue()}
    if kind == "tabs":
        return {"people.tsv": csv_bytes(frame, sep="\t")}
    if kind == "gz":
        return {"people.csv.gz": gzip.compress(csv_bytes(frame))}
    if kind == "parts":
        return {"a.csv": csv_bytes(frame[:20]), "b.csv": csv_bytes(frame[20:])}
    return {"people.csv": csv_bytes(frame)}


@pytest.mark.parametrize("kind", ["csv", "tabs", "gz", "parquet", "parts"])
def test_files_of_every_kind_give_the_same_data_set(kind: str, location: Location) -> None:
    frame = people(missing=True)
    options: dict[str, Any] = {**TOLD, "missing": "mean", "scale": "unit-variance"}
    for name, content in files_of(kind, frame).items():
        (location / "in").write(name, content)
    for source in (location / "in", Location(f"{location.url}/in/*", location.storage_options)):
        prepare(source, location / "out", "binary", **options, overwrite=True)
        (location / "frame").remove()
        prepare_frame(frame, location / "frame", "binary", **options)
        assert_alike(open_dataset(location / "out"), open_dataset(location / "frame"))


def test_unit_variance_is_found_in_the_first_pass_over_the_training_part(tmp_path: Path) -> None:
    frame = people(200, missing=True)
    options: dict[str, Any] = {"missing": "mean", "test_fraction": 0.3, "scale": "unit-variance"}
    prepare_frame(frame, tmp_path / "data", "binary", **TOLD, **options)
    train, test = (dense(stored(tmp_path / "data" / name)) for name in ("train", "test"))
    deviation = train.std(axis=0, dtype=np.float64)
    np.testing.assert_allclose(deviation, 1.0, rtol=1e-5)
    assert np.abs(test.std(axis=0) - 1).max() > 1e-3
    assert of_dataset(stored(tmp_path / "data" / "test")).fingerprint != "none"


@pytest.mark.parametrize(("missing", "age", "width"), [("mean", None, 4), ("zero", 0.0, 4), ("indicator", 0.0, 6)])
def test_missing_values_are_filled_as_asked(missing: str, age: float | None, width: int, tmp_path: Path) -> None:
    frame = people(missing=True)
    prepare_frame(frame, tmp_path / "data", "binary", label="y", features=["age", "city"], missing=missing)
    made = stored(tmp_path / "data")
    x = dense(made)
    assert x.shape[1] == width
    np.testing.assert_allclose(x[[3, 7], 0], frame["age"].mean() if age is None else age, rtol=1e-6)
    cities = [at for at, name in enumerate(names(made)) if name.startswith("city=")]
    assert not x[5, cities].any()
    if missing == "indicator":
        at = [names(made).index(f"{name} is missing") for name in ("age", "city")]
        assert [np.flatnonzero(x[:, k]).tolist() for k in at] == [[3, 7], [5]]


def test_a_missing_value_is_refused_with_its_row_and_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "people.csv").write_bytes(csv_bytes(people(missing=True)))
    asked = ("prepare", tmp_path / "people.csv", tmp_path / "data", "--problem", "binary", "--label", "y")
    assert_refused(
        call(capsys, *asked, "--drop", "id"), "people.csv, row 3 (counted from 0), column 'age'", "--missing"
    )
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["--label", "id, age, city"]),
        (["--label", "z"], ["no column 'z'", "id, age, city"]),
        (["--label", "y", "--max-levels", "50"], ["column 'id'", "more than 50", "--drop id"]),
        (["--label", "y", "--drop", "y"], ["dropped and used"]),
        (["--label", "y", "--missing", "guess"], ["missing must be one of"]),
        (["--label", "y", "--group", "id"], ["single rows"]),
        (["--label", "y", "--labels", "y.npy"], ["--labels"]),
    ],
)
def test_wrong_options_are_refused(
    options: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "people.csv").write_bytes(csv_bytes(people()))
    ran = call(capsys, "prepare", tmp_path / "people.csv", tmp_path / "data", "--problem", "binary", *options)
    assert_refused(ran, *words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,y\n" + "3,1\n2,0\n" * 99 + "x,0\n", ["'a'", "'x'", "--categorical a"]),
        ("a,y\n1,0\n2\n", ["columns"]),
        ("a,a,y\n1,2,0\n", ["two columns", "'a'"]),
        ("a,y\n1,0\n2,\n", ["row 1", "'y'", "label is missing"]),
        ("a,y\ninf,0\n2,1\n", ["row 0", "'a'", "infinite"]),
        ("", ["empty"]),
    ],
)
def test_bad_csv_is_refused_with_the_column(
    content: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CSV_BYTES", "HEAD_BYTES"):  # types are inferred from the first block
        monkeypatch.setattr(tables, name, 400)
    (tmp_path / "bad.csv").write_text(content)
    with pytest.raises(InputError) as refused:
        prepare(tmp_path / "bad.csv", tmp_path / "data", "binary", label="y")
    for word in ["bad.csv", *words]:
        assert word in str(refused.value)


def test_hashed_and_categorical_columns(tmp_path: Path) -> None:
    frame = people()
    frame["age"] = frame["age"].astype(int)
    prepare_frame(
        frame, tmp_path / "data", "binary", label="y", features=["id", "age"], hashed=["id"], hash_bits=5,
        categorical=["age"],
    )  # fmt: skip
    made = stored(tmp_path / "data")
    x, ages = dense(made), sorted(frame["age"].astype(str).unique())
    assert names(made) == (*(f"id#{k}" for k in range(32)), *(f"age={age}" for age in ages))
    assert made.layout.sparse
    assert (x[:, :32].sum(axis=1) == 1).all()
    assert [ages[k] for k in x[:, 32:].argmax(axis=1)] == frame["age"].astype(str).tolist()


def test_weights_become_costs_and_groups_become_sequences(tmp_path: Path) -> None:
    frame = people().assign(sentence=np.repeat(np.arange(20), 3))
    prepare_frame(frame, tmp_path / "rows", "binary", label="y", drop=["id", "sentence"], weight="cost")
    np.testing.assert_array_equal(stored(tmp_path / "rows").read(0).shard.cost, frame["cost"])
    prepare_frame(frame, tmp_path / "chain", "chain", label="y", features=["age", "city"], group="sentence")
    made = stored(tmp_path / "chain")
    assert (made.n_examples, made.n_rows) == (20, 60)


def test_a_group_that_comes_back_is_refused(tmp_path: Path) -> None:
    frame = people().assign(sentence=np.tile(np.arange(20), 3))
    told = {"label": "y", "features": ["age", "city"], "group": "sentence"}
    with pytest.raises(InputError, match=r"row 20 .*'sentence': sequence 0 comes back"):
        prepare_frame(frame, tmp_path / "chain", "chain", **told)


def test_appended_rows_are_made_like_those_that_are_there(tmp_path: Path) -> None:
    frame = people()
    prepare_frame(frame[:40], tmp_path / "data", "binary", **TOLD, scale="unit-variance")
    before = of_dataset(stored(tmp_path / "data"))
    odd = frame[40:].assign(city="Ulm")  # unknown to the first rows
    prepare_frame(odd, tmp_path / "data", "binary", scale="unit-variance", append=True)
    made = stored(tmp_path / "data")
    assert of_dataset(made).fingerprint == before.fingerprint
    rows = dense(made)[40:] * before.factors
    assert not rows[:, 1:4].any()
    np.testing.assert_allclose(rows[:, 0], odd["age"], rtol=1e-6)


def test_a_constant_column_stays_as_it_is(tmp_path: Path) -> None:
    frame = people().assign(same=0.1)
    prepare_frame(frame, tmp_path / "data", "binary", label="y", features=["age", "same"], scale="unit-variance")
    np.testing.assert_array_equal(dense(stored(tmp_path / "data"))[:, 1], np.float32(0.1))


def test_without_pyarrow_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(arrow_module.importlib, "import_module", missing)
    (tmp_path / "people.csv").write_bytes(csv_bytes(people()))
    with pytest.raises(InputError, match=r"pip install pyarrow"):
        prepare(tmp_path / "people.csv", tmp_path / "data", "binary", label="y")
