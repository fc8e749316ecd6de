"""scikit-learn's own checks of an estimator."""

import warnings
from typing import Any

import pytest
from sklearn.exceptions import SkipTestWarning
from sklearn.svm import LinearSVC, LinearSVR
from sklearn.utils.estimator_checks import (
    check_estimator,
    check_estimator_cloneable,
    check_estimator_repr,
    check_get_params_invariance,
    check_mixin_order,
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
    check_set_params,
    check_valid_tag_types,
    parametrize_with_checks,
)

import distdual

EQUIVALENCE = {
    "check_sample_weight_equivalence_on_dense_data": "asks for 7 digits, the default gap is 1e-3",
    "check_sample_weight_equivalence_on_sparse_data": "asks for 7 digits, the default gap is 1e-3",
}

TEXTS = {"check_classifiers_classes": "labels that are texts have no order of their own: OrdinalSVC asks for one"}

OF_ANY_INPUT = [
    check_estimator_cloneable,
    check_estimator_repr,
    check_get_params_invariance,
    check_mixin_order,
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
    check_set_params,
    check_valid_tag_types,
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # features around 100, never scaled
@pytest.mark.filterwarnings("ignore:.*n_components has no effect:UserWarning")  # the checks set it on every estimator
@parametrize_with_checks(
    [
        distdual.SVC(),
        distdual.SVR(),
        distdual.LinearSVC(),
        distdual.LinearSVR(),
        distdual.SVMRank(),
        distdual.OrdinalSVC(),
        distdual.MultivariateSVC(),
    ],
    expected_failed_checks=lambda estimator: (
        EQUIVALENCE | (TEXTS if isinstance(estimator, distdual.OrdinalSVC) else {})
    ),
)
def test_check(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("estimator", [distdual.SVC(gap=1e-10), distdual.SVR(gap=1e-10)], ids=["SVC", "SVR"])
@pytest.mark.parametrize(
    "check", [check_sample_weight_equivalence_on_dense_data, check_sample_weight_equivalence_on_sparse_data]
)
def test_a_weight_of_two_equals_a_repeated_example_for_a_small_gap(estimator: Any, check: Any) -> None:
    check(type(estimator).__name__, estimator)


LISTS = [distdual.ChainSVM(), distdual.LatentSVM()]


@pytest.mark.parametrize("estimator", LISTS, ids=["ChainSVM", "LatentSVM"])
@pytest.mark.parametrize("check", OF_ANY_INPUT)
def test_estimators_of_lists_pass_the_checks_that_need_no_data(estimator: Any, check: Any) -> None:
    check(type(estimator).__name__, estimator)


@pytest.mark.parametrize("estimator", LISTS, ids=["ChainSVM", "LatentSVM"])
def test_estimators_of_lists_declare_that_a_matrix_is_not_enough(estimator: Any) -> None:
    """scikit-learn then leaves out its checks on matrices, and says so."""
    with pytest.warns(SkipTestWarning, match="Can't test estimator"):
        results = check_estimator(estimator)
    assert {result["status"] for result in results} == {"passed"}


@pytest.mark.parametrize("theirs", [LinearSVC(), LinearSVR()], ids=["LinearSVC", "LinearSVR"])
def test_scikit_learns_own_estimators_fail_the_same_checks(theirs: Any) -> None:
    """Expected failures above are among those of scikit-learn's own estimators."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(theirs, on_fail=None, on_skip=None)
    assert set(EQUIVALENCE) <= {result["check_name"] for result in results if result["status"] == "failed"}
