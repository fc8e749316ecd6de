"""Probabilities: curves as scikit-learn fits them, and a file that is checked."""

import numpy as np
import pytest
from sklearn.calibration import _sigmoid_calibration
from sklearn.isotonic import IsotonicRegression

from distdual.errors import InputError
from distdual.model.calibration import Calibration, Isotonic, Sigmoid, fit, fit_isotonic, fit_sigmoid

RNG = np.random.default_rng(3)
SCORES = RNG.normal(size=300) * 5.0
POSITIVE = RNG.random(300) < 1.0 / (1.0 + np.exp(0.3 - 0.7 * SCORES))
WEIGHT = RNG.uniform(0.0, 2.0, 300)


@pytest.mark.parametrize("weight", [np.ones(300), WEIGHT], ids=["alike", "weighted"])
def test_the_sigmoid_is_the_one_of_scikit_learn(weight):
    a, b = _sigmoid_calibration(SCORES, POSITIVE.astype(int), sample_weight=weight)
    found = fit_sigmoid(SCORES, POSITIVE, weight)
    np.testing.assert_allclose([found.slope, found.offset], [-a, -b], rtol=2e-3)


@pytest.mark.parametrize("weight", [np.ones(300), WEIGHT], ids=["alike", "weighted"])
def test_the_isotonic_curve_is_the_one_of_scikit_learn(weight):
    scores = np.round(SCORES, 1)  # with ties
    known = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, POSITIVE, weight)
    at = np.linspace(-20, 20, 501)
    np.testing.assert_allclose(fit_isotonic(scores, POSITIVE, weight).probabilities(at), known.predict(at), atol=1e-12)


@pytest.mark.parametrize("scores", [np.zeros(20), np.where(np.arange(20) < 10, -1e6, 1e6)], ids=["equal", "separable"])
def test_scores_without_noise_give_no_certainty(scores):
    found = fit_sigmoid(scores, np.arange(20) >= 10, np.ones(20))
    p = found.probabilities(scores)
    assert np.isfinite(p).all()
    assert 0.0 < p.min() <= p.max() < 1.0


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_probabilities_of_several_classes_sum_to_one(method):
    scores, y = RNG.normal(size=(60, 3)), RNG.integers(0, 3, 60).astype(np.int32)
    made = Calibration(method, fit(method, scores, y, np.ones(60), 3), 5, 0)
    found = made.probabilities(scores)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    alone = np.stack([made.curves[k].probabilities(scores[:, k]) for k in range(3)], axis=1)
    some = alone.sum(axis=1) > 0
    np.testing.assert_allclose(found[some], (alone / alone.sum(axis=1, keepdims=True))[some])
    assert Calibration.of_table(made.table(), 3, "file") == made


def test_a_row_that_no_class_claims_is_shared_by_all():
    none = Isotonic((0.0, 1.0), (0.0, 1.0))
    np.testing.assert_allclose(Calibration("isotonic", (none,) * 4, 2, 0).probabilities(np.full((1, 4), -1.0)), 0.25)


GOOD = Calibration("isotonic", (Isotonic((0.0, 1.0), (0.1, 0.9)),), 5, 0).table()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "magic"}, "method"),
        ({"curves": []}, "curves"),
        ({"curves": [{"slope": 1.0, "offset": 0.0}]}, "missing"),
        ({"curves": [{"score": [0.0, 0.0], "probability": [0.1, 0.9]}]}, "must rise"),
        ({"curves": [{"score": [0.0, 1.0], "probability": [0.9, 0.1]}]}, "must rise"),
        ({"curves": [{"score": [0.0, 1.0], "probability": [0.1, 1.5]}]}, "must rise"),
        ({"curves": [{"score": [0.0], "probability": [0.1, 0.9]}]}, "1 scores and 2"),
        ({"curves": [{"score": [float("nan"), 1.0], "probability": [0.1, 0.9]}]}, "finite number"),
        ({"folds": 0}, "folds"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused(change, words):
    with pytest.raises(InputError, match=words):
        Calibration.of_table({**GOOD, **change}, 1, "calibration.json")


def test_one_curve_is_not_enough_for_three_classes():
    with pytest.raises(InputError, match="a list of 3"):
        Calibration.of_table(GOOD, 3, "calibration.json")


def test_the_second_class_of_two_has_the_curve():
    made = Calibration("sigmoid", (Sigmoid(2.0, 0.0),), 5, 0)
    first, second = made.probabilities(np.array([1.0]))[0]
    assert second == pytest.approx(1 / (1 + np.exp(-2.0)))
    assert first == pytest.approx(1 - second)
