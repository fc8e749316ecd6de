"""The cost of a first run before training: starting Python, importing, and compiling kernels.

Each line is a process of its own that trains on a tiny data set: with an empty cache of compiled kernels, then with the
one that the first has left.

    python -m benchmarks.startup                 every kind, as a table
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.table import Table

LIMIT = 600.0
KINDS = ("binary", "multiclass", "regression", "ordinal", "ranking", "chain", "graph", "cfg", "latent")


def startup(folder: Path, scratch: Path, repeat: int) -> list[Table]:  # noqa: ARG001 - as the others
    rows = []
    for kind in KINDS:
        compiling, cached = (in_new_process(kind, scratch / "kernels" / kind) for _ in range(2))
        then = [cached["start"], cached["imports"], compiling["first"], cached["first"], cached["second"]]
        rows.append([kind, *then, round(compiling["whole"], 1)])
    columns = ["problem", "Python starts", "imports", "first run, compiling", "first run, kernels cached", "second run"]
    return [
        Table("startup", "Seconds before training begins, on tiny problems", [*columns, "the whole first run"], rows)
    ]


def in_new_process(kind: str, kernels: Path) -> dict[str, Any]:
    kernels.mkdir(parents=True, exist_ok=True)
    begin = time.time()
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.startup", kind],
        env={**os.environ, "NUMBA_CACHE_DIR": str(kernels)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    told: dict[str, Any] = json.loads(found.stdout)
    return {**told, "start": round(told["began"] - begin, 3), "whole": time.time() - begin}


def train_twice(kind: str) -> None:
    """Prepare a tiny data set and train on it twice; prints the seconds of each step."""
    began = time.time()
    import distdual
    from distdual.problems.registry import class_of
    from distdual.warm_up import data_sets

    marks = [time.time()]
    with tempfile.TemporaryDirectory() as scratch:
        data = data_sets(kind, class_of(kind).data_spec, Path(scratch) / "data")[0]
        for number in range(2):
            distdual.train(
                {
                    "data": {"url": str(data)},
                    "problem": {"kind": kind},
                    "solver": {"gap": 1e-2},
                    "output": {"url": f"{scratch}/model{number}"},
                }
            )
            marks.append(time.time())
    imports, first, second = (round(b - a, 3) for a, b in zip([began, *marks], marks, strict=False))
    print(json.dumps({"began": began, "imports": imports, "first": first, "second": second}))


def main() -> None:
    if sys.argv[1:]:
        train_twice(sys.argv[1])
        return
    with tempfile.TemporaryDirectory(prefix="distdual-startup-") as scratch:
        for table in startup(Path(), Path(scratch), 1):
            print(table.columns, *table.rows, sep="\n")


if __name__ == "__main__":
    main()
