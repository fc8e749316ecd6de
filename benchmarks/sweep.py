"""The cost of a path of 20 values of C on a9a, relative to one cold fit at the largest.

    python -m benchmarks.sweep DATA [--C 1e-3:1e2:20] [--runs 5] [--json]

DATA is a folder that holds a9a/. The path goes through one cache, from the smallest C to the largest, and every point
is certified to a gap of 1e-3. A run is a cold fit, a path and a path of as many cold fits, one after the other; the
ratios are medians over the runs, after one that compiles. Without folds: both train on all data, once.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distdual
from benchmarks.datasets.a9a import a9a
from distdual.coordinator.sweep_c import grid
from distdual.data.prepare.api import prepare_arrays


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, metavar="DATA")
    arguments.add_argument("--C", default="1e-3:1e2:20", help="the path")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--json", action="store_true", help="print one JSON object")
    told = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="distdual-sweep-") as scratch:
        data = a9a(told.folder, Path(scratch))
        prepare_arrays(data.x, data.y, f"{scratch}/data", "binary")
        figures = compare(scratch, grid(told.C), told.runs)
    print(json.dumps(figures) if told.json else "\n".join(f"{name:<40} {value}" for name, value in figures.items()))


def compare(scratch: str, values: list[float], runs: int) -> dict[str, Any]:
    def config(C: float) -> dict[str, Any]:
        return {
            "data": {"url": f"{scratch}/data"},
            "problem": {"kind": "binary"},
            "solver": {"C": C, "gap": 1e-3},
            "output": {"url": f"{scratch}/model", "overwrite": True},
        }

    fits, paths, apart = [], [], []
    for _ in range(runs + 1):
        seconds, fit = timed(lambda: distdual.train(config(values[-1])))
        fits.append(seconds)
        seconds, path = timed(lambda: distdual.sweep(config(1.0), values, folds=0))
        paths.append(seconds)
        seconds, _ = timed(lambda: [distdual.train(config(C)) for C in values])
        apart.append(seconds)
    last = path.points[-1]
    assert path.certified
    assert last.lower <= fit.certificate["upper"]  # both enclose the same optimum
    assert fit.certificate["lower"] <= last.upper
    return {
        "C": [values[0], values[-1], len(values)],
        "largest gap of a point": max(point.gap for point in path.points),
        "gap of the cold fit": fit.certificate["gap"],
        "passes of the path": sum(point.passes for point in path.points),
        "passes of the cold fit": fit.certificate["passes"],
        "seconds of the cold fit": statistics.median(fits[1:]),
        "seconds of the path": statistics.median(paths[1:]),
        "path / one cold fit at the largest C": ratio(paths, fits),
        "path / a cold fit at every C": ratio(paths, apart),
    }


def ratio(one: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one[1:], other[1:], strict=True))


def timed(job: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    found = job()
    return time.perf_counter() - begin, found


if __name__ == "__main__":
    main()
