"""LinearSVC and LinearSVR against scikit-learn's."""

import inspect
from typing import Any

import numpy as np
import pytest
import sklearn.svm
from sklearn.datasets import make_classification, make_regression

import distdual

X, Y = make_classification(200, 8, n_informative=5, random_state=0)


def objective(model: Any, C: float) -> float:
    margins = (2 * Y - 1) * model.decision_function(X)
    squares = np.sum(model.coef_**2) + np.sum(model.intercept_**2)
    return float(squares / 2 + C * np.maximum(0, 1 - margins).sum())


def test_the_objective_is_that_of_scikit_learn() -> None:
    theirs = sklearn.svm.LinearSVC(loss="hinge", C=0.1, max_iter=100_000, tol=1e-8).fit(X, Y)
    ours = distdual.LinearSVC(C=0.1, tol=1e-6).fit(X, Y)
    assert objective(ours, 0.1) == pytest.approx(objective(theirs, 0.1), rel=1e-4)
    assert ours.certificate_["gap"] <= ours.certificate_["target"] == 1e-6


def test_regression_agrees() -> None:
    x, y = make_regression(100, 4, noise=1.0, random_state=0)
    theirs = sklearn.svm.LinearSVR(C=1.0, max_iter=1_000_000, tol=1e-10).fit(x, y)
    ours = distdual.LinearSVR(C=1.0, tol=1e-8).fit(x, y)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), atol=0.02 * y.std())


@pytest.mark.parametrize("name", ["LinearSVC", "LinearSVR"])
def test_all_parameters_of_scikit_learn_are_known(name: str) -> None:
    parameters = inspect.signature(getattr(sklearn.svm, name)).parameters
    assert set(parameters) <= set(getattr(distdual, name)().get_params())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "squared_hinge"}, "LinearSVC: loss must be 'hinge', got 'squared_hinge'; the squared hinge loss is"),
        ({"penalty": "l1"}, "LinearSVC: penalty must be 'l2', got 'l1'"),
        ({"dual": False}, "LinearSVC: dual must be True or 'auto', got False; distdual solves the dual"),
        ({"multi_class": "ovr"}, "for one-vs-rest, use sklearn.multiclass.OneVsRestClassifier"),
        ({"tol": 0.0}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be"),
    ],
)
def test_what_it_cannot_do_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distdual.LinearSVC(**options).fit(X, Y)


def test_a_model_folder_and_back(tmp_path: Any) -> None:
    model = distdual.LinearSVC(C=0.1, tol=1e-2).fit(X, Y)
    model.save(tmp_path / "model")
    again = distdual.LinearSVC.from_model(tmp_path / "model")
    assert again.tol == 1e-2
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert isinstance(distdual.SVC.from_model(tmp_path / "model"), distdual.SVC)
