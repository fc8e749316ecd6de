"""scikit-learn's LinearSVC: liblinear's dual coordinate descent, hinge loss or Crammer-Singer, one thread."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from benchmarks.case import Case
from benchmarks.objective import Solution
from benchmarks.solvers.base import Iterations, Ladder, Peer, Tolerance, stopped_early


class LinearSVC(Peer):
    """Crammer-Singer ignores max_iter, so its effort is the tolerance."""

    name: ClassVar[str] = "LinearSVC"
    package: ClassVar[str] = "scikit-learn"
    kinds: ClassVar[tuple[str, ...]] = ("binary", "multiclass")
    effort: ClassVar[str] = "max_iter (two classes) or tol"

    def ladder(self, case: Case) -> Ladder:
        return Iterations() if case.kind == "binary" else Tolerance()

    def ready(self, case: Case) -> Callable[[float], Any]:
        from sklearn import svm

        wide, shared = case.x.astype(np.float64), {"C": case.C, "fit_intercept": False, "random_state": 0}

        def fit(effort: float) -> Any:
            with stopped_early():
                if case.kind == "binary":
                    return svm.LinearSVC(loss="hinge", tol=1e-12, max_iter=int(effort), **shared).fit(wide, case.y)
                return svm.LinearSVC(multi_class="crammer_singer", tol=effort, **shared).fit(wide, case.y)

        return fit

    def solution(self, case: Case, fitted: Any) -> Solution:  # noqa: ARG002
        return Solution(fitted.coef_.reshape(-1))
