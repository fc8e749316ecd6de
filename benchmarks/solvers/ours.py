"""distdual in this process: threads scan, no cluster; timed from opening the data to the certified model."""

import time
from typing import Any, NamedTuple

from benchmarks.case import Case
from benchmarks.objective import NO_DUAL, Solution
from benchmarks.solvers.base import THREADS
from distdual.cluster.threads import InlineExecutor
from distdual.config import SolverConfig
from distdual.coordinator.outcome import Outcome
from distdual.coordinator.result_model import single_dual
from distdual.coordinator.trainer import Trainer

NAME = "distdual"


class Run(NamedTuple):
    seconds: float
    outcome: Outcome

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Seconds and the gap proven by then."""
        late = self.seconds - self.outcome.seconds  # spent on opening the data
        return [(late + line.seconds, line.gap) for line in self.outcome.history if line.gap < 1]


def solve(case: Case, gap: float, **options: Any) -> Run:
    begin = time.perf_counter()
    dataset = case.train()
    executor = InlineExecutor(dataset, case.problem, threads=THREADS)
    try:
        config = SolverConfig(C=case.C, gap=gap, **{**case.options, **options})
        outcome = Trainer(case.problem, dataset, executor, config, lambda _: None).run()
        return Run(time.perf_counter() - begin, outcome)
    finally:
        executor.close()


def solution(outcome: Outcome) -> Solution:
    """With α, unless examples share slacks: workers record those rows in files."""
    return Solution(outcome.w, None, NO_DUAL if outcome.solver.cache.referenced else single_dual(outcome))
