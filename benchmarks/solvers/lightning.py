"""sklearn-contrib-lightning: dual coordinate descent in Cython, one thread."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from benchmarks.case import Case
from benchmarks.objective import Solution
from benchmarks.solvers.base import Peer


class Lightning(Peer):
    name: ClassVar[str] = "lightning"
    package: ClassVar[str] = "sklearn-contrib-lightning"
    kinds: ClassVar[tuple[str, ...]] = ("binary",)
    effort: ClassVar[str] = "max_iter"

    def ready(self, case: Case) -> Callable[[float], Any]:
        from lightning.classification import LinearSVC

        wide = case.x.astype(np.float64)
        told = {"C": case.C, "loss": "hinge", "tol": 1e-12, "random_state": 0}
        return lambda effort: LinearSVC(max_iter=int(effort), **told).fit(wide, case.y)

    def solution(self, case: Case, fitted: Any) -> Solution:  # noqa: ARG002
        return Solution(fitted.coef_.reshape(-1))
