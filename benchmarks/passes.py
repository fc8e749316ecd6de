"""Passes over the data, and the bytes they read, until the gap is certified.

    python -m benchmarks.passes DATA [--case NAME]… [--schedule X] [--shards 16] [--in-memory] [--json FILE]

Each case is streamed from S3 (a SeaweedFS server that this benchmark starts) by two Dask worker processes that keep no
shard in memory, in deterministic mode with default settings. With --in-memory the same cases are solved by threads of
this process on arrays, where a pass reads nothing. Counts do not depend on other work on this machine; seconds do.
"""

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import distdual
from benchmarks.case import Case
from benchmarks.datasets import CASES
from benchmarks.scaling import s3_server
from benchmarks.solvers import ours
from benchmarks.table import markdown
from distdual.cluster.dask_client import connect
from distdual.config import ClusterConfig, LocalCluster
from distdual.data.dataset import Dataset, open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location

NO_ROOM = "0"  # a worker without a memory limit promises no room, so shards are streamed
SLACK = 0.1  # of a pass: what a run may read beyond its passes
FIELDS = ("passes", "bytes_read", "gets", "updates", "ascent_seconds", "scan_seconds", "seconds", "gap", "certified")
COLUMNS = [
    *("case", "C", "gap", "passes", "at most", "bytes / data set", "GETs", "updates"),
    *("ascent s", "scan s", "seconds", "proven", "missed"),
]


class Goal(NamedTuple):
    """A case, and the most passes it may take."""

    case: str
    C: float
    gap: float
    passes: int


GOALS = {
    "a9a-0.01": Goal("a9a", 0.01, 1e-3, 4),
    "a9a-1": Goal("a9a", 1.0, 1e-3, 4),
    "a9a-100": Goal("a9a", 100.0, 1e-3, 4),
    "covtype-0.01": Goal("covtype", 0.01, 1e-3, 4),
    "covtype-1": Goal("covtype", 1.0, 1e-3, 4),
    "mnist10-0.01": Goal("mnist10-0.01", 0.01, 1e-3, 6),
    "mnist10-1": Goal("mnist10-0.01", 1.0, 1e-3, 6),
    "housing": Goal("housing", 0.1, 1e-3, 4),
    "ocr-0.01": Goal("ocr", 0.1, 1e-2, 8),
    "ocr-0.001": Goal("ocr", 0.1, 1e-3, 12),
    "conll": Goal("conll", 0.1, 1e-2, 6),
}

Solve = Callable[[Case, float, dict[str, Any]], dict[str, Any]]  # case, gap, solver options -> figures


def main() -> None:
    arguments = argparse.ArgumentParser(
        "python -m benchmarks.passes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("folder", type=Path, metavar="DATA")
    arguments.add_argument("--case", action="append", choices=list(GOALS), help="may be given several times")
    arguments.add_argument("--schedule", help="a schedule other than the default one")
    arguments.add_argument("--shards", type=int, default=16, help="of each data set; sequences keep their own")
    arguments.add_argument("--in-memory", action="store_true", help="threads of this process, on arrays")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    told = arguments.parse_args()
    if not told.folder.is_dir():
        arguments.error(f"{told.folder} is no folder")
    options = {"schedule": told.schedule} if told.schedule else {}
    chosen = {name: GOALS[name] for name in told.case or GOALS}
    with tempfile.TemporaryDirectory(prefix="distdual-passes-") as scratch:
        make = lru_cache(maxsize=1)(lambda name: CASES[name](told.folder, Path(scratch)))
        with in_this_process() if told.in_memory else on_s3(told.shards) as solve:
            found = {name: figures(goal, make, solve, options) for name, goal in chosen.items()}
    print(markdown(COLUMNS, [row(name, goal, found[name]) for name, goal in chosen.items()]))
    if told.json:
        told.json.write_text(json.dumps(found, indent=1) + "\n")


def figures(goal: Goal, make: Callable[[str], Case], solve: Solve, options: dict[str, Any]) -> dict[str, Any]:
    """The costs of one run to the goal, and the bounds that it exceeded."""
    case = replace(make(goal.case), C=goal.C)
    found = solve(case, goal.gap, {**case.options, **options})
    print(f"{case.name} C={goal.C:g} gap={goal.gap:g}: {found['passes']} passes", file=sys.stderr, flush=True)
    return {**found, "missed": missed(goal, found)}


def missed(goal: Goal, found: dict[str, Any]) -> list[str]:
    """The bounds that a run exceeded."""
    share = found["bytes_read"] / found["data_bytes"] if found["data_bytes"] else 0.0
    bounds = {
        "gap": not found["certified"],
        "passes": found["passes"] > goal.passes,
        "bytes": share > found["passes"] + SLACK,
    }
    return [name for name, over in bounds.items() if over]


def row(name: str, goal: Goal, found: dict[str, Any]) -> list[Any]:
    share = round(found["bytes_read"] / found["data_bytes"], 3) if found["data_bytes"] else None
    counted = [found["passes"], goal.passes, share, found["gets"] or None, found["updates"]]
    timed = [found[name] for name in ("ascent_seconds", "scan_seconds", "seconds")]
    return [name, f"{goal.C:g}", f"{goal.gap:g}", *counted, *timed, found["gap"], ", ".join(found["missed"]) or "none"]


@contextlib.contextmanager
def in_this_process() -> Iterator[Solve]:
    def solve(case: Case, gap: float, options: dict[str, Any]) -> dict[str, Any]:
        run = ours.solve(case, gap, **options)
        outcome, totals = run.outcome, run.outcome.totals.as_dict()
        proven = {"gap": outcome.certificate.gap, "certified": outcome.certificate.gap <= gap}
        own = {"updates": outcome.solver.updates, "seconds": run.seconds, "data_bytes": 0, **proven}
        return {**{name: totals[name] for name in FIELDS if name in totals}, **own}

    yield solve


@contextlib.contextmanager
def on_s3(n_shards: int) -> Iterator[Solve]:
    with s3_server() as server, connect(ClusterConfig(local=LocalCluster(memory=NO_ROOM))) as client:
        places: dict[str, tuple[Location, int]] = {}  # cases at different C share their data

        def solve(case: Case, gap: float, options: dict[str, Any]) -> dict[str, Any]:
            if case.name not in places:
                places[case.name] = stored(server, case, n_shards)
            data, n_bytes = places[case.name]
            trained = distdual.train(
                {
                    "data": {"url": data.url, "storage_options": server.storage_options},
                    "problem": problem_table(case),
                    "solver": {"C": case.C, "gap": gap, **options},
                    "output": {"url": server.url("model"), "storage_options": server.storage_options},
                },
                client,
            ).certificate
            return {**{name: trained[name] for name in FIELDS}, "data_bytes": n_bytes}

        yield solve


def stored(server: Any, case: Case, n_shards: int) -> tuple[Location, int]:
    """The training data of a case on S3, and its bytes as a pass reads them."""
    place = Location(server.url(case.name), server.storage_options)
    data = case.train()
    if isinstance(data, Dataset):
        server.files().put(f"{data.location.url}/", place.url.removeprefix("s3://") + "/", recursive=True)
    else:
        prepare_arrays(case.x, case.y, place, case.kind, shard_bytes=data.nbytes // n_shards + 4096)
    there = open_dataset(place)
    return place, sum(there.read(number).n_bytes for number in range(there.n_shards))


def problem_table(case: Case) -> dict[str, Any]:
    """The [problem] section, without what the data set determines."""
    return {name: value for name, value in case.problem.describe().items() if name not in ("n_features", "classes")}


if __name__ == "__main__":
    main()
