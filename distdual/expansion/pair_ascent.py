"""Ascent on the dual of a kernel machine, two variables at a time.

    max over lo ≤ b ≤ hi     D(b) = ⟨t, b⟩ − 1/2 ⟨b, K b⟩          b_i = y_i α_i,   t_i = y_i l_i

The gradient h = t − K b is kept up to date, so that a step reads two rows of K. The first variable of a pair is the one
that gains most by itself, the second the one that gains most together with it (working set selection by second-order
information: Fan, Chen and Lin, 2005).
"""

from typing import Any

from distdual.kernels.jit import bare_kernel, inlined_kernel
from distdual.kernels.rows import Floats


@inlined_kernel
def clipped(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


@inlined_kernel
def pair_value(gi: float, gj: float, qi: float, q: float, qj: float, a: float, b: float) -> float:
    """What D gains by steps a and b."""
    return gi * a + gj * b - 0.5 * (qi * a * a + 2.0 * q * a * b + qj * b * b)


@bare_kernel
def best_single(b: Floats, h: Floats, low: Floats, high: Floats, diagonal: Floats) -> int:
    """The variable with the largest gain of a step of its own; −1 if none gains."""
    best, at = 0.0, -1
    for i in range(len(b)):
        step = clipped(h[i] / diagonal[i], low[i] - b[i], high[i] - b[i])
        gain = step * (h[i] - 0.5 * step * diagonal[i])
        if gain > best:
            best, at = gain, i
    return at


@bare_kernel
def best_partner(i: int, row: Any, b: Floats, h: Floats, low: Floats, high: Floats, diagonal: Floats) -> int:
    """The variable that gains most after a step of i; −1 if none gains."""
    step = clipped(h[i] / diagonal[i], low[i] - b[i], high[i] - b[i])
    best, at = 0.0, -1
    for j in range(len(b)):
        q = float(row[j])
        rest = h[j] - q * step
        if (rest > 0.0 and b[j] < high[j]) or (rest < 0.0 and b[j] > low[j]):
            curvature = max(diagonal[j] - q * q / diagonal[i], 1e-12 * diagonal[j])
            gain = rest * rest / curvature
            if gain > best and j != i:
                best, at = gain, j
    return at


@bare_kernel
def ascend_pairs(kernel: Any, b: Floats, h: Floats, low: Floats, high: Floats, diagonal: Floats, steps: int) -> int:
    """Take up to `steps` steps and return how many; changes b and h.

    `kernel` is (m, m) or the upper left part of a larger matrix; diagonal_i > 0.
    """
    for done in range(steps):
        i = best_single(b, h, low, high, diagonal)
        if i < 0:
            return done
        row = kernel[i]
        j = best_partner(i, row, b, h, low, high, diagonal)
        if j < 0:
            step = clipped(h[i] / diagonal[i], low[i] - b[i], high[i] - b[i])
            b[i] += step
            for k in range(len(b)):
                h[k] -= step * row[k]
            continue
        gi, gj, qi, qj, q = h[i], h[j], diagonal[i], diagonal[j], float(row[j])
        li, ui, lj, uj = low[i] - b[i], high[i] - b[i], low[j] - b[j], high[j] - b[j]
        x, y, best = 0.0, 0.0, -1.0
        det = qi * qj - q * q
        if det > 1e-12 * qi * qj:
            x, y = (gi * qj - gj * q) / det, (gj * qi - gi * q) / det
            if li <= x <= ui and lj <= y <= uj:
                best = pair_value(gi, gj, qi, q, qj, x, y)
        if best < 0.0:  # the maximum over a box is inside or on an edge
            for edge in range(4):
                if edge < 2:
                    u = li if edge == 0 else ui
                    v = clipped((gj - q * u) / qj, lj, uj)
                else:
                    v = lj if edge == 2 else uj
                    u = clipped((gi - q * v) / qi, li, ui)
                value = pair_value(gi, gj, qi, q, qj, u, v)
                if value > best:
                    x, y, best = u, v, value
        b[i] = clipped(b[i] + x, low[i], high[i])
        b[j] = clipped(b[j] + y, low[j], high[j])
        other = kernel[j]
        for k in range(len(b)):
            h[k] -= x * row[k] + y * other[k]
    return steps
