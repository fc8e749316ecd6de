"""Sweeps in turn over what may still move.

The loop is Python: compiled around its sweeps, it would have them compiled twice.
"""

from typing import Any

import numpy as np

from distdual.kernels.rows import Floats, Ints
from distdual.solver.cache import View
from distdual.solver.extrapolate import WIDEST, remember, stride
from distdual.solver.sweep import shuffle_runs, sweep_shared, sweep_single

CLIMB = 100  # most sweeps over active groups before a full one: rounding can feign gains forever
NO_MEAN: Floats = np.empty(0)


def is_single(view: View) -> bool:
    """Whether no two constraints share a slack; groups are then visited by the slots of their constraints."""
    return len(view.capacity) == len(view.alpha)


def sweep(
    view: View, chosen: Ints, random: Any, w: Floats, v: Floats, mean: Floats = NO_MEAN
) -> tuple[float, float, Ints]:
    """Sweep once over the chosen groups in random order; return gain, loss and active groups, as `sweep_single`."""
    columns = (view.space, view.rows, view.margin, view.alpha, view.curve)
    active, order = np.empty(len(chosen), dtype=np.int64), shuffle_runs(chosen, random)
    if is_single(view):
        gain, loss, n_active = sweep_single(*columns, view.most, order, w, v, active, mean)
    else:
        groups = (view.capacity, view.members, view.group_indptr, view.scratch)
        gain, loss, n_active = sweep_shared(*columns, *groups, order, w, v, active, mean)
    return gain, loss, active[:n_active]


def climb(
    view: View, active: Ints, random: Any, w: Floats, v: Floats, gain: float, work: int, pace: int
) -> tuple[float, int]:
    """Sweep over active groups while that gains more per visit than all so far; return total gain and work.

    After every `pace` of them a stride, unless that is 0.
    """
    before, w_before, begun = np.empty(len(view.alpha) if pace else 0), np.empty(len(w) if pace else 0), active
    groups, striding = _groups(view), False
    for turn in range(CLIMB):
        if not len(active):
            break
        if pace and turn % pace == 0:
            striding = len(w) <= WIDEST * len(active)
            if striding:
                begun = active
                remember(view.alpha, *groups, begun, before, w, w_before)
        cost = len(active)
        gained, _, active = sweep(view, active, random, w, v)
        if striding and turn % pace == pace - 1:
            most = view.most if is_single(view) else view.capacity
            gained += stride(view.rows, view.margin, view.alpha, most, *groups, begun, before, w, w_before)
            cost += len(begun)
        gain += gained
        work += cost
        if not (gained > 0.0 and gained * work > gain * cost):
            break
    return gain, work


def _groups(view: View) -> tuple[Ints, Ints]:
    """The slots of each group, one after the other, and where they begin."""
    if is_single(view):
        slots = np.arange(len(view.alpha) + 1)
        return slots, slots
    return view.members, view.group_indptr
