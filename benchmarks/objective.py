"""The objective that judges the solutions of all solvers.

    P(w) = 1/2 ||w||² + C Σ_i cost_i ξ_i(w)      from the problem's exact oracle, in float64, over all training data
    D(α) = Σ α l − 1/2 ||Σ α x||²                 where a solver gives α: rows and margins rebuilt from the data
    suboptimality = (P(w) − L) / P(w)             L is the best lower bound of P(w*) that any solver has proven
    score                                         means over the test data, as `distdual predict` tells them

The shares of the shards come from `verification.check_shard`, with which `distdual verify` works.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.case import Case, Data
from distdual.certificate.rebuild import Support
from distdual.certificate.verify import check_shard
from distdual.kernels.rows import Floats
from distdual.model.dual import Dual
from distdual.model.predict import add_up, judge_of
from distdual.problems.base import Keys

NO_DUAL = Dual(np.empty(0, dtype=np.int64), Keys.none(0), np.empty(0), np.empty(0))


class Solution(NamedTuple):
    """What a solver found: weights in the problem's layout, or a way to predict where it has another objective."""

    w: Floats | None
    predict: Callable[[Any], Any] | None = None  # shard -> predictions
    dual: Dual = NO_DUAL  # empty where the solver has none to show


class Judged(NamedTuple):
    primal: float | None  # None where the solver minimises something else
    dual: float | None
    score: dict[str, float]


@dataclass
class Objective:
    case: Case
    lower: float = -math.inf
    """The highest D(α) that was proven so far."""

    @cached_property
    def data(self) -> Data:
        return self.case.train()

    def bounds(self, w: Floats, dual: Dual = NO_DUAL) -> tuple[float, float]:
        """D(α) and P(w). An α that is not feasible proves no more than α = 0 does."""
        problem, C, data = self.case.problem, self.case.C, self.data
        parts = [Support(dual.of_shard(data.first, s), None) for s in range(data.n_shards)]
        checks = [check_shard(data, problem, w, s, C, part) for s, part in enumerate(parts)]
        feasible = not any(len(check.infeasible) for check in checks)
        v = np.zeros(problem.n_weights)
        for check in checks:
            v[slice(None) if check.v.at is None else check.v.at] += check.v.values
        lower = math.fsum(check.linear.value for check in checks) - 0.5 * float(v @ v) if feasible else 0.0
        return lower, 0.5 * float(w @ w) + C * math.fsum(check.loss for check in checks)

    def judge(self, found: Solution) -> Judged:
        """Also raises `lower` where the solution proves a better one."""
        if found.w is None:
            assert found.predict is not None
            return Judged(None, None, self.score(found.predict))
        w = np.ascontiguousarray(found.w, dtype=np.float64).reshape(-1)
        lower, primal = self.bounds(w, found.dual)
        self.lower = max(self.lower, lower)
        shown = lower if len(found.dual.alpha) else None
        return Judged(primal, shown, self.score(partial(self.case.problem.predict, w)))

    def suboptimality(self, primal: float) -> float:
        return (primal - self.lower) / primal

    def score(self, predict: Callable[[Any], Any]) -> dict[str, float]:
        test, problem = self.case.test, self.case.problem
        if test is None:
            return {}
        judge = judge_of(problem, tuple(problem.describe()["classes"]), test.classes)
        assert judge is not None
        sums = []
        for number in range(test.n_shards):
            shard = test.read(number).shard
            y = np.array(judge.codes)[shard.y] if judge.codes else shard.y
            sums.append(judge.problem.score_shard(shard, y, predict(shard)))
        return add_up(sums) or {}
