"""The cost of a first fit before training: starting Python, importing, and compiling kernels.

Each line is a process of its own that solves a tiny problem: with an empty cache of compiled kernels, then with the
one that the first has left.
"""

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.datasets import TINY
from benchmarks.table import Table

LIMIT = 600.0


def startup(folder: Path, scratch: Path, repeat: int) -> list[Table]:  # noqa: ARG001 - as the others
    rows = []
    for kind, case in TINY.items():
        compiling, cached = (in_new_process(case, scratch / "kernels" / kind) for _ in range(2))
        rows.append([kind, cached["start"], cached["imports"], compiling["first"], cached["first"], cached["second"]])
    columns = ["problem", "Python starts", "imports", "first fit, compiling", "first fit, kernels cached", "second fit"]
    return [Table("startup", "Seconds before training begins, on tiny problems", columns, rows)]


def in_new_process(case: str, kernels: Path) -> dict[str, Any]:
    kernels.mkdir(parents=True, exist_ok=True)
    begin = time.time()
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.startup", case],
        env={**os.environ, "NUMBA_CACHE_DIR": str(kernels)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    told: dict[str, Any] = json.loads(found.stdout)
    return {**told, "start": round(told["began"] - begin, 3)}


def main() -> None:
    began = time.time()
    import numpy  # noqa: F401 - part of what importing costs

    from benchmarks.datasets import CASES
    from benchmarks.solvers import ours

    marks = [time.time()]
    case = CASES[sys.argv[1]](Path(), Path())
    for _ in range(2):
        ours.solve(case, case.gap)
        marks.append(time.time())
    first, second = (round(b - a, 3) for a, b in itertools.pairwise(marks))
    print(json.dumps({"began": began, "imports": round(marks[0] - began, 3), "first": first, "second": second}))


if __name__ == "__main__":
    main()
