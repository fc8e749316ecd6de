"""The exact maximiser of D(α) over the constraints of a single slack group, by an active set.

    max l·α − 1/2 αᵀ G α,    α ≥ 0,   Σ α ≤ C,    G = X Xᵀ

Rows of one group are nearly parallel, so steps along single α, or pairs, take very many. There are few rows: each
iteration solves the equations of the free α at once. A row of zeros with margin 0 takes what is left of C.
"""

import numpy as np

from distdual.kernels.rows import Bools, Floats, Ints

FACE_RIDGE = 1e-13  # relative to the diagonal: dependent rows have a solution, too
TOLERANCE = 1e-12  # of a gradient, relative to the largest margin


def best_alpha(rows: Floats, margin: Floats, alpha: Floats, C: float) -> Floats:
    """The optimum, from a feasible start; feasible whatever rounding does, and never worse than the start."""
    x, level = np.vstack([rows, np.zeros(rows.shape[1])]), np.append(margin, 0.0)
    gram = x @ x.T
    start = np.append(alpha, max(0.0, C - float(alpha.sum())))
    found = start * (C / float(start.sum()))
    free = found > 0.0
    for _ in range(20 * len(level)):
        target, price = on_face(gram, level, free, C)
        if (target < 0.0).any():
            found, free = up_to_boundary(found, target, free)
            continue
        found = target
        gradient = level - gram @ found
        entering = int(np.argmax(np.where(free, -np.inf, gradient)))
        if free.all() or gradient[entering] <= price + TOLERANCE * max(1.0, float(np.abs(level).max())):
            break
        free[entering] = True
    made: Floats = np.maximum(found, 0.0)[:-1]
    made *= min(1.0, C / float(made.sum())) if made.any() else 1.0
    return made if value(gram, level, made) >= value(gram, level, alpha) else alpha.copy()


def value(gram: Floats, level: Floats, alpha: Floats) -> float:
    n = len(alpha)
    return float(level[:n] @ alpha - 0.5 * alpha @ (gram[:n, :n] @ alpha))


def on_face(gram: Floats, level: Floats, free: Bools, C: float) -> tuple[Floats, float]:
    """The optimum with Σ α = C over the free α, of any sign, and the multiplier of the sum."""
    at: Ints = np.flatnonzero(free)
    n, scale = len(at), max(float(gram.diagonal().max()), 1e-300)
    system = np.zeros((n + 1, n + 1))
    system[:n, :n] = gram[np.ix_(at, at)] / scale
    system[:n, :n] += FACE_RIDGE * np.eye(n)
    system[:n, n] = system[n, :n] = 1.0
    found = np.linalg.solve(system, np.append(level[at] / scale, C))
    target = np.zeros(len(level))
    target[at] = found[:n]
    return target, float(found[n]) * scale


def up_to_boundary(found: Floats, target: Floats, free: Bools) -> tuple[Floats, Bools]:
    """The step towards the target until the first α is 0, which leaves the face."""
    falling = np.flatnonzero(free & (target < 0.0))
    share = found[falling] / (found[falling] - target[falling])
    first = int(np.argmin(share))
    moved = found + float(share[first]) * (target - found)
    moved[falling[first]] = 0.0
    left = free.copy()
    left[falling[first]] = False
    return np.maximum(moved, 0.0), left
