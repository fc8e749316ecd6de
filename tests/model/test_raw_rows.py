"""Predictions straight from rows: of tables, text and arrays, labelled or not, one or many."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import zarr

import distdual
from distdual.data.prepare.api import prepare, prepare_arrays, prepare_frame
from distdual.errors import InputError
from tests.build import examples
from tests.shell import Ran, assert_refused, call

LABELS = np.array(["no", "yes"])


def flats(n: int = 300) -> pd.DataFrame:
    """Rents that depend on the size and on the part of the city."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.uniform(20, 120, n), "part": rng.choice(["north", "south", "west"], n)})
    frame["dear"] = LABELS[(frame["size"] / 40 + (frame["part"] == "north") + rng.normal(size=n) / 5 > 2.0).astype(int)]
    frame.loc[[4, 9], "size"] = np.nan
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rows")
    frame = flats()
    prepare_frame(frame, made / "flats", "binary", label="dear", missing="mean", scale="unit-variance")
    train(made / "flats", made / "table-model")
    frame.to_csv(made / "flats.csv", index=False)
    x, y, *_ = examples(3, 90, 4)
    prepare_arrays(x, LABELS[y], made / "points", "binary", scale="unit-variance")
    train(made / "points", made / "array-model")
    return made


def train(data: Path, model: Path) -> None:
    problem = {"kind": "binary", "bias": 1.0}
    distdual.train({"data": {"url": str(data)}, "problem": problem, "output": {"url": str(model)}})


def run(capsys: Any, model: Path, data: Path, out: Path, *options: Any) -> Ran:
    ran = call(capsys, "predict", model, data, "--out", out, *options)
    assert ran.code == 0, ran.err
    return ran


def test_the_raw_table_has_the_score_of_its_data_set(folder: Path, capsys: Any, tmp_path: Path) -> None:
    ran = run(capsys, folder / "table-model", folder / "flats.csv", tmp_path / "out.csv")
    score = distdual.predict(folder / "table-model", folder / "flats").score
    assert score is not None
    assert f"accuracy {score['accuracy']:.4f}" in ran.out
    assert score["accuracy"] > 0.85
    assert len(pd.read_csv(tmp_path / "out.csv")) == 300


def test_unlabelled_rows_and_one_row_have_the_same_predictions(folder: Path, capsys: Any, tmp_path: Path) -> None:
    known = distdual.predict(folder / "table-model", folder / "flats").labels
    rows = flats().drop(columns="dear")[["part", "size"]].assign(more=1)
    rows.to_parquet(tmp_path / "rows.parquet")
    ran = run(capsys, folder / "table-model", tmp_path / "rows.parquet", tmp_path / "out.parquet")
    assert "accuracy" not in ran.out
    assert pq.read_table(tmp_path / "out.parquet")["prediction"].to_pylist() == known.tolist()
    rows[7:8].to_csv(tmp_path / "one.csv", index=False)
    run(capsys, folder / "table-model", tmp_path / "one.csv", tmp_path / "one.txt")
    assert (tmp_path / "one.txt").read_text() == f"{known[7]}\n"


def test_an_unknown_category_is_no_category(folder: Path) -> None:
    rows = pd.DataFrame({"size": [50.0, 50.0], "part": ["east", None]})
    found = distdual.predict(folder / "table-model", rows, scores=True)
    assert found.scores is not None
    assert found.scores[0] == found.scores[1]


def test_a_table_without_a_column_is_refused(folder: Path, capsys: Any, tmp_path: Path) -> None:
    flats().drop(columns="part").to_csv(tmp_path / "rows.csv")
    ran = call(capsys, "predict", folder / "table-model", tmp_path / "rows.csv", "--out", tmp_path / "out.csv")
    assert_refused(ran, "no column 'part'")
    assert not list(tmp_path.glob("out*"))


