"""This tree beside another checkout of distdual, case by case: seconds, passes and updates.

    python -m benchmarks.compare OTHER_TREE DATA [--case NAME]… [--repeat 5] [--json FILE]

Each tree runs in a process of its own, with a cache of its own for compiled kernels, and solves the cases in memory as
`benchmarks.solvers.ours` of that tree does. After a first run that warms up, runs of both trees interleave in an order
by lot; seconds are medians. OTHER_TREE is a checkout such as `git worktree add ../other COMMIT` makes.
"""

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.table import markdown

HERE = Path(__file__).resolve().parents[1]
RUN = HERE / "benchmarks" / "compare_run.py"
COLUMNS = [
    *("case", "gap", "seconds here", "there", "here / there"),
    *("passes here", "there", "updates here", "there", "spread here"),
]


class Entry(NamedTuple):
    case: str
    C: float
    gap: float


ENTRIES = {
    "covtype": Entry("covtype", 0.01, 1e-3),
    "mnist": Entry("mnist", 0.01, 1e-3),
    "a9a": Entry("a9a", 1.0, 1e-3),
    "a9a-100": Entry("a9a", 100.0, 1e-3),
    "imdb": Entry("imdb", 1.0, 1e-3),
    "mnist10-0.01": Entry("mnist10-0.01", 0.01, 1e-3),
    "mnist10-1": Entry("mnist10-1", 1.0, 1e-3),
    "covtype7": Entry("covtype7", 0.19, 1e-2),
    "housing": Entry("housing", 0.1, 1e-3),
    "ocr-0.01": Entry("ocr", 0.1, 1e-2),
    "ocr": Entry("ocr", 0.1, 1e-3),
    "conll": Entry("conll", 0.1, 1e-2),
}


class Tree:
    """A checkout in a process of its own, which answers requests one at a time."""

    def __init__(self, folder: Path, data: Path, *options: str, kernels: str = ".numba-compare") -> None:
        own = {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / kernels), "OMP_NUM_THREADS": "2"}
        command = [sys.executable, "-P", str(RUN), str(folder), str(data), *options]
        self.process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **own}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args}: ended with {self.process.wait()} at {request}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self.process.communicate()


def main() -> None:
    arguments = argparse.ArgumentParser(
        "python -m benchmarks.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("other", type=Path, metavar="OTHER_TREE")
    arguments.add_argument("folder", type=Path, metavar="DATA")
    arguments.add_argument("--case", action="append", choices=list(ENTRIES), help="may be given several times")
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write all runs to this file")
    told = arguments.parse_args()
    if told.repeat < 1:
        arguments.error(f"--repeat must be at least 1, got {told.repeat}")
    for folder in (told.folder, told.other / "distdual"):
        if not folder.is_dir():
            arguments.error(f"{folder} is no folder")
    found = {}
    with both(told.other.resolve(), told.folder.resolve()) as trees:
        for name in told.case or ENTRIES:
            found[name] = side_by_side(trees, ENTRIES[name], told.repeat)
            print("  ".join(map(str, row(name, found[name]))), file=sys.stderr, flush=True)
            if told.json:
                told.json.write_text(json.dumps(found, indent=1) + "\n")
    print(markdown(COLUMNS, [row(name, runs) for name, runs in found.items()]))


@contextlib.contextmanager
def both(other: Path, data: Path) -> Iterator[dict[str, Tree]]:
    with contextlib.ExitStack() as stack:
        trees = {"here": Tree(HERE, data), "there": Tree(other, data)}
        for tree in trees.values():
            stack.callback(tree.close)
        yield trees


def side_by_side(trees: dict[str, Tree], entry: Entry, repeat: int) -> dict[str, list[dict[str, Any]]]:
    """All runs of each tree but the first, which loads or compiles kernels."""
    for tree in trees.values():
        tree.ask(case=entry.case, C=entry.C)
        tree.ask(gap=entry.gap)
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in trees}
    for turn in range(repeat):
        for side in random.Random(turn).sample(sorted(trees), len(trees)):
            runs[side].append(trees[side].ask(gap=entry.gap))
    return runs


def row(name: str, runs: dict[str, list[dict[str, Any]]]) -> list[Any]:
    here, there = (statistics.median(run["seconds"] for run in runs[side]) for side in ("here", "there"))
    counts = [runs[side][0][what] for what in ("passes", "updates") for side in ("here", "there")]
    times = [run["seconds"] for run in runs["here"]]
    spread = f"{min(times):.3g} to {max(times):.3g}"
    return [name, f"{ENTRIES[name].gap:g}", round(here, 4), round(there, 4), round(here / there, 3), *counts, spread]


if __name__ == "__main__":
    main()
