"""pyspark's MLlib LinearSVC: OWL-QN on 1/n Σ hinge + 1/(2 C n) ||w||², two threads of a local Java machine."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from benchmarks.case import Case
from benchmarks.objective import Solution
from benchmarks.solvers.base import THREADS, Iterations, Ladder, Peer


class Spark(Peer):
    name: ClassVar[str] = "MLlib LinearSVC"
    package: ClassVar[str] = "pyspark"
    kinds: ClassVar[tuple[str, ...]] = ("binary",)
    effort: ClassVar[str] = "maxIter"
    apart: ClassVar[bool] = True

    def ladder(self, case: Case) -> Ladder:  # noqa: ARG002
        return Iterations(1024, first=4)

    def ready(self, case: Case) -> Callable[[float], Any]:
        from pyspark.ml.classification import LinearSVC
        from pyspark.sql import SparkSession

        settings = {
            "spark.driver.memory": "6g",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(THREADS),
        }
        build = SparkSession.builder.master(f"local[{THREADS}]").appName("distdual-benchmarks")
        for key, value in settings.items():
            build = build.config(key, value)
        session = build.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        table = table_of(session, case).repartition(THREADS).cache()
        table.count()
        told = {"regParam": 1 / (case.C * len(case.y)), "fitIntercept": False, "standardization": False, "tol": 0.0}
        return lambda effort: LinearSVC(maxIter=int(effort), **told).fit(table)

    def solution(self, case: Case, fitted: Any) -> Solution:  # noqa: ARG002
        return Solution(fitted.coefficients.toArray())


def table_of(session: Any, case: Case) -> Any:
    """Labels 0 and 1, and vectors."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.ml.linalg import Vectors

    labels = (case.y + 1) / 2
    if sp.issparse(case.x):
        starts, wide = case.x.indptr, case.x.data.astype(np.float64)
        parts = (slice(starts[i], starts[i + 1]) for i in range(len(labels)))
        vectors = (Vectors.sparse(case.x.shape[1], case.x.indices[at], wide[at]) for at in parts)
        return session.createDataFrame(zip(labels.tolist(), vectors, strict=True), ["label", "features"])
    import pyarrow as pa

    values = pa.array(case.x.astype(np.float64).reshape(-1))
    starts = pa.array(np.arange(len(labels) + 1, dtype=np.int32) * case.x.shape[1])
    arrays = pa.table({"label": labels, "x": pa.ListArray.from_arrays(starts, values)})
    return session.createDataFrame(arrays).select("label", array_to_vector("x").alias("features"))
