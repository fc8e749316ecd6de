"""Ascent steps on D(α) over the constraints that share one slack, with all others fixed.

    g_k = ∂D/∂α_k = l_k − ⟨w, x_k⟩,     α ≥ 0,     Σ_k α_k ≤ C

Each step changes alpha, w and v, and returns the gain in D, max(0, max_k g_k) before it, and whether α moved.
"""

from typing import Any

from distdual.kernels.jit import bare_kernel, body_of, inlined_kernel, specialise
from distdual.kernels.rows import Floats, Ints, OuterRows, Rows, add, dot, is_outer, overlap
from distdual.solver.active_set import AnyScratch, shift_alpha, solve_if_large
from distdual.solver.metric import Plain, Space, cross, is_plain, move


def improve(
    space: Space,
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    C: float,
    slots: Ints,
    w: Floats,
    v: Floats,
    scratch: AnyScratch,
) -> tuple[float, float, bool]:
    """Improve the α of one group of several constraints, by the method that suits their rows."""
    if isinstance(rows, OuterRows) and isinstance(space, Plain):
        return improve_outer(space, rows, margin, alpha, curve, C, slots, w, v, scratch)
    if isinstance(space, Plain):
        return improve_by_gram(space, rows, margin, alpha, curve, C, slots, w, v, scratch)
    return improve_group(space, rows, margin, alpha, curve, C, slots, w, v, scratch)


@specialise(improve)
def _improve(
    space: Any,
    rows: Any,
    margin: Any,  # noqa: ARG001 - Numba requires the same names, and compiles the function as part of its caller
    alpha: Any,  # noqa: ARG001
    curve: Any,  # noqa: ARG001
    C: Any,  # noqa: ARG001
    slots: Any,  # noqa: ARG001
    w: Any,  # noqa: ARG001
    v: Any,  # noqa: ARG001
    scratch: Any,  # noqa: ARG001
) -> Any:
    if not is_plain(space):
        return body_of(improve_group)
    return body_of(improve_outer if is_outer(rows) else improve_by_gram)


@inlined_kernel
def improve_alone(
    space: Space,
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    C: float,
    k: int,
    w: Floats,
    v: Floats,
) -> tuple[float, float, bool]:
    """Improve the α of a constraint that shares its slack with no other.

        α_k ← clip(α_k + g_k / x_kᵀΛ⁻¹x_k, 0, C_k)                                  (11)-(12)

    Returns the gain in D, g_k as met, and False if α_k sits at a bound with the gradient pointing outwards.
    """
    g = margin[k] - dot(rows, k, w)
    old = alpha[k]
    if (old == 0.0 and g <= 0.0) or (old == C and g >= 0.0):
        return 0.0, g, False
    step = best_step(g, curve[k], -old, C - old)
    if step == 0.0:
        return 0.0, g, True
    alpha[k] = C if step == C - old else max(0.0, old + step)
    step = alpha[k] - old
    move(space, rows, k, step, w, v)
    return step * (g - 0.5 * step * curve[k]), g, True


@inlined_kernel
def best_step(g: float, curve: float, least: float, most: float) -> float:
    """clip(g / curve, least, most). A zero row, without curvature, goes to the bound that g points to."""
    if curve > 0.0:
        return min(max(g / curve, least), most)
    if g > 0.0:
        return most
    return least if g < 0.0 else 0.0


@bare_kernel
def improve_outer(
    space: Plain,  # noqa: ARG001 - the common signature
    rows: OuterRows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    C: float,
    slots: Ints,
    w: Floats,
    v: Floats,  # noqa: ARG001
    scratch: AnyScratch,
) -> tuple[float, float, bool]:
    """For rows that share features and +block, where inner products cost nothing: overlap · ||features||²."""
    n, first = len(slots), slots[0]
    g, delta, products = scratch.gradient[:n], scratch.delta[:n], scratch.products
    x, at, width = rows.x, rows.at[first], rows.width
    plus = w[rows.plus[first] * width : (rows.plus[first] + 1) * width]
    ahead, worst = dot(x, at, plus), 0.0
    for s in range(n):
        k = slots[s]
        minus = w[rows.minus[k] * width : (rows.minus[k] + 1) * width]
        g[s] = margin[k] - rows.scale[k] * (ahead - dot(x, at, minus))
        worst = max(worst, g[s])
    if not may_improve(g, alpha, slots):
        return 0.0, worst, False
    square = curve[first] / overlap(rows, first, first)
    for s in range(n):
        for r in range(s + 1):
            products[s, r] = products[r, s] = square * overlap(rows, slots[s], slots[r])
    delta[:] = 0.0
    gain = solve(C, alpha, slots, g, products, delta)
    moved, total = False, 0.0
    for s in range(n):
        if delta[s] != 0.0:
            moved = True
            k = slots[s]
            scaled = delta[s] * rows.scale[k]
            total += scaled
            add(x, at, -scaled, w[rows.minus[k] * width : (rows.minus[k] + 1) * width])
    if total != 0.0:
        add(x, at, total, plus)
    return gain, worst, moved


