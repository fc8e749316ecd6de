"""The least effort with which a peer reaches the goal; every run is judged.

`python -m benchmarks.climb` does the same in a process of its own, a line of JSON a try, so that whoever started it can
end it, and outlives it if it crashes.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.case import Case
from benchmarks.objective import Objective
from benchmarks.solvers import PEERS, Peer
from benchmarks.solvers.base import Ladder

STARTING = 90.0  # seconds for a process to start, read the data and get ready


class Point(NamedTuple):
    """One fit of a peer."""

    effort: float
    seconds: float
    primal: float | None
    suboptimality: float | None
    score: dict[str, float]


class Tries(NamedTuple):
    points: list[Point]
    best: Point | None  # the least effort that reaches the goal
    status: str  # "ran", or why there is no `best`


def climb(case: Case, peer: Peer, objective: Objective, limit: float) -> Iterator[Point]:
    """Fits of growing effort until the goal is reached, then of efforts in between, within `limit` seconds."""
    fit, ladder, spent, last = peer.ready(case), peer.ladder(case), 0.0, 0.0
    low: float | None = None
    effort: float | None = ladder.first
    reached = None
    while effort is not None and spent + 2 * last <= limit:
        begin = time.perf_counter()
        fitted = fit(effort)
        last = time.perf_counter() - begin
        spent += last
        judged = objective.judge(peer.solution(case, fitted))
        off = None if judged.primal is None else objective.suboptimality(judged.primal)
        point = Point(effort, last, judged.primal, off, judged.score)
        yield point
        if reaches(point, case.gap):
            reached = effort
        else:
            low = effort
        effort = next_effort(ladder, low, reached)


def next_effort(ladder: Ladder, too_little: float | None, enough: float | None) -> float | None:
    """The next effort to try; None once the least one is known well enough, or no larger one is left."""
    if too_little is None:
        return None
    return ladder.harder(too_little) if enough is None else ladder.between(too_little, enough)


def reaches(point: Point, goal: float) -> bool:
    """A peer with another objective sets its own goal."""
    return point.suboptimality is None or point.suboptimality <= goal


def conclude(points: list[Point], goal: float, why: str) -> Tries:
    there = [point for point in points if reaches(point, goal)]
    best = there[-1] if there else None  # the search goes from too much to less
    if best is None and not why:
        spent, nearest = sum(p.seconds for p in points), min(p.suboptimality or 0.0 for p in points)
        why = f"not within {goal:g} of the optimum after {spent:.0f} s of tries; the nearest was {nearest:.1e}"
    return Tries(points, best, "ran" if best else why)


def tries(case: Case, peer: Peer, objective: Objective, limit: float, folder: Path) -> Tries:
    if peer.apart or case.apart:
        points, why = climb_apart(folder, case.name, peer.name, objective.lower, limit)
        return conclude(points, case.gap, why)
    return conclude(list(climb(case, peer, objective, limit)), case.gap, "")


def climb_apart(folder: Path, case: str, peer: str, lower: float, limit: float) -> tuple[list[Point], str]:
    """The points that another process reached within `limit` seconds, and the reason if there are none."""
    command = [sys.executable, "-m", "benchmarks.climb", str(folder), case, peer, repr(lower), repr(limit)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            out, _ = process.communicate(timeout=limit + STARTING)
            ended = process.returncode == 0
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            return points_in(out), f"a fit had not ended after {limit:g} s"
        errors.seek(0)
        told = [line.strip() for line in errors.read().splitlines() if line.strip()]
    return points_in(out), "" if ended else (told[-1][:200] if told else f"ended with {process.returncode}")


def points_in(out: str) -> list[Point]:
    return [Point(*json.loads(line)) for line in out.splitlines() if line.startswith("[")]


def main() -> None:
    from benchmarks.datasets import CASES

    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("case", choices=list(CASES))
    arguments.add_argument("peer", choices=list(PEERS))
    arguments.add_argument("lower", type=float)
    arguments.add_argument("limit", type=float)
    told = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="distdual-climb-") as scratch:
        case = CASES[told.case](told.folder, Path(scratch))
        for point in climb(case, PEERS[told.peer], Objective(case, told.lower), told.limit):
            print(json.dumps(point), flush=True)


if __name__ == "__main__":
    main()
