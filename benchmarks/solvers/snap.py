"""IBM's snapml: parallel dual coordinate descent, two threads."""

from collections.abc import Callable
from typing import Any, ClassVar

from benchmarks.case import Case
from benchmarks.objective import Solution
from benchmarks.solvers.base import THREADS, Iterations, Ladder, Peer


class SnapMl(Peer):
    name: ClassVar[str] = "snapml"
    package: ClassVar[str] = "snapml"
    kinds: ClassVar[tuple[str, ...]] = ("binary",)
    effort: ClassVar[str] = "max_iter"

    def ladder(self, case: Case) -> Ladder:  # noqa: ARG002
        return Iterations(1024)

    def ready(self, case: Case) -> Callable[[float], Any]:
        from snapml import SupportVectorMachine

        told = {"regularizer": 1 / case.C, "fit_intercept": False, "tol": 1e-12, "n_jobs": THREADS, "random_state": 0}
        return lambda effort: SupportVectorMachine(max_iter=int(effort), **told).fit(case.x, case.y)

    def solution(self, case: Case, fitted: Any) -> Solution:  # noqa: ARG002
        return Solution(fitted.coef_.reshape(-1))