def test_arrays_are_no_substitute_for_a_table_and_a_table_for_arrays(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 4)))
    with pytest.raises(InputError, match="named columns"):
        distdual.predict(folder / "table-model", tmp_path / "x.npy")
    with pytest.raises(InputError, match="features without names"):
        distdual.predict(folder / "array-model", folder / "flats.csv")


def write_points(kind: str, tmp_path: Path, x: np.ndarray, y: np.ndarray | None) -> Path:
    place = tmp_path / f"rows.{kind}"
    if kind == "npz":
        np.savez(place, x=x, **({} if y is None else {"y": LABELS[y]}))
    elif kind == "npy":
        np.save(place, x)
    elif kind == "zarr":
        zarr.save_array(str(place), x)
    else:
        told = [" ".join(f"{k + 1}:{value!r}" for k, value in enumerate(row)) for row in x.tolist()]
        labels = [""] * len(x) if y is None else [f"{label} " for label in y]
        place.write_text("".join(f"{label}{row}\n" for label, row in zip(labels, told, strict=True)))
    return place


@pytest.mark.parametrize("n", [90, 1])
@pytest.mark.parametrize("kind", ["npz", "npy", "zarr", "svmlight"])
def test_rows_of_arrays_are_scaled_like_the_training_data(kind: str, n: int, folder: Path, tmp_path: Path) -> None:
    x = examples(3, 90, 4).x
    known = distdual.predict(folder / "array-model", folder / "points").labels
    found = distdual.predict(folder / "array-model", write_points(kind, tmp_path, x[:n], None))
    assert (found.labels.tolist(), found.score) == (known[:n].tolist(), None)


def test_labelled_rows_have_a_score(folder: Path, tmp_path: Path) -> None:
    x, y, *_ = examples(3, 90, 4)
    found = distdual.predict(folder / "array-model", write_points("npz", tmp_path, x, y))
    assert found.score == distdual.predict(folder / "array-model", folder / "points").score


def test_rows_with_too_many_features_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="5 features, but the model was trained with 4"):
        distdual.predict(folder / "array-model", write_points("svmlight", tmp_path, np.ones((2, 5)), None))


def test_arrays_are_chosen_where_a_file_has_others(folder: Path, capsys: Any, tmp_path: Path) -> None:
    x, y, *_ = examples(3, 90, 4)
    np.savez(tmp_path / "all.npz", train_x=x, train_y=LABELS[y], ids=np.arange(90), y=np.zeros(3))
    plain = call(capsys, "prepare", tmp_path / "all.npz", tmp_path / "data", "--problem", "binary")
    assert_refused(plain, "'train_x'", "--x and --y")
    options: dict[str, Any] = {"x": "train_x", "y": "train_y"}
    (made,) = prepare(tmp_path / "all.npz", tmp_path / "data", "binary", **options, scale="unit-variance")
    assert made.n_examples == 90
    known = distdual.predict(folder / "array-model", folder / "points")
    found = distdual.predict(folder / "array-model", tmp_path / "all.npz", **options)
    assert (found.labels.tolist(), found.score) == (known.labels.tolist(), known.score)


def test_zarr_arrays_are_prepared(location: Any) -> None:
    x, y, *_ = examples(3, 90, 4)
    from distdual.data.zarr_store import zarr_store

    group = zarr.create_group(zarr_store(location / "plain", read_only=False))
    group.create_array("x", data=x, chunks=(7, 2))
    group.create_array("truth", data=y)
    (made,) = prepare(location / "plain", location / "data", "binary", y="truth")
    assert (made.n_examples, made.n_features) == (90, 4)
    (again,) = prepare(location / "plain" / "x", location / "again", "binary", labels=[location / "plain" / "truth"])
    assert again.n_examples == 90
    with pytest.raises(InputError, match="plain Zarr array"):
        distdual.SVC(storage_options=location.storage_options).fit(location / "plain" / "x")


