"""A race on one case: time to come within a gap of the optimum. Efforts are searched first, then runs interleave."""

import gc
import importlib.metadata
import random
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.case import Case
from benchmarks.climb import Tries, climb_apart, tries
from benchmarks.objective import Objective
from benchmarks.solvers import PEERS, Peer, ours

REFERENCE = 1e-2  # the reference run is to prove this share of the gap, so that L is as good as the optimum
REFERENCE_SECONDS = 20.0
PROBE_SECONDS = 120.0


def probe(folder: Path, peer: Peer, tiny: dict[str, str]) -> str:
    """The reason why a peer cannot run, if any: it has to solve a tiny problem in a separate process."""
    try:
        importlib.metadata.version(peer.package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
    case = next((tiny[kind] for kind in peer.kinds if kind in tiny), None)
    if case is None:
        return ""
    points, why = climb_apart(folder, case, peer.name, 0.0, PROBE_SECONDS)
    return "" if points else f"installed, but it does not run: {why}"


def race(case: Case, folder: Path, repeat: int, peers: Mapping[str, str], patience: float = 20.0) -> dict[str, Any]:
    """One case as the record keeps it; `peers` are those that take part, with what is wrong with them, if anything.

    A peer gets `patience` seconds for its tries, and as many for its repetitions.
    """
    objective = Objective(case)
    first = {gap: ours.solve(case, gap) for gap in case.gaps}
    objective.judge(ours.solution(first[case.gap].outcome))
    reference = ours.solve(case, REFERENCE * case.gap, max_seconds=REFERENCE_SECONDS)
    objective.judge(ours.solution(reference.outcome))
    found = {
        name: Tries([], None, why) if why else tried(case, PEERS[name], objective, folder, patience)
        for name, why in peers.items()
    }
    times = interleaved(case, found, repeat, patience)
    lines = [own_line(case, gap, first[gap], times, objective, reference) for gap in case.gaps]
    lines += [peer_line(name, found[name], times.get(name, [])) for name in found]
    data = objective.data
    return {
        "case": case.name,
        "title": case.title,
        "kind": case.kind,
        "examples": data.n_examples,
        "features": data.n_features,
        "C": case.C,
        "goal": case.gap,
        "lower": objective.lower,
        "solvers": lines,
    }


def tried(case: Case, peer: Peer, objective: Objective, folder: Path, limit: float) -> Tries:
    try:
        return tries(case, peer, objective, limit, folder)
    except Exception as error:  # a peer may fail in any way; that is a result
        return Tries(
            [], None, f"failed: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        )


def interleaved(case: Case, found: dict[str, Tries], repeat: int, patience: float) -> dict[str, list[float]]:
    """Seconds of each solver, one after the other in every repetition; slow ones leave out the last of these.

    The order changes with each repetition, so that no solver always runs after the same other one.
    """
    runs: dict[str, Callable[[], Any]] = {own_name(case, gap): partial(ours.solve, case, gap) for gap in case.gaps}
    often = dict.fromkeys(runs, repeat)
    for name, its in found.items():
        if its.best is None or PEERS[name].apart or case.apart:
            continue
        often[name] = min(repeat, int(patience / its.best.seconds))
        if often[name]:
            runs[name] = partial(PEERS[name].ready(case), its.best.effort)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeat):
        for name in random.Random(turn).sample(sorted(runs), len(runs)):
            if turn < often[name]:
                times[name].append(seconds(runs[name]))
    return times


def seconds(run: Callable[[], Any]) -> float:
    gc.collect()
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def own_name(case: Case, gap: float) -> str:
    return ours.NAME if gap == case.gap else f"{ours.NAME}, {gap:g}"


def own_line(
    case: Case, gap: float, first: ours.Run, times: dict[str, list[float]], objective: Objective, reference: ours.Run
) -> dict[str, Any]:
    """`first_seconds` is the first run in this process, which loads kernels or compiles them; it is in no median."""
    outcome, totals = first.outcome, first.outcome.totals
    judged = objective.judge(ours.solution(outcome))
    assert judged.primal is not None
    proven = None if judged.dual is None else (judged.primal - judged.dual) / judged.primal
    return {
        "solver": own_name(case, gap),
        "status": "ran" if proven is not None and proven <= gap else f"not certified: {proven}",
        "effort": gap,
        "effort_is": "certified gap",
        **spread(times[own_name(case, gap)]),
        "first_seconds": first.seconds,
        "primal": judged.primal,
        "dual": judged.dual,
        "certified_gap": proven,
        "suboptimality": objective.suboptimality(judged.primal),
        "score": judged.score,
        "passes": totals.passes,
        "oracle_calls": totals.oracle_calls,
        "ascent_seconds": totals.ascent_seconds,
        "wait_seconds": totals.wait_seconds,
        "cache_bytes": outcome.solver.cache.nbytes,
        "curve": reference.curve if gap == case.gap else [],
    }


def peer_line(name: str, found: Tries, taken: list[float]) -> dict[str, Any]:
    best = found.best
    line: dict[str, Any] = {
        "solver": name,
        "status": found.status,
        "points": [[point.effort, point.seconds, point.suboptimality] for point in found.points],
        "effort_is": PEERS[name].effort,
    }
    missed = [point.seconds for point in found.points if point.suboptimality is not None]
    if best is None:  # it would take longer than its longest try
        return {**line, "more_than": max(missed)} if missed else line
    return {
        **line,
        "effort": best.effort,
        **spread(taken or [best.seconds]),
        "primal": best.primal,
        "suboptimality": best.suboptimality,
        "score": best.score,
    }


def spread(taken: list[float]) -> dict[str, Any]:
    return {
        "seconds": statistics.median(taken),
        "fastest": min(taken),
        "slowest": max(taken),
        "repetitions": len(taken),
    }
