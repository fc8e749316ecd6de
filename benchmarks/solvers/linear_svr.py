"""scikit-learn's LinearSVR: liblinear's dual coordinate descent for the ε-insensitive loss."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from benchmarks.case import Case
from benchmarks.objective import Solution
from benchmarks.solvers.base import Peer, stopped_early


class LinearSVR(Peer):
    name: ClassVar[str] = "LinearSVR"
    package: ClassVar[str] = "scikit-learn"
    kinds: ClassVar[tuple[str, ...]] = ("regression",)
    effort: ClassVar[str] = "max_iter"

    def ready(self, case: Case) -> Callable[[float], Any]:
        from sklearn import svm

        wide = case.x.astype(np.float64)
        told = {"C": case.C, "epsilon": case.problem.epsilon, "fit_intercept": False, "tol": 1e-12, "random_state": 0}

        def fit(effort: float) -> Any:
            with stopped_early():
                return svm.LinearSVR(max_iter=int(effort), **told).fit(wide, case.y)

        return fit

    def solution(self, case: Case, fitted: Any) -> Solution:  # noqa: ARG002
        return Solution(fitted.coef_.reshape(-1))
