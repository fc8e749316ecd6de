"""Growth of the training cost with n: n doubles five times, and exponents are fitted to all six sizes.

C stays the same, so larger problems are also harder: 1/2 ||w||² weighs less. covtype is binary; the
synthetic chains have 8 tags, 32 features and 4 to 12 tokens. Streamed passes are those of the schedule for data that
every pass reads from storage.
"""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.datasets.covtype import two_classes
from benchmarks.datasets.synthetic import chain_of
from benchmarks.solvers import ours
from benchmarks.table import Table
from distdual.data.in_memory import in_memory
from distdual.problems.binary import Binary
from distdual.problems.chain.problem import Chain

DOUBLINGS = 5
CHAINS = 8_192
COLUMNS = (
    *("seconds", "passes", "oracle calls", "updates", "cache, MB", "sent to the coordinator, MB"),
    *("streamed passes", "streamed, MB"),
)


def growth(folder: Path, scratch: Path, repeat: int) -> list[Table]:  # noqa: ARG001 - as the others
    x, y, _, _ = two_classes(folder)
    most = len(y)
    told: dict[str, tuple[int, Callable[[int], Case]]] = {
        "covtype, C = 0.01": (most, lambda n: binary(x[:n], y[:n], 0.01)),
        "synthetic chains, C = 0.1": (CHAINS, lambda n: chains(n, 0.1)),
    }
    repeat = min(repeat, 3)
    lines, fitted = [], []
    for name, (n, make) in told.items():
        sizes = [n >> k for k in range(DOUBLINGS, -1, -1)]
        costs = [cost(make(size), repeat) for size in sizes]
        lines += [[name, size, *each] for size, each in zip(sizes, costs, strict=True)]
        fitted.append([name, *exponents(sizes, costs)])
    columns = ["data", *COLUMNS]
    return [
        Table(
            "growth",
            "Growth of the cost with n: exponents b of cost ∝ n^b, to a certified gap of 1e-3",
            columns,
            fitted,
        ),
        Table("sizes", "The same, size by size", ["data", "n", *COLUMNS], lines, f"Seconds: medians of {repeat}."),
    ]


def binary(x: Any, y: Any, C: float) -> Case:
    problem = Binary(n_features=x.shape[1], classes=("-1", "1"))
    return Case(name="", title="", problem=problem, train=lambda: in_memory(x, y), C=C)


def chains(n: int, C: float) -> Case:
    data = chain_of(n)
    problem = Chain(n_features=data.n_features, classes=data.classes)
    return Case(name="", title="", problem=problem, train=lambda: data, C=C)


def cost(case: Case, repeat: int) -> list[float]:
    """Of one training, in the order of COLUMNS."""
    runs = [ours.solve(case, case.gap) for _ in range(repeat + 1)][1:]
    totals, streamed = runs[0].outcome.totals, ours.solve(case, case.gap, stream="yes").outcome.totals.passes
    return [
        statistics.median(run.seconds for run in runs),
        totals.passes,
        totals.oracle_calls,
        runs[0].outcome.solver.updates,
        max(line.cache_bytes for line in runs[0].outcome.history) / 1e6,
        totals.wire_bytes / 1e6,
        streamed,
        streamed * case.train().nbytes / 1e6,
    ]


def exponents(sizes: list[int], costs: list[list[float]]) -> list[float]:
    """Slopes of log cost over log n, by least squares."""
    slopes = np.polyfit(np.log(sizes), np.log(np.array(costs, dtype=float)), 1)[0]
    return [round(float(slope), 2) for slope in slopes]
