"""scikit-learn's SGDClassifier and SGDRegressor, averaged: stochastic gradients on 1/n Σ loss + 1/(2 C n) ||w||²."""

from collections.abc import Callable
from typing import Any, ClassVar

from benchmarks.case import Case
from benchmarks.objective import Solution
from benchmarks.solvers.base import Iterations, Ladder, Peer


def stochastic(case: Case, **told: Any) -> Any:
    """The model, with our objective."""
    from sklearn import linear_model

    shared = {
        "alpha": 1 / (case.C * len(case.y)),
        "fit_intercept": False,
        "tol": None,
        "average": True,
        "random_state": 0,
        **told,
    }
    if case.kind == "regression":
        loss = {"loss": "epsilon_insensitive", "epsilon": case.problem.epsilon}
        return linear_model.SGDRegressor(**loss, **shared)
    return linear_model.SGDClassifier(loss="hinge", **shared)


class Sgd(Peer):
    name: ClassVar[str] = "SGD"
    package: ClassVar[str] = "scikit-learn"
    kinds: ClassVar[tuple[str, ...]] = ("binary", "regression")
    effort: ClassVar[str] = "max_iter"

    def ladder(self, case: Case) -> Ladder:  # noqa: ARG002
        return Iterations(1024)

    def ready(self, case: Case) -> Callable[[float], Any]:
        return lambda effort: stochastic(case, max_iter=int(effort)).fit(case.x, case.y)

    def solution(self, case: Case, fitted: Any) -> Solution:  # noqa: ARG002
        return Solution(fitted.coef_.reshape(-1))
