"""Snapshots of a latent run, in addition to that of its trainer. Pure: no files.

They hold the current convex problem, the position in the alternation, and the best finished restart with a trainer
snapshot of its own.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from distdual.coordinator.checkpoint_schema import LATENT_RULE
from distdual.coordinator.latent_loop import Ended, LatentRun, Turn
from distdual.coordinator.row_arrays import Arrays
from distdual.coordinator.schedule import Cause, Stop
from distdual.coordinator.snapshot import State, restore, snapshot_of
from distdual.errors import InputError
from distdual.json_floats import with_infinity, without_infinity
from distdual.problems.latent.base import Completed, LatentProblem
from distdual.report.round_log import Totals
from distdual.schema import array, rising

PLAIN_FIELDS = ("restart", "begun_at", "gap", "tight", "calls", "updates", "reached")
PARTS = ("rows", "constraints", "weights", "files")  # of a trainer's state


class LatentState(NamedTuple):
    arrays: Arrays
    values: dict[str, Any]


def pack_latent(run: LatentRun) -> LatentState:
    """The state of a run whose trainer is between two rounds; arrays are views."""
    assert run.completed is not None
    arrays, best = pack_values(run.completed, ""), run.best
    values = {
        **{name: getattr(run, name) for name in PLAIN_FIELDS},
        "trace": [asdict(turn) for turn in run.trace],
        "spent": [totals.as_dict() for totals in run.spent],
        "best": None,
    }
    if best is not None:
        state = snapshot_of(best.trainer)
        for part in PARTS:
            arrays |= {f"best/{part}/{name}": array for name, array in getattr(state, part).items()}
        arrays |= pack_values(best.completed, "best/")
        values["best"] = {
            "trace": [asdict(turn) for turn in best.trace],
            "stop": asdict(best.stop),
            "state": {**state.values, "history": []},  # the current trainer holds all lines
        }
    return LatentState(arrays, without_infinity(values))


def restore_latent(run: LatentRun, state: LatentState) -> None:
    """Restore a new run, whose trainer is already restored."""
    values = with_infinity(state.values)
    LATENT_RULE("latent.json", values)
    for name in PLAIN_FIELDS:
        setattr(run, name, values[name])
    run.trace = [Turn(**turn) for turn in values["trace"]]
    run.spent = [Totals(**totals) for totals in values["spent"]]
    run.completed = unpack_values(run.problem, state.arrays, "")
    check_latent_examples(run, run.completed)
    if (best := values["best"]) is not None:
        run.best = unpack_best(run, state.arrays, best)


def unpack_best(run: LatentRun, arrays: Arrays, best: Mapping[str, Any]) -> Ended:
    trainer = run.new_trainer()
    parts = [
        {name.split("/", 2)[2]: array for name, array in arrays.items() if name.startswith(f"best/{part}/")}
        for part in PARTS
    ]
    restore(trainer, State(parts[0], parts[1], parts[2], parts[3], without_infinity(best["state"])), [])
    trainer.state.continue_log(run.trainer.state)
    trace = [Turn(**turn) for turn in best["trace"]]
    stop = Stop(Cause(best["stop"]["cause"]), best["stop"]["reason"])
    completed = unpack_values(run.problem, arrays, "best/")
    check_latent_examples(run, completed)
    return Ended(trainer, completed, trace, stop)


def check_latent_examples(run: LatentRun, completed: Completed) -> None:
    """Refuse latent values of other examples; whether each may have its value, its worker checks."""
    n = int(run.trainer.partition.first[-1])
    if completed.n_examples != n:
        raise InputError(f"latent values of {completed.n_examples} examples, the data set has {n}")


def pack_values(completed: Completed, head: str) -> Arrays:
    indptr = {} if completed.indptr is None else {f"{head}indptr": completed.indptr}
    return {f"{head}values": completed.values, **indptr}


def unpack_values(problem: LatentProblem, arrays: Arrays, head: str) -> Completed:
    values = array(f"{head}values", arrays.get(f"{head}values"), np.int32, (None,))
    if not problem.per_token:
        return Completed(problem, values)
    indptr = array(f"{head}indptr", arrays.get(f"{head}indptr"), np.int64, (None,))
    rising(f"{head}indptr", indptr, len(values), least=1)
    return Completed(problem, values, indptr=indptr)
