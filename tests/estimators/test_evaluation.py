"""Scores on an `eval_set` while an estimator is fitted, and the stop once they no longer improve."""

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from distdual.report.round_log import Round
from tests.build import examples

TRAIN, OTHER = examples(5, 300, 8), examples(6, 120, 8)
NAMES = np.array(["no", "yes"])
LINES: list[Round] = []


def test_the_last_score_is_that_of_the_fitted_estimator() -> None:
    model = distdual.SVC(0.1).fit(TRAIN.x, NAMES[TRAIN.y], eval_set=(OTHER.x, NAMES[OTHER.y]))
    found = model.evaluations_
    assert found[-1]["accuracy"] == pytest.approx(model.score(OTHER.x, NAMES[OTHER.y]))
    assert [line["passes"] for line in found] == sorted({line["passes"] for line in found})
    np.testing.assert_array_equal(model.coef_, distdual.SVC(0.1).fit(TRAIN.x, NAMES[TRAIN.y]).coef_)


def test_regression_and_several_classes() -> None:
    y = TRAIN.x[:, 0] * 2.0
    model = distdual.SVR(1.0).fit(TRAIN.x, y, eval_set=(OTHER.x, OTHER.x[:, 0] * 2.0))
    errors = np.abs(model.predict(OTHER.x) - OTHER.x[:, 0] * 2.0)
    assert model.evaluations_[-1]["absolute_error"] == pytest.approx(errors.mean())
    labels = np.arange(300) % 3
    several = distdual.SVC(0.1, max_passes=3, gap=0.5).fit(TRAIN.x, labels, eval_set=(OTHER.x, np.arange(120) % 2))
    assert 0.0 <= several.evaluations_[-1]["accuracy"] <= 1.0


def test_patience_ends_a_fit_that_no_longer_improves() -> None:
    model = distdual.SVC(10.0, gap=1e-12, patience=1).fit(TRAIN.x, TRAIN.y, eval_set=(OTHER.x[:1], OTHER.y[:1]))
    found = model.certificate_
    assert found["stopped_by"] == "validation"
    assert found["reason"] == "the validation score accuracy has not improved for 1 evaluation"
    assert {line["accuracy"] for line in model.evaluations_} == {0.0}


def test_a_data_set_is_scored_with_a_data_set(tmp_path: Path) -> None:
    prepare_arrays(TRAIN.x, TRAIN.y, tmp_path / "train", "binary")
    prepare_arrays(OTHER.x, OTHER.y, tmp_path / "test", "binary")
    model = distdual.SVC(0.1).fit(tmp_path / "train", eval_set=tmp_path / "test")
    assert model.evaluations_[-1]["accuracy"] == pytest.approx(model.score(tmp_path / "test"))


def test_callbacks_receive_every_line() -> None:
    LINES.clear()
    model = distdual.LinearSVC(callbacks=[LINES.append]).fit(TRAIN.x, TRAIN.y, eval_set=(OTHER.x, OTHER.y))
    assert len([line for line in LINES if line.scores]) == len(model.evaluations_)
    assert LINES[-1].lower <= LINES[-1].upper < math.inf


def test_callbacks_receive_the_lines_of_all_estimators() -> None:
    LINES.clear()
    bags = TRAIN.x.reshape(100, 3, 8)
    distdual.LatentSVM(0.1, callbacks=[LINES.append]).fit(list(bags), TRAIN.y[::3])
    assert LINES


def test_scores_are_shown(capsys: Any) -> None:
    distdual.SVC(0.1, verbose=1).fit(TRAIN.x, TRAIN.y, eval_set=(OTHER.x, OTHER.y))
    assert "pass=2 evaluation: accuracy=0." in capsys.readouterr().out


def test_clones_and_pickles_keep_the_parameters() -> None:
    model = distdual.LinearSVR(patience=3).fit(TRAIN.x, TRAIN.x[:, 0], eval_set=(OTHER.x, OTHER.x[:, 0]))
    assert clone(model).patience == 3
    assert pickle.loads(pickle.dumps(model)).evaluations_ == model.evaluations_


@pytest.mark.parametrize(
    ("options", "eval_set", "message"),
    [
        ({"patience": 2}, None, "SVC: patience needs examples to score, the eval_set of fit"),
        ({"patience": -1}, (OTHER.x, OTHER.y), "SVC: patience must be an integer of at least 0, got -1"),
        ({}, (OTHER.x, OTHER.y, OTHER.y), r"eval_set must be a tuple \(X, y\)"),
        ({}, (OTHER.x, OTHER.y + 5), "y contains the unknown label 5"),
        ({}, (OTHER.x[:, :5], OTHER.y), "X has 5 features, but SVC is expecting 8"),
        ({"kernel": "rbf"}, (OTHER.x, OTHER.y), "an evaluation of each pass is not possible with an exact kernel"),
    ],
)
def test_what_cannot_be_scored_is_refused(options: Any, eval_set: Any, message: str) -> None:
    with pytest.raises((InputError, ValueError), match=message):
        distdual.SVC(0.1, **options).fit(TRAIN.x, TRAIN.y, eval_set=eval_set)


def test_arrays_do_not_score_a_prepared_data_set_that_was_scaled(tmp_path: Path) -> None:
    prepare_arrays(TRAIN.x, TRAIN.y, tmp_path / "train", "binary", scale="unit-rows")
    with pytest.raises(InputError, match="prepared like the one to train on"):
        distdual.SVC(0.1).fit(tmp_path / "train", eval_set=(OTHER.x, OTHER.y))
