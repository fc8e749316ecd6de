"""What somebody meets who comes with a table and the habits of pandas and scikit-learn."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import distdual
from distdual.cli.info import describe
from distdual.data.prepare.api import prepare_arrays, prepare_frame
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.estimators import SVC
from tests.shell import assert_refused, call


def flats(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.uniform(20, 120, n), "part": rng.choice(["north", "west"], n)})
    frame["built"] = pd.to_datetime("1950-01-01") + pd.to_timedelta(rng.integers(0, 25_000, n), unit="D")
    frame["rent"] = 11 * frame["size"] + 250 * (frame["part"] == "north")
    frame.loc[3, "size"], frame.loc[4, "built"] = np.nan, pd.NaT
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set with a test part, a model of it, and the table."""
    made = tmp_path_factory.mktemp("newcomer")
    options: dict[str, Any] = {"label": "rent", "missing": "mean", "scale": "unit-variance", "test_fraction": 0.2}
    prepare_frame(flats(), made / "flats", "regression", **options)
    distdual.train(
        {
            "data": {"url": str(made / "flats" / "train")},
            "problem": {"kind": "regression", "bias": 1.0, "epsilon": 5.0},
            "output": {"url": str(made / "rents")},
        }
    )
    flats().to_csv(made / "flats.csv", index=False)
    return made


def test_rows_as_dicts_are_predicted_like_the_frame(folder: Path) -> None:
    rows = flats()[:6].drop(columns="rent")
    known = distdual.predict(folder / "rents", rows).labels
    assert distdual.predict(folder / "rents", rows.to_dict("records")).labels.tolist() == known.tolist()
    estimator = distdual.SVR.from_model(folder / "rents")
    assert estimator.predict(rows.to_dict("records")).tolist() == pytest.approx(known.tolist())
    with pytest.raises(InputError, match="row 1 has no value named 'part'"):
        estimator.predict([*rows[:1].to_dict("records"), {"size": 1.0, "built": None}])


def test_a_single_row_is_explained(folder: Path) -> None:
    estimator = distdual.SVR.from_model(folder / "rents")
    for row in (flats().iloc[0], dict(flats().iloc[0])):
        with pytest.raises(InputError, match=r"X is a single row; pass a data frame with one row, such as frame\[:1\]"):
            estimator.predict(row)


@pytest.mark.parametrize("column", ["part", "built"])
def test_a_column_without_numbers_is_named_with_what_encodes_it(column: str) -> None:
    frame = flats().dropna()
    for values in (frame[column], frame[column].astype("category")):
        table = frame[["size"]].assign(**{column: values})
        for x in (table, pa.Table.from_pandas(table)):
            with pytest.raises(InputError, match=f"SVC: column '{column}' holds .*OneHotEncoder.*prepare_frame"):
                SVC().fit(x, frame["rent"] > 700)


def test_categories_that_are_numbers_are_numbers() -> None:
    frame = pd.DataFrame({"a": pd.Categorical([1, 2, 3, 4])})
    assert SVC().fit(frame, [0, 0, 1, 1]).n_features_in_ == 1


def test_an_index_that_was_written_as_a_column_is_no_feature(tmp_path: Path, capsys: Any) -> None:
    flats().to_csv(tmp_path / "flats.csv")
    command = ["prepare", tmp_path / "flats.csv", tmp_path / "data", "--problem", "regression", "--label", "rent"]
    assert_refused(call(capsys, *command, "--missing", "mean"), "a column has no name", "--drop ''")
    ran = call(capsys, *command, "--missing", "mean", "--drop", "")
    assert ran.code == 0
    assert "60 examples, 4 features, 1 shard\n" in ran.out  # and no labels, which a regression has not


def test_values_that_were_not_in_training_are_told_once(folder: Path, caplog: Any) -> None:
    rows = flats()[:8].drop(columns="rent").assign(part="east")
    with caplog.at_level(logging.WARNING):
        distdual.predict(folder / "rents", rows)
    (record,) = caplog.records
    assert "column 'part' has values that the training rows lack, such as 'east'" in record.getMessage()
    caplog.clear()
    distdual.predict(folder / "rents", flats()[:8].drop(columns="rent"))
    assert not caplog.records


def test_one_prediction_is_no_predictions(folder: Path, tmp_path: Path, capsys: Any) -> None:
    flats()[:1].drop(columns="rent").to_csv(tmp_path / "one.csv", index=False)
    ran = call(capsys, "predict", folder / "rents", tmp_path / "one.csv", "--out", tmp_path / "out.txt")
    assert ran.out == f"1 prediction in {tmp_path / 'out.txt'}\n"


def test_info_names_the_features_of_data_sets_and_models(folder: Path, capsys: Any) -> None:
    for place in (folder / "flats" / "train", folder / "rents"):
        found = describe(Location(str(place)))
        assert found["feature_names"] == ["size", "part=north", "part=west", "built"]
        assert found["scale"] == "unit-variance"
        assert "size, part=north, part=west, built" in call(capsys, "info", place).out


def test_where_no_data_set_is_the_message_says_what_there_is(folder: Path, capsys: Any) -> None:
    assert_refused(call(capsys, "info", folder / "flats"), f"{folder}/flats/train and in {folder}/flats/test")
    with pytest.raises(InputError, match=r"flats\.csv: is a file, not a data set; .*`distdual prepare`"):
        distdual.SVR().fit(folder / "flats.csv")
    with pytest.raises(InputError, match="rents: there is no data set, but a model"):
        distdual.SVR().fit(folder / "rents")


def test_a_model_of_arrays_says_that_it_cannot_be_verified(tmp_path: Path) -> None:
    model = SVC().fit([[0.0], [1.0]], [0, 1])
    model.save(tmp_path / "model")
    with pytest.raises(InputError, match="fitted on arrays, which are not stored"):
        distdual.verify(tmp_path / "model")
    with pytest.raises(InputError, match="already holds a model; choose another place, or pass overwrite=True"):
        model.save(tmp_path / "model")
    model.save(tmp_path / "model", overwrite=True)


def test_models_and_results_are_shown_in_one_line(folder: Path) -> None:
    shown = repr(distdual.load_model(folder / "rents"))
    assert shown.startswith("<regression model: C=1, 5 weights, ")
    assert len(shown) < 120


def test_dir_lists_what_is_public_and_nothing_else() -> None:
    listed = {name for name in dir(distdual) if not name.startswith("__")}
    assert listed == set(distdual.__all__) - {"__version__"}
    assert {"prepare", "prepare_frame", "prepare_arrays", "export_onnx"} <= listed
    assert distdual.prepare_arrays is prepare_arrays
    assert all(getattr(distdual, name).__doc__ for name in listed)
