"""Sweeps of coordinate ascent on D(α) over the cached constraints.

    D(α) = Σ_k α_k l_k − R*(v),     v = Σ_k α_k x_k,     α ≥ 0,     Σ_{k of i} α_k ≤ C_i
    g_k  = ∂D/∂α_k = l_k − ⟨w, x_k⟩,     w = ∇R*(v)     (w = v without a prior)

A sweep visits short runs of neighbouring groups in random order, so that most rows are read from memory in sequence. It
returns its gain, so that the caller can weigh another sweep against a scan. group_step.py implements the visits.
"""

from typing import Any

import numpy as np

from distdual.kernels.jit import bare_kernel, fetch, inlined_kernel, inner_kernel, kernel
from distdual.kernels.rows import Floats, Ints, Rows, add, dot, fetch_row
from distdual.solver.active_set import AnyScratch
from distdual.solver.group_step import improve, improve_alone
from distdual.solver.metric import Space

RUN = 16  # most neighbours per run
FEW = 64  # fewest runs of more than one group
SOON = 8  # visits ahead to prefetch rows, as memory latency is that of several visits
QUARTERS = 4  # parts of a sweep, after each of which w is averaged


@inner_kernel
def counted_up(n: int) -> Ints:
    """0 … n − 1. To compile np.arange takes half a second."""
    found = np.empty(n, dtype=np.int64)
    for k in range(n):
        found[k] = k
    return found


@kernel
def shuffle_runs(chosen: Ints, random: Any) -> Ints:
    """Return `chosen` with its short runs in random order (Fisher-Yates, xorshift64*); advances `random`."""
    run = max(1, min(RUN, len(chosen) // FEW))
    runs = counted_up(-(-len(chosen) // run))
    for i in range(len(runs) - 1, 0, -1):
        random[0] ^= random[0] >> np.uint64(12)
        random[0] ^= random[0] << np.uint64(25)
        random[0] ^= random[0] >> np.uint64(27)
        j = np.int64((random[0] * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(33)) % (i + 1)
        runs[i], runs[j] = runs[j], runs[i]
    order, at = np.empty(len(chosen), dtype=np.int64), 0  # np.empty_like takes longer to compile
    for turn in range(len(runs)):
        for place in range(runs[turn] * run, min((runs[turn] + 1) * run, len(chosen))):
            order[at] = chosen[place]
            at += 1
    return order


@bare_kernel
def average(mean: Floats, w: Floats, due: int, n_turns: int) -> int:
    """Add w to the running average `mean`, after each quarter of a sweep; return the turn of the next call.

    Comparing turns with it is cheaper than a division at every visit.
    """
    for j in range(len(mean)):
        mean[j] += w[j] / QUARTERS
    quarter = n_turns // QUARTERS
    return due + quarter if due < QUARTERS * quarter else 0


@inlined_kernel
def fetch_constraint(rows: Rows, margin: Floats, alpha: Floats, curve: Floats, k: int) -> None:
    """Prefetch a row and its scalars into the processor's cache."""
    fetch_row(rows, k)
    fetch(margin, k)
    fetch(alpha, k)
    fetch(curve, k)


@bare_kernel
def sweep_single(
    space: Space,
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    capacity: Floats,
    slots: Ints,
    w: Floats,
    v: Floats,
    active: Ints,
    mean: Floats,
) -> tuple[float, float, int]:
    """Sweep once, in this order, over constraints that each have a slack of their own.

    Changes alpha, w, v. Returns the gain in D; Σ C_k max(0, g_k), each at the w of its visit, which is UB′ (23) less
    R(w); and the number of slots written to `active`: those that moved or are free. The others are at a bound with
    the gradient pointing outwards, which a later full sweep checks. Fills `mean`, unless it is empty, with the average
    of w over the sweep.
    """
    gain, loss, n_active, due = 0.0, 0.0, 0, len(slots) // QUARTERS
    for turn in range(len(slots)):
        k = slots[turn]
        if turn + SOON < len(slots):
            fetch(capacity, slots[turn + SOON])
            fetch_constraint(rows, margin, alpha, curve, slots[turn + SOON])
        gained, g, free = improve_alone(space, rows, margin, alpha, curve, capacity[k], k, w, v)
        gain += gained
        if g > 0.0 and capacity[k] < np.inf:
            loss += capacity[k] * g
        if free:
            active[n_active] = k
            n_active += 1
        if turn + 1 == due:
            due = average(mean, w, due, len(slots))
    return gain, loss, n_active


@bare_kernel
def sweep_shared(
    space: Space,
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    capacity: Floats,
    members: Ints,
    group_indptr: Ints,
    scratch: AnyScratch,
    groups: Ints,
    w: Floats,
    v: Floats,
    active: Ints,
    mean: Floats,
) -> tuple[float, float, int]:
    """Sweep once over groups of constraints that share a slack, like `sweep_single`; `capacity` is per group."""
    gain, loss, n_active, due = 0.0, 0.0, 0, len(groups) // QUARTERS
    for turn in range(len(groups)):
        i = groups[turn]
        if turn + SOON < len(groups):
            later = groups[turn + SOON]
            fetch(capacity, later)
            for s in range(group_indptr[later], group_indptr[later + 1]):
                fetch_constraint(rows, margin, alpha, curve, members[s])
        C, slots = capacity[i], members[group_indptr[i] : group_indptr[i + 1]]
        if len(slots) == 1:
            gained, worst, moved = improve_alone(space, rows, margin, alpha, curve, C, slots[0], w, v)
        else:
            gained, worst, moved = improve(space, rows, margin, alpha, curve, C, slots, w, v, scratch)
        gain += gained
        if worst > 0.0 and np.isfinite(C):
            loss += C * worst
        if moved:
            active[n_active] = i
            n_active += 1
        if turn + 1 == due:
            due = average(mean, w, due, len(groups))
    return gain, loss, n_active


@bare_kernel
def add_rows(rows: Rows, alpha: Floats, v: Floats) -> None:
    """Rebuild v ← Σ_k α_k x_k, so that rounding does not accumulate."""
    v[:] = 0.0
    for k in range(len(alpha)):
        if alpha[k] != 0.0:
            add(rows, k, alpha[k], v)


@bare_kernel
def slacks(rows: Rows, margin: Floats, w: Floats, out: Floats) -> None:
    """l_k − ⟨w, x_k⟩ of each constraint; fills `out`."""
    for k in range(len(margin)):
        out[k] = margin[k] - dot(rows, k, w)


@bare_kernel
def group_losses(
    rows: Rows, margin: Floats, members: Ints, group_indptr: Ints, capacity: Floats, w: Floats, losses: Floats
) -> None:
    """C_i · max(0, max_k l_k − ⟨w, x_k⟩) of each group that has a slack, all at this w; fills `losses`."""
    for group in range(len(capacity)):
        losses[group] = group_loss(rows, margin, members, group_indptr, capacity, w, group)


@inlined_kernel
def group_loss(
    rows: Rows, margin: Floats, members: Ints, group_indptr: Ints, capacity: Floats, w: Floats, group: int
) -> float:
    """C_i · max(0, max_k l_k − ⟨w, x_k⟩) of one group; 0 without a slack."""
    worst = 0.0
    for s in range(group_indptr[group], group_indptr[group + 1]):
        worst = max(worst, margin[members[s]] - dot(rows, members[s], w))
    return float(capacity[group] * worst) if capacity[group] < np.inf else 0.0
