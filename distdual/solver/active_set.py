"""An active-set method for large groups: Newton steps on all α > 0 of a group at once.

Single and pairwise steps would converge too slowly there.
"""

from typing import Any, NamedTuple

import numpy as np

from distdual.kernels.jit import bare_kernel, inlined_kernel, inner_bare_kernel, specialise
from distdual.kernels.rows import Floats, Ints

LARGE = 16  # fewest constraints of a large group
RIDGE_SHARE = 1e-9  # share of ||x||² added to the diagonal, as rows may be linearly dependent
TINY_GAIN = 1e-9  # share of the gain so far below which steps end


class Scratch(NamedTuple):
    """Buffers for the largest group, so that no visit allocates."""

    gradient: Floats  # (n,)
    delta: Floats  # (n,) changes of α not yet applied to w
    products: Floats  # (n, n) x_kᵀ x_j


class LargeScratch(NamedTuple):
    """The same where a group is large. A type of its own: kernels for small groups take seconds less to compile."""

    gradient: Floats
    delta: Floats
    products: Floats
    face: Ints  # (n,) positions of the α > 0
    factor: Floats  # (n, n) Cholesky factor of the products between them
    step: Floats  # (n,)
    level: Floats  # (n,)


AnyScratch = Scratch | LargeScratch


def scratch_of(group_indptr: Ints, *, jointly: bool) -> AnyScratch:
    """Buffers for these groups; `jointly` if large ones are solved by `solve_large`."""
    n = int(np.diff(group_indptr).max(initial=1))
    small = Scratch(np.empty(n), np.empty(n), np.empty((n, n)))
    if n < LARGE or not jointly:
        return small
    return LargeScratch(*small, np.empty(n, dtype=np.int64), np.empty((n, n)), np.empty(n), np.empty(n))


def solve_if_large(C: float, alpha: Floats, slots: Ints, scratch: AnyScratch) -> float:
    """Apply `solve_large` to a large group; return the gain in D."""
    if isinstance(scratch, LargeScratch) and len(slots) >= LARGE:
        return solve_large(C, alpha, slots, scratch)
    return 0.0


@specialise(solve_if_large)
def _solve_if_large(C: Any, alpha: Any, slots: Any, scratch: Any) -> Any:  # noqa: ARG001 - Numba requires the same names
    def large(C: Any, alpha: Any, slots: Any, scratch: Any) -> Any:
        return solve_large(C, alpha, slots, scratch) if len(slots) >= LARGE else 0.0

    def small(C: Any, alpha: Any, slots: Any, scratch: Any) -> Any:  # noqa: ARG001
        return 0.0

    return large if scratch.instance_class is LargeScratch else small


@bare_kernel
def solve_large(C: float, alpha: Floats, slots: Ints, scratch: LargeScratch) -> float:
    """Maximise D over the α of a group by an active set: Newton steps on those above 0, then one more joins.

    Changes alpha and scratch.gradient, adds the change of each α to scratch.delta; returns the gain in D. Where rows
    depend on each other, a little may be left to do for single steps.
    """
    n, face = len(slots), scratch.face
    g = scratch.gradient[:n]
    used, m = 0.0, 0
    for s in range(n):
        used += alpha[slots[s]]
        if alpha[slots[s]] > 0.0:
            face[m] = s
            m += 1
    full = used >= C * (1.0 - RIDGE_SHARE)
    gain, since, joined = 0.0, 0.0, False
    for _ in range(6 * n):
        price = newton_step(g, m, full, scratch)
        length, out, fills = longest(C - used, alpha, slots, m, full, scratch)
        gained, moved = take_step(length, alpha, slots, m, scratch)
        gain, since, used = gain + gained, since + gained, used + moved
        if out >= 0:
            scratch.delta[face[out]] -= alpha[slots[face[out]]]  # a rounding residue
            alpha[slots[face[out]]] = 0.0
            m -= 1
            face[out] = face[m]
        elif fills:
            full = True
        elif full and price < 0.0:
            full = False
        else:
            best = joining(g, price, m, face)
            if best < 0 or (joined and since <= TINY_GAIN * gain):
                break
            face[m] = best
            m, since, joined = m + 1, 0.0, True
    return gain


