"""liblinear itself, by its own Python interface: hinge loss (-s 3), Crammer-Singer (-s 4), ε-insensitive (-s 13)."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from benchmarks.case import Case
from benchmarks.objective import Solution
from benchmarks.solvers.base import Ladder, Peer, Tolerance

SOLVERS = {"binary": 3, "multiclass": 4, "regression": 13}


class Liblinear(Peer):
    name: ClassVar[str] = "liblinear"
    package: ClassVar[str] = "liblinear-official"
    kinds: ClassVar[tuple[str, ...]] = tuple(SOLVERS)
    effort: ClassVar[str] = "-e"

    def ladder(self, case: Case) -> Ladder:  # noqa: ARG002
        return Tolerance()

    def ready(self, case: Case) -> Callable[[float], Any]:
        from liblinear.liblinear import parameter, problem
        from liblinear.liblinearutil import train

        rows = problem(case.y.astype(np.float64), sp.csr_matrix(case.x, dtype=np.float64), bias=-1)
        told = f"-s {SOLVERS[case.kind]} -c {case.C!r} -q"
        more = f" -p {case.problem.epsilon!r}" if case.kind == "regression" else ""
        return lambda effort: train(rows, parameter(f"{told}{more} -e {effort:.9g}"))

    def solution(self, case: Case, fitted: Any) -> Solution:
        n, width = fitted.nr_feature, case.x.shape[1]
        labels = list(fitted.get_labels())
        rows = 1 if case.kind != "multiclass" else len(labels)
        by_label = np.zeros((rows, width))
        by_label[:, :n] = np.ctypeslib.as_array(fitted.w, (n, rows)).T
        if case.kind == "multiclass":
            return Solution(by_label[np.argsort(labels)].reshape(-1))
        return Solution((-1 if case.kind == "binary" and labels[0] < 0 else 1) * by_label[0])
