"""Probabilities come from scores of examples that the scoring model has not seen, and stay with the model."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from distdual.model.calibration import fit
from distdual.scan.cv_folds import folds_of
from tests.build import examples
from tests.shell import assert_refused, call

N, FOLDS, SEED = 150, 3, 7
MADE = examples(2, N, 4, flip=0.2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrate")
    prepare_arrays(MADE.x, np.where(MADE.y == 1, "yes", "no"), str(folder / "data"), "binary", shard_bytes=800)
    distdual.train(config(folder, "model"))
    return folder


def config(folder: Path, name: str, **problem: Any) -> dict[str, Any]:
    return {
        "data": {"url": str(folder / "data")},
        "problem": {"kind": "binary", "bias": 1.0, **problem},
        "solver": {"gap": 1e-6, "seed": SEED, "C": 0.1},
        "output": {"url": str(folder / name), "overwrite": True},
    }


def test_the_curve_is_that_of_models_which_never_saw_the_examples(trained: Path, tmp_path: Path) -> None:
    found = distdual.calibrate(str(trained / "model"), folds=FOLDS)
    fold, scores = folds_of(np.arange(N), FOLDS, SEED), np.empty(N)
    for number in range(FOLDS):
        kept = fold != number
        part = tmp_path / str(number)
        prepare_arrays(MADE.x[kept], np.where(MADE.y == 1, "yes", "no")[kept], str(part / "data"), "binary")
        w = distdual.train(config(part, "model")).model.w
        scores[~kept] = MADE.x[~kept] @ w[:-1] + w[-1]
    (curve,) = fit("sigmoid", scores, MADE.y, np.ones(N), 2)
    assert found.model.calibration is not None
    np.testing.assert_allclose(found.model.calibration.curves[0], curve, rtol=1e-2, atol=1e-3)
    assert found.certified
    assert len(found.gaps) == FOLDS


def test_the_certificate_still_verifies_and_covers_the_curve(trained: Path, capsys: Any) -> None:
    ran = call(capsys, "calibrate", trained / "model", "--folds", "2", "--method", "isotonic", "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["log_loss"] < np.log(2)
    assert distdual.verify(str(trained / "model")).certified
    file = trained / "model" / "calibration.json"
    file.write_text(file.read_text().replace('"folds": 2', '"folds": 3'))
    assert "calibration.json is not what training wrote" in distdual.verify(str(trained / "model")).findings[0]


def test_predictions_have_a_probability_for_each_class(trained: Path, tmp_path: Path, capsys: Any) -> None:
    distdual.calibrate(str(trained / "model"), folds=2)
    out = tmp_path / "out.csv"
    ran = call(capsys, "predict", trained / "model", trained / "data", "--out", out, "--probabilities")
    assert ran.code == 0
    rows = np.genfromtxt(out, delimiter=",", names=True, dtype=None, encoding=None)
    assert rows.dtype.names == ("prediction", "probability_no", "probability_yes")
    np.testing.assert_allclose(rows["probability_no"] + rows["probability_yes"], 1.0)
    found = distdual.predict(str(trained / "model"), str(trained / "data"), probabilities=True)
    assert found.probabilities is not None
    np.testing.assert_allclose(found.probabilities[:, 1], rows["probability_yes"])
    svc = distdual.SVC.from_model(str(trained / "model"))
    np.testing.assert_allclose(svc.predict_proba(MADE.x), found.probabilities, rtol=1e-5)


def test_a_new_fit_or_run_has_no_probabilities(trained: Path) -> None:
    distdual.calibrate(str(trained / "model"), folds=2)
    svc = distdual.SVC.from_model(str(trained / "model")).fit(MADE.x, MADE.y)
    with pytest.raises(AttributeError) as caught:
        svc.predict_proba(MADE.x)
    assert "CalibratedClassifierCV" in str(caught.value.__cause__)
    distdual.train(config(trained, "model"))
    assert distdual.load_model(str(trained / "model")).calibration is None


@pytest.mark.parametrize("cuts", [[-0.5, 0.5], [0.0]], ids=["three", "two"])
def test_the_classes_of_a_multiclass_model_are_scaled_to_sum_to_one(cuts: list[float], tmp_path: Path) -> None:
    y = np.digitize(MADE.x[:, 0], cuts)
    prepare_arrays(MADE.x, y, str(tmp_path / "data"), "multiclass", shard_bytes=800)
    told = config(tmp_path, "model")
    told["problem"]["kind"] = "multiclass"
    distdual.train(told)
    distdual.calibrate(str(tmp_path / "model"), folds=2)
    found = distdual.predict(str(tmp_path / "model"), str(tmp_path / "data"), probabilities=True)
    assert found.probabilities is not None
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0)
    assert (found.probabilities.argmax(axis=1) == found.labels).mean() > 0.8


def test_what_cannot_be_calibrated_is_refused(trained: Path, tmp_path: Path, capsys: Any) -> None:
    assert_refused(call(capsys, "calibrate", trained / "model", "--folds", "1"), "folds go from 2")
    distdual.calibrate(str(trained / "model"), folds=2)
    svc = distdual.SVC(C=0.1).fit(MADE.x, MADE.y)
    svc.save(tmp_path / "arrays")
    assert_refused(call(capsys, "calibrate", tmp_path / "arrays"), "CalibratedClassifierCV")
    prepare_arrays(MADE.x, MADE.y * 1.5, str(tmp_path / "data"), "regression")
    told = config(tmp_path, "line")
    told["problem"]["kind"] = "regression"
    told["solver"]["gap"] = 0.1
    distdual.train(told)
    assert_refused(call(capsys, "calibrate", tmp_path / "line"), "regression", "binary and multiclass")
    shutil.copy(trained / "model" / "calibration.json", tmp_path / "line")
    with pytest.raises(InputError, match="a regression model gives no probabilities"):
        distdual.load_model(str(tmp_path / "line"))
