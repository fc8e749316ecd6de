"""Conjugate gradients on the free α, with all others fixed.

Where many α depend on each other, sweeps zigzag and extrapolated steps are short. Once the set of free α has settled,
a linear system remains, for conjugate gradients preconditioned by ||x_k||²:

    d = argmax  ⟨g, d⟩ − 1/2 ||Σ_k d_k x_k||²     over the d_k of free α_k; Σ d = 0 in groups whose slack is used up

A group that would leave its bounds takes a shorter step, followed by a line search, so α stays feasible and D never
falls; sweeps then find another face (Moré and Toraldo, GPCG). Requires R(w) = 1/2 ||w||², where w = Σ α x.
"""

from typing import NamedTuple

import numpy as np

from distdual.kernels.jit import bare_kernel, kernel
from distdual.kernels.rows import Floats, Ints, Rows, add, dot, product
from distdual.solver.extrapolate import WIDEST

USED_UP = 1.0 - 1e-12  # of C, from which on a slack is taken to be used up
ROUNDING = 1e-13  # share of C by which Σ α may be above it, as for strides
FLAT = (
    1e-10  # of the curvature that rows apart would have: below, they depend on each other, and rounding leads the way
)
SMALL = 1e-3  # of its first value, at which what is left of the gradient is not worth another step


class Face(NamedTuple):
    """The free α of some groups, one group after the other."""

    slots: Ints  # (n,)
    indptr: Ints  # (n_groups + 1,) into slots
    tight: Ints  # (n_groups,) 1 where some are free but the slack is used up: what one α gains, another has to give


@kernel
def ascend_face(
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    capacity: Floats,
    members: Ints,
    group_indptr: Ints,
    groups: Ints,
    w: Floats,
    budget: int,
) -> tuple[float, int]:
    """Conjugate gradients for these groups, for about so many visits; returns the gain in D and the visits it took.

    Changes alpha and w. At an optimum no more α are free than there are weights and slacks that are used up, unless
    rows depend on each other: where more are, the face is not yet found, and nothing is done.
    """
    face = find_face(alpha, curve, capacity, members, group_indptr, groups)
    n = len(face.slots)
    if n == 0 or n > len(w) + face.tight.sum():
        return 0.0, len(groups)
    turn = 2 * n + len(w) // WIDEST
    g, d, along = np.empty(n), np.zeros(n), np.empty(len(w))
    for s in range(n):
        g[s] = margin[face.slots[s]] - dot(rows, face.slots[s], w)
    turns = conjugate_gradients(rows, curve, face, g.copy(), budget // turn, d, along)
    shorten(alpha, capacity, members, group_indptr, groups, face, d)
    slope, bend = product(g, d), combine(rows, face.slots, d, along)
    work = len(groups) + turn * (turns + 1)
    if not (slope > 0.0 and bend > 0.0):
        return 0.0, work
    share = min(1.0, slope / bend)
    for t in range(len(groups)):
        for s in range(face.indptr[t], face.indptr[t + 1]):
            k = face.slots[s]
            changed = min(alpha[k] + share * d[s], capacity[groups[t]])
            alpha[k] = changed if changed > 1e-15 * alpha[k] else 0.0  # what rounding has left is nothing
    for j in range(len(w)):
        w[j] += share * along[j]
    return share * (slope - 0.5 * share * bend), work


@kernel
def find_face(alpha: Floats, curve: Floats, capacity: Floats, members: Ints, group_indptr: Ints, groups: Ints) -> Face:
    """Which α of these groups are above 0 and have somewhere to go; zero rows, without curvature, are not in it."""
    n = 0
    for i in groups:
        n += group_indptr[i + 1] - group_indptr[i]
    slots, indptr, tight = np.empty(n, np.int64), np.zeros(len(groups) + 1, np.int64), np.zeros(len(groups), np.int64)
    n = 0
    for t in range(len(groups)):
        used, begin = 0.0, n
        for s in range(group_indptr[groups[t]], group_indptr[groups[t] + 1]):
            k = members[s]
            used += alpha[k]
            if alpha[k] > 0.0 and curve[k] > 0.0:
                slots[n] = k
                n += 1
        if used >= USED_UP * capacity[groups[t]]:
            n = n if n - begin > 1 else begin
            tight[t] = 1 if n > begin else 0
        indptr[t + 1] = n
    return Face(slots[:n], indptr, tight)


@kernel
def conjugate_gradients(rows: Rows, curve: Floats, face: Face, r: Floats, most: int, d: Floats, along: Floats) -> int:
    """Add to d what maximises D on the face, r being the gradient there, which is used up; returns the steps taken."""
    n = len(r)
    z = np.empty(n)
    size = precondition(curve, face, r, z)
    p, first = z.copy(), size
    for turn in range(most):
        if not size > SMALL * first:
            return turn
        bend, apart = combine(rows, face.slots, p, along), 0.0
        for s in range(n):
            apart += p[s] * p[s] * curve[face.slots[s]]
        if not bend > FLAT * apart:
            return turn
        step = size / bend
        for s in range(n):
            d[s] += step * p[s]
            r[s] -= step * dot(rows, face.slots[s], along)
        before, size = size, precondition(curve, face, r, z)
        for s in range(n):
            p[s] = z[s] + size / before * p[s]
    return most


@bare_kernel
def precondition(curve: Floats, face: Face, r: Floats, z: Floats) -> float:
    """z_k = (r_k − μ) / ||x_k||², with μ so that Σ z = 0 in groups whose slack is used up, else 0; returns ⟨r, z⟩."""
    size = 0.0
    for t in range(len(face.tight)):
        above, below = 0.0, 0.0
        for s in range(face.indptr[t], face.indptr[t + 1]):
            above += r[s] / curve[face.slots[s]]
            below += 1.0 / curve[face.slots[s]]
        mean = above / below if face.tight[t] == 1 and below > 0.0 else 0.0
        for s in range(face.indptr[t], face.indptr[t + 1]):
            z[s] = (r[s] - mean) / curve[face.slots[s]]
            size += r[s] * z[s]
    return size


@bare_kernel
def combine(rows: Rows, slots: Ints, weight: Floats, along: Floats) -> float:
    """along ← Σ_s weight_s x_s; returns its ||·||²."""
    along[:] = 0.0
    for s in range(len(slots)):
        if weight[s] != 0.0:
            add(rows, slots[s], weight[s], along)
    return product(along, along)


@bare_kernel
def shorten(
    alpha: Floats, capacity: Floats, members: Ints, group_indptr: Ints, groups: Ints, face: Face, d: Floats
) -> None:
    """Scale the way of each group so that α ≥ 0 and Σ α ≤ C at its end."""
    for t in range(len(groups)):
        used, rise, length = 0.0, 0.0, 1.0
        for s in range(group_indptr[groups[t]], group_indptr[groups[t] + 1]):
            used += alpha[members[s]]
        for s in range(face.indptr[t], face.indptr[t + 1]):
            rise += d[s]
            if d[s] < 0.0:
                length = min(length, -alpha[face.slots[s]] / d[s])
        if rise > 0.0:  # by rounding, where the slack is used up
            length = min(length, max(0.0, capacity[groups[t]] * (1.0 + ROUNDING) - used) / rise)
        for s in range(face.indptr[t], face.indptr[t + 1]):
            d[s] *= length
