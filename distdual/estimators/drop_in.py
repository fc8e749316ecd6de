"""LinearSVC and LinearSVR: SVC and SVR under scikit-learn's names, with its parameters.

A parameter that does not apply to the dual of the hinge loss is refused in `fit`, with what to use instead.
"""

import math
from typing import Any

from distdual.config import SolverConfig
from distdual.errors import InputError
from distdual.estimators.base import DualEstimator
from distdual.estimators.classifier import SVC
from distdual.estimators.regressor import SVR

DUAL = (True, "auto")
SOLVER_NAMES = {"C": "C", "gap": "tol", "max_passes": "max_iter", "max_seconds": "max_seconds"}


class LinearSVC(SVC):
    """`SVC` with the parameters of `sklearn.svm.LinearSVC`, to replace it without other changes.

    - `penalty`: "l2"
    - `loss`: "hinge"; the squared hinge loss, scikit-learn's default, is a different problem
    - `dual`: "auto" or True
    - `tol`: the relative duality gap to prove, as `gap` of SVC
    - `multi_class`: "crammer_singer"; for one-vs-rest, wrap it in `sklearn.multiclass.OneVsRestClassifier`
    - `max_iter`: the largest number of passes over the data, as `max_passes` of SVC
    - `C`, `fit_intercept`, `intercept_scaling`, `class_weight`, `verbose`, `random_state`: as for SVC
    - `max_seconds`, `warm_start`, `callbacks`, `patience`, `client`, `storage_options`: as for SVC, not in scikit-learn

    Attributes are those of SVC.
    """

    _solver_names = SOLVER_NAMES

    def __init__(
        self,
        penalty: str = "l2",
        loss: str = "hinge",
        *,
        dual: Any = "auto",
        tol: float = 1e-3,
        C: float = 1.0,
        multi_class: str = "crammer_singer",
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Any = None,
        verbose: int = 0,
        random_state: Any = None,
        max_iter: int = 1000,
        max_seconds: float = math.inf,
        warm_start: bool = False,
        callbacks: Any = (),
        patience: int = 0,
        client: Any = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        self.penalty = penalty
        self.loss = loss
        self.dual = dual
        self.tol = tol
        self.C = C
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.verbose = verbose
        self.random_state = random_state
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.patience = patience
        self.client = client
        self.storage_options = storage_options

    def _solver_config(self) -> SolverConfig:
        expect(self, "penalty", ("l2",), "")
        expect(self, "loss", ("hinge",), "the squared hinge loss is a different problem")
        expect(self, "dual", DUAL, "distdual solves the dual")
        expect(self, "multi_class", ("crammer_singer",), "for one-vs-rest, use sklearn.multiclass.OneVsRestClassifier")
        return super()._solver_config()


class LinearSVR(SVR):
    """`SVR` with the parameters of `sklearn.svm.LinearSVR`, to replace it without other changes.

    - `loss`: "epsilon_insensitive"; its square is a different problem
    - `epsilon`: errors up to this have no loss; 0 as in scikit-learn
    - `dual`, `tol`, `max_iter` and the others: as for LinearSVC

    Attributes are those of SVR.
    """

    _solver_names = SOLVER_NAMES

    def __init__(
        self,
        *,
        epsilon: float = 0.0,
        tol: float = 1e-3,
        C: float = 1.0,
        loss: str = "epsilon_insensitive",
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        dual: Any = "auto",
        verbose: int = 0,
        random_state: Any = None,
        max_iter: int = 1000,
        max_seconds: float = math.inf,
        warm_start: bool = False,
        callbacks: Any = (),
        patience: int = 0,
        client: Any = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.tol = tol
        self.C = C
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.dual = dual
        self.verbose = verbose
        self.random_state = random_state
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.patience = patience
        self.client = client
        self.storage_options = storage_options

    def _solver_config(self) -> SolverConfig:
        expect(self, "loss", ("epsilon_insensitive",), "the squared loss is a different problem")
        expect(self, "dual", DUAL, "distdual solves the dual")
        return super()._solver_config()


def expect(estimator: DualEstimator, name: str, allowed: tuple[Any, ...], advice: str) -> None:
    """Refuse a value that scikit-learn knows and distdual does not have."""
    value = getattr(estimator, name)
    if value not in allowed:
        choice = " or ".join(repr(each) for each in allowed)
        advice = f"; {advice}" if advice else ""
        raise InputError(f"{type(estimator).__name__}: {name} must be {choice}, got {value!r}{advice}")
