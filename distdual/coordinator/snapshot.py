"""Snapshots of a run between two rounds, from which it continues bit by bit. Pure: no files.

A snapshot holds plain arrays and JSON values. It leaves out what follows from them or from the config: which slots
share a slack, and the shards. The ledger's file is stored separately, since it only ever grows.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from distdual.certificate.bounds import ShardLoss
from distdual.coordinator.checkpoint_schema import (
    STATE,
    check_constraint_columns,
    check_files,
    check_underway,
    check_weights,
)
from distdual.coordinator.pass_underway import PassUnderway
from distdual.coordinator.row_arrays import Arrays, check_rows, pack_rows, unpack_rows
from distdual.coordinator.schedule import Pass, Piece
from distdual.coordinator.trainer import Trainer
from distdual.errors import InputError
from distdual.json_floats import with_infinity, without_infinity
from distdual.kernels.rows import Floats
from distdual.scan.slack import Slack
from distdual.solver.ascent_plan import Ascent
from distdual.solver.solver import Solver
from distdual.solver.sweep import add_rows

SUM_ERROR = 1e-6  # of the largest weight: rounding accumulated since v was last rebuilt


class State(NamedTuple):
    rows: Arrays  # of the cache
    constraints: Arrays  # its other columns
    weights: Arrays  # v, w, other arrays of their length, and the random state
    files: Arrays  # of members and of the ledger
    values: dict[str, Any]


def snapshot_of(trainer: Trainer) -> State:
    """The state of a run between two rounds; arrays are views that the next round changes."""
    cache = trainer.solver.cache
    weights, solver = trainer.solver.packed()
    underway = trainer.suspended()
    asked = {} if underway is None or underway.w is None else {"asked": underway.w}
    files, partition = trainer.partition.packed()
    values = {
        "referenced": cache.referenced,
        "solver": solver,
        "partition": partition,
        **trainer.state.packed(underway),
    }
    return State(
        pack_rows(cache.rows.view if cache.rows else None),
        cache.columns(),
        {**weights, **asked, "best_w": trainer.state.best_w},
        files,
        without_infinity(values),
    )


def restore(trainer: Trainer, state: State, ledger: Iterable[bytes], *, more_data: bool = False) -> None:
    """Restore a new run to a snapshot; `ledger` is the content of the ledger file, in pieces.

    With appended data, α stays feasible and `lower` stays a bound, but upper bounds are void.
    """
    values = with_infinity(state.values)
    check_state(trainer, state, values)
    trainer.solver.cache.restore(unpack_rows(state.rows), state.constraints, referenced=values["referenced"])
    trainer.solver.cache.check_gram()
    trainer.solver.restore(state.weights, values["solver"])
    check_sum(trainer.solver)
    trainer.partition.restore(state.files, values["partition"], ledger)
    trainer.state.restore_log(values, trainer.solver.candidate())
    if more_data:
        trainer.solver.forget_upper()
        trainer.solver.bound()  # a pass that was under way is not continued
    else:
        underway = unpack_underway(values["underway"], state.weights.get("asked"))
        trainer.state.restore_bounds(values["bounds"], state.weights["best_w"], underway)


def check_state(trainer: Trainer, state: State, values: Mapping[str, Any]) -> None:
    """Refuse a state with which kernels could crash."""
    STATE("state.json", values)
    cache, partition, first = trainer.solver.cache, trainer.partition, trainer.partition.first
    n = check_constraint_columns(state.constraints, cache, int(first[-1]))
    check_rows(state.rows, n, cache.n_weights)
    check_weights(state.weights, cache.n_weights)
    check_files(state.files, values["partition"]["n_mixtures"], len(first) - 1, state.constraints["reference"])
    check_underway(values["underway"], np.diff(partition.first))


def check_sum(solver: Solver) -> None:
    """w = ∇R*(Σ α x), up to the rounding of steps."""
    v = np.zeros(solver.prior.n_weights)
    if solver.cache.rows is not None:
        add_rows(solver.cache.rows.view, solver.cache.alpha.view, v)
    expected = solver.prior.weights(v)
    off = float(np.abs(expected - solver.w).max(initial=0.0))
    if not off <= SUM_ERROR * max(1.0, float(np.abs(expected).max(initial=0.0))):
        raise InputError(f"w is not Σ α x: one weight is off by {off:.2g}")


def unpack_underway(found: Mapping[str, Any] | None, w: Floats | None) -> PassUnderway | None:
    if found is None:
        return None
    plan = found["plan"]
    rounds = tuple(tuple(Piece(*piece) for piece in pieces) for pieces in plan["rounds"])
    ascents = {name: Ascent(**plan[name]) for name in ("between", "last")}
    losses = [ShardLoss(*loss) for loss in found["losses"]]
    made = {"plan": Pass(**{**plan, "rounds": rounds, **ascents}), "slack": Slack(**found["slack"]), "losses": losses}
    return PassUnderway(**{**found, **made, "w": w})
