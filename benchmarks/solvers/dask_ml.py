"""dask-ml's Incremental around SGDClassifier: blocks of a Dask array, one after the other, once a pass."""

from collections.abc import Callable
from typing import Any, ClassVar

import scipy.sparse as sp

from benchmarks.case import Case
from benchmarks.objective import Solution
from benchmarks.solvers.base import Iterations, Ladder, Peer
from benchmarks.solvers.sgd import stochastic

BLOCKS = 8


class DaskIncremental(Peer):
    name: ClassVar[str] = "dask-ml Incremental"
    package: ClassVar[str] = "dask-ml"
    kinds: ClassVar[tuple[str, ...]] = ("binary",)
    effort: ClassVar[str] = "passes"

    def ladder(self, case: Case) -> Ladder:  # noqa: ARG002
        return Iterations(256)

    def ready(self, case: Case) -> Callable[[float], Any]:
        import dask.array as da
        from dask_ml.wrappers import Incremental

        rows = -(-len(case.y) // BLOCKS)
        x = da.from_array(case.x, chunks=(rows, case.x.shape[1]), asarray=not sp.issparse(case.x))
        y = da.from_array(case.y, chunks=rows)

        def fit(effort: float) -> Any:
            model = Incremental(stochastic(case), shuffle_blocks=False)
            for _ in range(int(effort)):
                model.partial_fit(x, y, classes=[-1.0, 1.0])
            return model.estimator_

        return fit

    def solution(self, case: Case, fitted: Any) -> Solution:  # noqa: ARG002
        return Solution(fitted.coef_.reshape(-1))