@inner_bare_kernel
def take_step(length: float, alpha: Floats, slots: Ints, m: int, scratch: LargeScratch) -> tuple[float, float]:
    """Move along scratch.step; return the gain in D, which is quadratic, and the growth of Σ α."""
    g, face, step = scratch.gradient[: len(slots)], scratch.face, scratch.step
    slope, moved = 0.0, 0.0
    for i in range(m):
        slope += step[i] * g[face[i]]
    for i in range(m):
        before = scratch.delta[face[i]]
        shift_alpha(face[i], length * step[i], alpha, slots, scratch.delta, g, scratch.products)
        moved += scratch.delta[face[i]] - before
    for i in range(m):
        slope += step[i] * g[face[i]]
    return 0.5 * length * slope, moved


@inner_bare_kernel
def newton_step(g: Floats, m: int, full: bool, scratch: LargeScratch) -> float:
    """Fill scratch.step with the step to the best point of the face, and return the multiplier of Σ α ≤ C.

    step = G⁻¹ (g − price · 1),     price so that Σ step = 0 where C is used up, else 0
    """
    face, factor, products = scratch.face, scratch.factor, scratch.products
    step, level = scratch.step, scratch.level
    for i in range(m):
        for j in range(i + 1):
            total = products[face[i], face[j]] * (1.0 + RIDGE_SHARE * (i == j))
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            if i > j:
                factor[i, j] = total / factor[j, j]
            else:
                factor[i, i] = np.sqrt(max(total, RIDGE_SHARE * products[face[i], face[i]], np.finfo(np.float64).tiny))
        step[i], level[i] = g[face[i]], 1.0
    back_solve(factor, m, step)
    if not full:
        return 0.0
    back_solve(factor, m, level)
    above, below = 0.0, 0.0
    for i in range(m):
        above += step[i]
        below += level[i]
    price = above / below if below > 0.0 else 0.0
    total = 0.0
    for i in range(m):
        step[i] -= price * level[i]
        total += step[i]
    for i in range(m):
        step[i] -= total / m  # linearly dependent rows leave more than a rounding error
    return price


@inner_bare_kernel
def back_solve(factor: Floats, m: int, x: Floats) -> None:
    """x ← (F Fᵀ)⁻¹ x, F the lower triangle."""
    for i in range(m):
        total = x[i]
        for k in range(i):
            total -= factor[i, k] * x[k]
        x[i] = total / factor[i, i]
    for i in range(m - 1, -1, -1):
        x[i] /= factor[i, i]
        for k in range(i):
            x[k] -= factor[i, k] * x[i]


@bare_kernel
def longest(
    room: float, alpha: Floats, slots: Ints, m: int, full: bool, scratch: LargeScratch
) -> tuple[float, int, bool]:
    """Return the feasible share of a step, the α of the face that it takes to 0, or −1, and whether it uses up C."""
    length, out, total = 1.0, -1, 0.0
    for i in range(m):
        step, left = scratch.step[i], alpha[slots[scratch.face[i]]]
        total += step
        if step < 0.0 and left <= -length * step:
            length, out = -left / step, i
    if not full and total > 0.0 and length * total > room:
        return max(0.0, room / total), -1, True
    return length, out, False


@inner_bare_kernel
def joining(g: Floats, price: float, m: int, face: Ints) -> int:
    """Return the position outside the face with the largest gradient above `price`, or −1."""
    best, largest = -1, price
    for s in range(len(g)):
        if g[s] > largest:
            inside = False
            for i in range(m):
                inside = inside or face[i] == s
            if not inside:
                best, largest = s, g[s]
    return best


@inlined_kernel
def shift_alpha(s: int, step: float, alpha: Floats, slots: Ints, delta: Floats, g: Floats, products: Floats) -> None:
    """α_s += step, and update the gradients of the group."""
    old = alpha[slots[s]]
    alpha[slots[s]] = max(0.0, old + step)
    delta[s] += alpha[slots[s]] - old
    for r in range(len(g)):
        g[r] -= step * products[s, r]
