"""Ascent on the dual of a kernel machine, two variables at a time.

    max over lo ≤ b ≤ hi     D(b) = ⟨t, b⟩ − ε Σ |b_i| − 1/2 ⟨b, K b⟩          lo ≤ 0 ≤ hi

The gradient h = t − K b is kept up to date, so that a step reads two rows of K. The first variable of a pair is the one
that gains most by itself, the second the one that gains most together with it (working set selection by second-order
information: Fan, Chen and Lin, 2005).
"""

from typing import Any

from distdual.kernels.jit import bare_kernel, inlined_kernel, inner_bare_kernel
from distdual.kernels.rows import Floats


@inlined_kernel
def clipped(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


@inlined_kernel
def pair_value(gi: float, gj: float, qi: float, q: float, qj: float, a: float, b: float) -> float:
    """What D gains by steps a and b."""
    return gi * a + gj * b - 0.5 * (qi * a * a + 2.0 * q * a * b + qj * b * b)


@inlined_kernel
def best_value(b: float, h: float, q: float, low: float, high: float, epsilon: float) -> float:
    """The c between `low` and `high` that maximises h (c − b) − ε |c| − q/2 (c − b)²."""
    aim, least = b + h / q, epsilon / q
    return clipped(aim - clipped(aim, -least, least), low, high)


@inlined_kernel
def slope(b: float, h: float, epsilon: float) -> float:
    """The derivative of D along the direction that gains, at a variable that is b with gradient h."""
    if b > 0.0 or (b == 0.0 and h > epsilon):
        return h - epsilon
    if b < 0.0 or (b == 0.0 and h < -epsilon):
        return h + epsilon
    return 0.0


@bare_kernel
def best_single(b: Floats, h: Floats, low: Floats, high: Floats, diagonal: Floats, epsilon: float) -> int:
    """The variable with the largest gain of a step of its own; −1 if none gains."""
    best, at = 0.0, -1
    for i in range(len(b)):
        end = best_value(b[i], h[i], diagonal[i], low[i], high[i], epsilon)
        step = end - b[i]
        gain = step * (h[i] - 0.5 * step * diagonal[i]) - epsilon * (abs(end) - abs(b[i]))
        if gain > best:
            best, at = gain, i
    return at


@inner_bare_kernel
def best_partner(
    i: int, step: float, row: Any, b: Floats, h: Floats, low: Floats, high: Floats, diagonal: Floats, epsilon: float
) -> int:
    """The variable that gains most after this step of i; −1 if none gains."""
    best, at = 0.0, -1
    for j in range(len(b)):
        q = float(row[j])
        rest = slope(b[j], h[j] - q * step, epsilon)
        if (rest > 0.0 and b[j] < high[j]) or (rest < 0.0 and b[j] > low[j]):
            curvature = max(diagonal[j] - q * q / diagonal[i], 1e-12 * diagonal[j])
            gain = rest * rest / curvature
            if gain > best and j != i:
                best, at = gain, j
    return at


@inlined_kernel
def best_in_box(
    gi: float, gj: float, qi: float, q: float, qj: float, li: float, ui: float, lj: float, uj: float
) -> tuple[float, float]:
    """The steps of two variables, within these limits, that gain most: inside, or on an edge."""
    det = qi * qj - q * q
    if det > 1e-12 * qi * qj:
        x, y = (gi * qj - gj * q) / det, (gj * qi - gi * q) / det
        if li <= x <= ui and lj <= y <= uj:
            return x, y
    best, at_x, at_y = -1.0, 0.0, 0.0
    for edge in range(4):
        if edge < 2:
            x = li if edge == 0 else ui
            y = clipped((gj - q * x) / qj, lj, uj)
        else:
            y = lj if edge == 2 else uj
            x = clipped((gi - q * y) / qi, li, ui)
        value = pair_value(gi, gj, qi, q, qj, x, y)
        if value > best:
            best, at_x, at_y = value, x, y
    return at_x, at_y


@bare_kernel
def ascend_pairs(
    kernel: Any, b: Floats, h: Floats, low: Floats, high: Floats, diagonal: Floats, epsilon: float, steps: int
) -> int:
    """Take up to `steps` steps and return how many; changes b and h.

    `kernel` is (m, m) or the upper left part of a larger matrix; diagonal_i > 0. A pair keeps to one sign of each
    variable, that of the single step or of the slope, so that D is quadratic in it.
    """
    for done in range(steps):
        i = best_single(b, h, low, high, diagonal, epsilon)
        if i < 0:
            return done
        row = kernel[i]
        end = best_value(b[i], h[i], diagonal[i], low[i], high[i], epsilon)
        step = end - b[i]
        j = best_partner(i, step, row, b, h, low, high, diagonal, epsilon)
        if j < 0:
            b[i] = end
            for k in range(len(b)):
                h[k] -= step * row[k]
            continue
        q = float(row[j])
        up_i = end > 0.0 or (end == 0.0 and b[i] > 0.0)
        up_j = b[j] > 0.0 or (b[j] == 0.0 and h[j] - q * step > 0.0)
        x, y = best_in_box(
            h[i] - (epsilon if up_i else -epsilon),
            h[j] - (epsilon if up_j else -epsilon),
            diagonal[i],
            q,
            diagonal[j],
            (max(low[i], 0.0) if up_i else low[i]) - b[i],
            (high[i] if up_i else min(high[i], 0.0)) - b[i],
            (max(low[j], 0.0) if up_j else low[j]) - b[j],
            (high[j] if up_j else min(high[j], 0.0)) - b[j],
        )
        b[i] = clipped(b[i] + x, low[i], high[i])
        b[j] = clipped(b[j] + y, low[j], high[j])
        other = kernel[j]
        for k in range(len(b)):
            h[k] -= x * row[k] + y * other[k]
    return steps
