"""Extrapolation: a line search along the direction of the last sweeps.

Where many α depend on each other, sweeps zigzag and each makes little progress in the same direction.

    α ← α + share · d,     d_k = length_i · (α_k − before_k),     share = argmax D on [0, 1]

`length` maximises D without bounds. A group that would leave its bounds takes a shorter step, and α at a bound stays
there, so α stays feasible and D never falls. Requires R(w) = 1/2 ||w||², where w = Σ α x.
"""

import numpy as np

from distdual.kernels.jit import bare_kernel, inner_bare_kernel
from distdual.kernels.rows import Floats, Ints, Rows, add

PACE = 4  # sweeps between two extrapolations
WIDEST = 16  # most weights per group, so that reading w takes no longer than a sweep
ROUNDING = 1e-13  # share of C by which Σ α may exceed it, so that a rounding error does not block a group


@bare_kernel
def remember(
    alpha: Floats, members: Ints, group_indptr: Ints, groups: Ints, before: Floats, w: Floats, w_before: Floats
) -> None:
    """Record the α of these groups and w."""
    for i in groups:
        for s in range(group_indptr[i], group_indptr[i + 1]):
            before[members[s]] = alpha[members[s]]
    for j in range(len(w)):
        w_before[j] = w[j]


@bare_kernel
def stride(
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    capacity: Floats,
    members: Ints,
    group_indptr: Ints,
    groups: Ints,
    before: Floats,
    w: Floats,
    w_before: Floats,
) -> float:
    """Extrapolate the α of these groups, the only ones that moved since `remember`, and w; return the gain in D."""
    linear = 0.0
    for i in groups:
        for s in range(group_indptr[i], group_indptr[i + 1]):
            linear += margin[members[s]] * (alpha[members[s]] - before[members[s]])
    for j in range(len(w)):
        w_before[j] = w[j] - w_before[j]
    length, _ = best_length(linear, w, w_before)
    w_before[:] = 0.0
    linear = 0.0
    for i in groups:
        own = min(length, longest_within(alpha, capacity[i], members, group_indptr[i], group_indptr[i + 1], before))
        for s in range(group_indptr[i], group_indptr[i + 1]):
            k = members[s]
            before[k] = own * (alpha[k] - before[k]) if alpha[k] > 0.0 else 0.0
            if before[k] != 0.0:
                linear += before[k] * margin[k]
                add(rows, k, before[k], w_before)
    best, gain = best_length(linear, w, w_before)
    share = min(1.0, best)
    if share == 0.0:
        return 0.0
    for i in groups:
        for s in range(group_indptr[i], group_indptr[i + 1]):
            k = members[s]
            changed = min(alpha[k] + share * before[k], capacity[i])
            alpha[k] = changed if changed > 1e-15 * alpha[k] else 0.0  # drop rounding residues
    for j in range(len(w)):
        w[j] += share * w_before[j]
    return gain if best <= 1.0 else gain * (2.0 * best - 1.0) / best**2


@inner_bare_kernel
def best_length(linear: float, w: Floats, along: Floats) -> tuple[float, float]:
    """Return the t ≥ 0 that maximises t · linear − 1/2 ||w + t · along||², and the gain over t = 0."""
    slope, bend = linear, 0.0
    for j in range(len(w)):
        slope -= w[j] * along[j]
        bend += along[j] * along[j]
    if not (slope > 0.0 and bend > 0.0):
        return 0.0, 0.0
    return slope / bend, 0.5 * slope * slope / bend


@inner_bare_kernel
def longest_within(alpha: Floats, C: float, members: Ints, begin: int, end: int, before: Floats) -> float:
    """Return how many times a group can repeat the change of its α > 0 within its bounds."""
    used, rise, length = 0.0, 0.0, np.inf
    for s in range(begin, end):
        k = members[s]
        used += alpha[k]
        if alpha[k] > 0.0:
            way = alpha[k] - before[k]
            rise += way
            if way < 0.0:
                length = min(length, -alpha[k] / way)
    return max(0.0, min(length, (C * (1.0 + ROUNDING) - used) / rise)) if rise > 0.0 else length