@bare_kernel
def improve_by_gram(
    space: Plain,
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    C: float,
    slots: Ints,
    w: Floats,
    v: Floats,
    scratch: AnyScratch,
) -> tuple[float, float, bool]:
    """For rows whose inner products are kept: each row is read once, and once more if its α moves."""
    if not len(space.gram_indptr):
        return improve_group(space, rows, margin, alpha, curve, C, slots, w, v, scratch)
    n = len(slots)
    g, delta, products = scratch.gradient[:n], scratch.delta[:n], scratch.products
    worst = 0.0
    for s in range(n):
        g[s] = margin[slots[s]] - dot(rows, slots[s], w)
        worst = max(worst, g[s])
    if not may_improve(g, alpha, slots):
        return 0.0, worst, False
    for s in range(n):
        products[s, s] = curve[slots[s]]
        for r in range(s):
            products[s, r] = products[r, s] = space.gram[space.gram_indptr[slots[s]] + r]
    delta[:] = 0.0
    gain = solve_if_large(C, alpha, slots, scratch)
    gain += solve(C, alpha, slots, g, products, delta)
    moved = False
    for s in range(n):
        if delta[s] != 0.0:
            moved = True
            move(space, rows, slots[s], delta[s], w, v)
    return gain, worst, moved


@inlined_kernel
def solve(C: float, alpha: Floats, slots: Ints, g: Floats, products: Floats, delta: Floats) -> float:
    """Improve the α of a group by the most promising steps, with gradients updated by inner products.

    Changes alpha and g, adds what each α gained to delta; returns the gain in D.
    """
    gain, used = 0.0, 0.0
    for s in range(len(slots)):
        used += alpha[slots[s]]
    for _ in range(2 * len(slots) + 2):
        up, down = extremes(g, alpha, slots)
        other = -1
        if down >= 0 and -g[down] > max(g[up], 0.0):
            up, slope, bend = down, g[down], products[down, down]
            step = best_step(slope, bend, -alpha[slots[down]], 0.0)
        elif g[up] > 0.0 and used < C * (1.0 - 1e-12):  # else a rounding error of room would block all trades
            step, slope, bend = best_step(g[up], products[up, up], 0.0, C - used), g[up], products[up, up]
        elif g[up] > 0.0 and down >= 0 and g[up] > g[down]:
            other, slope = down, g[up] - g[down]
            bend = max(0.0, products[up, up] + products[down, down] - 2.0 * products[up, down])
            step = best_step(slope, bend, 0.0, alpha[slots[down]])
        else:
            break
        gained = step * (slope - 0.5 * step * bend)
        if not gained > 0.0:
            break
        gain += gained
        used += step if other < 0 else 0.0
        shift_alpha(up, step, alpha, slots, delta, g, products)
        if other >= 0:
            shift_alpha(other, -step, alpha, slots, delta, g, products)
    return gain


@inlined_kernel
def may_improve(g: Floats, alpha: Floats, slots: Ints) -> bool:
    """Whether some α can grow or shrink, given room."""
    found = False
    for s in range(len(slots)):
        found = found or g[s] > 0.0 or (g[s] < 0.0 and alpha[slots[s]] > 0.0)
    return found


@inlined_kernel
def extremes(g: Floats, alpha: Floats, slots: Ints) -> tuple[int, int]:
    """Return the positions of the largest gradient, and of the smallest with α > 0, or −1."""
    up, down = 0, -1
    for s in range(len(slots)):
        if g[s] > g[up]:
            up = s
        if alpha[slots[s]] > 0.0 and (down < 0 or g[s] < g[down]):
            down = s
    return up, down


@bare_kernel
def improve_group(
    space: Space,
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    C: float,
    slots: Ints,
    w: Floats,
    v: Floats,
    scratch: AnyScratch,  # noqa: ARG001
) -> tuple[float, float, bool]:
    """Improve each α_k of a group alone, then against a partner where the slack is used up.

    Returns the gain in D, max(0, max_k g_k) with each g_k as it was met, and whether anything moved.
    """
    gain, worst, moved = 0.0, 0.0, False
    used = 0.0
    for k in slots:
        used += alpha[k]
    for k in slots:
        g = margin[k] - dot(rows, k, w)
        worst = max(worst, g)
        old = alpha[k]
        room = max(0.0, C - used)
        if old == 0.0 and g <= 0.0:
            continue
        step = best_step(g, curve[k], -old, room)
        used_up = step == room  # before rounding, else a rounding error of room would block all trades
        if step != 0.0:
            alpha[k] = max(0.0, old + step)
            step = alpha[k] - old
            used += step
            move(space, rows, k, step, w, v)
            gain += step * (g - 0.5 * step * curve[k])
            moved = True
        emptied = used_up and used > alpha[k]
        while emptied:  # continue with the next partner
            gained, emptied = trade(space, rows, margin, alpha, curve, k, slots, w, v)
            gain += gained
            moved = moved or gained > 0.0
    return gain, worst, moved


@bare_kernel
def trade(
    space: Space,
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    k: int,
    slots: Ints,
    w: Floats,
    v: Floats,
) -> tuple[float, bool]:
    """Move α to k from the j with α_j > 0 whose gradient is smallest, as far as D grows.

    Returns the gain, and whether j gave all it had, so that another partner may have more to give.

    a = clip((g_k − g_j) / ||x_k − x_j||², 0, α_j),    α_k += a,    α_j −= a        (14)-(15)
    """
    g = margin[k] - dot(rows, k, w)
    partner, smallest = -1, g
    for j in slots:
        if j != k and alpha[j] > 0.0:
            g_j = margin[j] - dot(rows, j, w)
            if g_j < smallest:
                partner, smallest = j, g_j
    if partner < 0:
        return 0.0, False
    bend = max(0.0, curve[k] + curve[partner] - 2.0 * cross(space, rows, k, partner))
    a = best_step(g - smallest, bend, 0.0, alpha[partner])
    alpha[k] += a
    alpha[partner] -= a
    move(space, rows, k, a, w, v)
    move(space, rows, partner, -a, w, v)
    return float(a * (g - smallest - 0.5 * a * bend)), alpha[partner] == 0.0