def test_scores_and_classes_are_written(folder: Path, capsys: Any, tmp_path: Path) -> None:
    run(capsys, folder / "table-model", folder / "flats.csv", tmp_path / "out.csv", "--scores", "--top", 2)
    found = pd.read_csv(tmp_path / "out.csv")
    assert found.columns.tolist()[:4] == ["prediction", "score", "class 1", "score of class 1"]
    assert (found["prediction"] == LABELS[(found["score"] > 0).astype(int)]).all()
    assert (found["class 1"] == found["prediction"]).all()
    run(capsys, folder / "table-model", folder / "flats", tmp_path / "out.zarr", "--scores")
    group: Any = zarr.open_group(str(tmp_path / "out.zarr"), mode="r")
    np.testing.assert_allclose(group["score"][:], found["score"], rtol=1e-5)
    labels = np.array(group["prediction"].attrs["labels"])
    assert labels[group["prediction"][:]].tolist() == found["prediction"].tolist()


@pytest.mark.parametrize(
    ("options", "out", "words"),
    [
        (["--probabilities"], "out.csv", ["not calibrated"]),
        (["--scores"], "out.txt", [".parquet"]),
        (["--top", "3"], "out.csv", ["from 1 to the 2 classes"]),
    ],
)
def test_what_cannot_be_written_is_refused(
    options: list[str], out: str, words: list[str], folder: Path, capsys: Any, tmp_path: Path
) -> None:
    ran = call(capsys, "predict", folder / "table-model", folder / "flats.csv", "--out", tmp_path / out, *options)
    assert_refused(ran, *words)
    assert not list(tmp_path.iterdir())


def test_data_are_prepared_like_a_model(folder: Path, tmp_path: Path) -> None:
    prepare(folder / "flats.csv", tmp_path / "like", "binary", like=folder / "table-model")
    here, there = (distdual.predict(folder / "table-model", place) for place in (folder / "flats", tmp_path / "like"))
    assert there.labels.tolist() == here.labels.tolist()
    assert there.score == here.score
    one = flats()[:1]
    prepare_frame(one, tmp_path / "one", "binary", like=folder / "table-model")
    assert distdual.predict(folder / "table-model", tmp_path / "one").labels.tolist() == here.labels[:1].tolist()


def test_a_model_becomes_an_estimator_and_an_estimator_a_model(folder: Path, tmp_path: Path) -> None:
    known = distdual.predict(folder / "table-model", folder / "flats", scores=True)
    estimator = distdual.load_model(str(folder / "table-model")).to_estimator()
    np.testing.assert_allclose(estimator.decision_function(flats()), known.scores, rtol=1e-5, atol=1e-6)
    assert estimator.feature_names_in_.tolist() == ["size", "part=north", "part=south", "part=west"]
    one = [{"size": 50, "part": "south"}]
    assert estimator.predict(one)[0] == distdual.predict(folder / "table-model", pd.DataFrame(one)).labels[0]
    fitted = distdual.SVC().fit(str(folder / "flats"))
    fitted.save(tmp_path / "saved")
    assert distdual.verify(str(tmp_path / "saved"), str(folder / "flats")).certified
    again = distdual.SVC.from_model(tmp_path / "saved")
    np.testing.assert_array_equal(again.coef_, fitted.coef_)
    assert (again.predict(flats()) == fitted.predict(str(folder / "flats"))).all()
    with pytest.raises(InputError, match=r"use distdual\.SVC"):
        distdual.SVR.from_model(tmp_path / "saved")


def test_a_frame_fitted_directly_gives_its_names_to_the_model(tmp_path: Path) -> None:
    frame = flats().dropna()
    x = frame[["size"]].assign(north=(frame["part"] == "north").astype(float))
    estimator = distdual.SVC(gap=0.1, C=0.01).fit(x, frame["dear"])
    estimator.save(tmp_path / "model")
    x.to_csv(tmp_path / "rows.csv", index=False)
    assert distdual.load_model(tmp_path / "model").feature_names == ("size", "north")
    assert (distdual.predict(tmp_path / "model", tmp_path / "rows.csv").labels == estimator.predict(x)).all()
