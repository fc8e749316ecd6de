"""pyspark's MLlib LinearSVC: OWL-QN on 1/n Σ hinge + 1/(2 C n) ||w||², two threads of a local Java machine."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import scipy.sparse as sp

from benchmarks.case import Case
from benchmarks.objective import Solution
from benchmarks.solvers.base import THREADS, Iterations, Ladder, Peer


class Spark(Peer):
    name: ClassVar[str] = "MLlib LinearSVC"
    package: ClassVar[str] = "pyspark"
    kinds: ClassVar[tuple[str, ...]] = ("binary",)
    effort: ClassVar[str] = "maxIter"

    def ladder(self, case: Case) -> Ladder:  # noqa: ARG002
        return Iterations(1024, first=4)

    def ready(self, case: Case) -> Callable[[float], Any]:
        from pyspark.ml.classification import LinearSVC
        from pyspark.sql import SparkSession

        settings = {
            "spark.driver.memory": "6g",
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(THREADS),
        }
        build = SparkSession.builder.master(f"local[{THREADS}]").appName("distdual-benchmarks")
        for key, value in settings.items():
            build = build.config(key, value)
        session = build.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        table = session.createDataFrame(list(rows(case)), ["label", "features"]).coalesce(THREADS).cache()
        table.count()
        told = {"regParam": 1 / (case.C * len(case.y)), "fitIntercept": False, "standardization": False, "tol": 0.0}
        return lambda effort: LinearSVC(maxIter=int(effort), **told).fit(table)

    def solution(self, case: Case, fitted: Any) -> Solution:  # noqa: ARG002
        return Solution(fitted.coefficients.toArray())


def rows(case: Case) -> Iterator[tuple[float, Any]]:
    from pyspark.ml.linalg import Vectors

    labels = ((case.y + 1) / 2).tolist()
    if not sp.issparse(case.x):
        yield from ((label, Vectors.dense(row)) for label, row in zip(labels, case.x.tolist(), strict=True))
        return
    for i, label in enumerate(labels):
        at = slice(case.x.indptr[i], case.x.indptr[i + 1])
        yield label, Vectors.sparse(case.x.shape[1], case.x.indices[at], case.x.data[at].astype(float))
