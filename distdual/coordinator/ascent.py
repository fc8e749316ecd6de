"""Coordinate ascent on D(α) over the cached constraints.

    D(α) = Σ_k α_k l_k − R*(v),     v = Σ_k α_k x_k,     α ≥ 0,     Σ_{k of i} α_k ≤ C_i
    g_k  = ∂D/∂α_k = l_k − ⟨w, x_k⟩,     w = ∇R*(v)     (w = v without a prior)

A sweep visits variables in random order, cut into short runs of neighbours so that rows are read from memory in
order. It returns what it gained, so that the caller can weigh another sweep against a scan.
"""

from typing import Any

import numpy as np

from distdual.coordinator.space import Plain, Space, cross, is_plain, move
from distdual.kernel import kernel, specialise
from distdual.rows import Floats, Ints, OuterRows, Rows, add, block, dot, is_outer, overlap

RUN = 16  # neighbours visited in a row
CLIMB = 100  # sweeps over what is active before all is visited again: rounding can feign gains for ever
QUARTERS = 4  # of a sweep, after each of which w goes into its average


@kernel
def shuffle_runs(n: int, run: int, random: Any) -> Ints:
    """The first places of ⌈n / run⌉ runs in random order (Fisher-Yates with xorshift64*); advances `random`."""
    starts = np.arange(0, n, run)
    for i in range(len(starts) - 1, 0, -1):
        random[0] ^= random[0] >> np.uint64(12)
        random[0] ^= random[0] << np.uint64(25)
        random[0] ^= random[0] >> np.uint64(27)
        j = np.int64((random[0] * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(33)) % (i + 1)
        starts[i], starts[j] = starts[j], starts[i]
    return starts


@kernel
def average(mean: Floats, w: Floats, done: int, n_turns: int) -> None:
    """Add w to `mean` after each quarter of a sweep, so that it becomes their average; an empty one asks for none."""
    quarter = n_turns // QUARTERS
    if len(mean) and quarter and done % quarter == 0 and done <= QUARTERS * quarter:
        for j in range(len(w)):
            mean[j] += w[j] / QUARTERS


@kernel
def sweep_single(
    space: Space,
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    capacity: Floats,
    slots: Ints,
    random: Any,
    w: Floats,
    v: Floats,
    active: Ints,
    mean: Floats,
) -> tuple[float, float, int]:
    """One pass over constraints that each have a slack of their own.

        α_k ← clip(α_k + g_k / x_kᵀΛ⁻¹x_k, 0, C_k)                                  (11)-(12)

    Changes alpha, w, v. Returns the gain in D; Σ C_k max(0, g_k), each at the w it was met at, which is UB′ (23)
    less R(w); and how many slots it wrote to `active`: those that moved or are free. The others sit at a bound with
    the gradient pointing outwards; a later pass over all slots is the check that they still do. Fills `mean`, unless
    it is empty, with the average of w over the pass.
    """
    gain, loss, n_active = 0.0, 0.0, 0
    starts = shuffle_runs(len(slots), RUN, random)
    for turn in range(len(starts)):
        start = starts[turn]
        for at in range(start, min(start + RUN, len(slots))):
            k = slots[at]
            g = margin[k] - dot(rows, k, w)
            if g > 0.0 and capacity[k] < np.inf:
                loss += capacity[k] * g
            old = alpha[k]
            if (old == 0.0 and g <= 0.0) or (old == capacity[k] and g >= 0.0):
                continue
            active[n_active] = k
            n_active += 1
            step = best_step(g, curve[k], -old, capacity[k] - old)
            if step != 0.0:
                alpha[k] = capacity[k] if step == capacity[k] - old else max(0.0, old + step)
                step = alpha[k] - old
                move(space, rows, k, step, w, v)
                gain += step * (g - 0.5 * step * curve[k])
        average(mean, w, turn + 1, len(starts))
    return gain, loss, n_active


@kernel
def climb_single(
    space: Space,
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    capacity: Floats,
    active: Ints,
    random: Any,
    w: Floats,
    v: Floats,
    gain: float,
    work: int,
) -> tuple[float, int]:
    """Sweeps over what is active while they gain more per visit than all so far; returns gain and work, summed up."""
    left, no_mean = np.empty_like(active), np.empty(0)
    for _ in range(CLIMB):
        if not len(active):
            break
        gained, _, n = sweep_single(space, rows, margin, alpha, curve, capacity, active, random, w, v, left, no_mean)
        gain += gained
        work += len(active)
        if not (gained > 0.0 and gained * work > gain * len(active)):
            break
        active, left = left[:n], active
    return gain, work


@kernel
def climb_shared(
    space: Space,
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    capacity: Floats,
    members: Ints,
    group_indptr: Ints,
    active: Ints,
    random: Any,
    w: Floats,
    v: Floats,
    gain: float,
    work: int,
) -> tuple[float, int]:
    """The same for groups that share a slack."""
    left, no_mean = np.empty_like(active), np.empty(0)
    for _ in range(CLIMB):
        if not len(active):
            break
        gained, _, n = sweep_shared(
            space, rows, margin, alpha, curve, capacity, members, group_indptr, active, random, w, v, left, no_mean
        )
        gain += gained
        work += len(active)
        if not (gained > 0.0 and gained * work > gain * len(active)):
            break
        active, left = left[:n], active
    return gain, work


@kernel
def best_step(g: float, curve: float, least: float, most: float) -> float:
    """clip(g / curve, least, most). A zero row has no curvature: it goes to the bound that g points to."""
    if curve > 0.0:
        return min(max(g / curve, least), most)
    if g > 0.0:
        return most
    return least if g < 0.0 else 0.0


@kernel
def sweep_shared(
    space: Space,
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    capacity: Floats,
    members: Ints,
    group_indptr: Ints,
    groups: Ints,
    random: Any,
    w: Floats,
    v: Floats,
    active: Ints,
    mean: Floats,
) -> tuple[float, float, int]:
    """One pass over groups of constraints that share a slack; `capacity` is per group. See `sweep_single`."""
    gain, loss, n_active = 0.0, 0.0, 0
    order = shuffle_runs(len(groups), 1, random)
    for turn in range(len(order)):
        group = groups[order[turn]]
        slots = members[group_indptr[group] : group_indptr[group + 1]]
        gained, worst, moved = improve(space, rows, margin, alpha, curve, capacity[group], slots, w, v)
        gain += gained
        if capacity[group] < np.inf:
            loss += capacity[group] * worst
        if moved:
            active[n_active] = group
            n_active += 1
        average(mean, w, turn + 1, len(order))
    return gain, loss, n_active


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
) -> tuple[float, float, bool]:
    """Improve the α of one group; returns the gain in D, max(0, max_k g_k) as met, and whether anything moved."""
    if isinstance(rows, OuterRows) and isinstance(space, Plain):
        return improve_outer(space, rows, margin, alpha, curve, C, slots, w, v)
    if isinstance(space, Plain) and len(slots) > 1 and len(space.gram_indptr):
        return improve_by_gram(space, rows, margin, alpha, curve, C, slots, w, v)
    return improve_group(space, rows, margin, alpha, curve, C, slots, w, v)


@specialise(improve)
def _improve(
    space: Any,
    rows: Any,
    margin: Any,  # noqa: ARG001 - Numba asks for the same names
    alpha: Any,  # noqa: ARG001
    curve: Any,  # noqa: ARG001
    C: Any,  # noqa: ARG001
    slots: Any,  # noqa: ARG001
    w: Any,  # noqa: ARG001
    v: Any,  # noqa: ARG001
) -> Any:
    way = improve_outer if is_outer(rows) and is_plain(space) else improve_group

    def chosen(space: Any, rows: Any, margin: Any, alpha: Any, curve: Any, C: Any, slots: Any, w: Any, v: Any) -> Any:
        return way(space, rows, margin, alpha, curve, C, slots, w, v)

    def by_gram(space: Any, rows: Any, margin: Any, alpha: Any, curve: Any, C: Any, slots: Any, w: Any, v: Any) -> Any:
        if len(slots) > 1 and len(space.gram_indptr):
            return improve_by_gram(space, rows, margin, alpha, curve, C, slots, w, v)
        return improve_group(space, rows, margin, alpha, curve, C, slots, w, v)

    return by_gram if is_plain(space) and not is_outer(rows) else chosen


@kernel
def improve_outer(
    space: Space,  # noqa: ARG001 - as improve_group
    rows: OuterRows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    C: float,
    slots: Ints,
    w: Floats,
    v: Floats,  # noqa: ARG001
) -> tuple[float, float, bool]:
    """The same as improve_group for rows that share features and +block: inner products cost nothing here.

    Gradients are computed once, then follow each step by ⟨x_k, x_j⟩ = overlap · ||features||²; w moves at the end.
    """
    n, first = len(slots), slots[0]
    x, at, plus = rows.x, rows.at[first], block(rows, rows.plus[first], w)
    ahead = dot(x, at, plus)
    square = curve[first] / overlap(rows, first, first)
    g, delta = np.empty(n), np.zeros(n)
    worst, used = 0.0, 0.0
    for s in range(n):
        k = slots[s]
        g[s] = margin[k] - rows.scale[k] * (ahead - dot(x, at, block(rows, rows.minus[k], w)))
        worst = max(worst, g[s])
        used += alpha[k]
    gain = 0.0
    for _ in range(2 * n + 2):
        up, down = extremes(g, alpha, slots)
        k = slots[up]
        if down >= 0 and -g[down] > max(g[up], 0.0):
            up, k, other = down, slots[down], -1
            step = best_step(g[up], curve[k], -alpha[k], 0.0)
            gained = step * (g[up] - 0.5 * step * curve[k])
        elif g[up] > 0.0 and used < C * (1.0 - 1e-12):  # a room of one bit would bar all trades
            step, other = best_step(g[up], curve[k], 0.0, C - used), -1
            gained = step * (g[up] - 0.5 * step * curve[k])
        elif g[up] > 0.0 and down >= 0 and g[up] > g[down]:
            other = slots[down]
            bend = curve[k] + curve[other] - 2.0 * square * overlap(rows, k, other)
            step = best_step(g[up] - g[down], max(bend, 0.0), 0.0, alpha[other])
            gained = step * (g[up] - g[down] - 0.5 * step * bend)
        else:
            break
        if not gained > 0.0:
            break
        gain += gained
        alpha[k] = max(0.0, alpha[k] + step)
        delta[up] += step
        if other >= 0:
            alpha[other] = max(0.0, alpha[other] - step)
            delta[down] -= step
        else:
            used += step
        for s in range(n):
            g[s] -= step * square * overlap(rows, slots[s], k)
            if other >= 0:
                g[s] += step * square * overlap(rows, slots[s], other)
    moved, total = False, 0.0
    for s in range(n):
        if delta[s] != 0.0:
            moved = True
            scaled = delta[s] * rows.scale[slots[s]]
            total += scaled
            add(x, at, -scaled, block(rows, rows.minus[slots[s]], w))
    if total != 0.0:
        add(x, at, total, plus)
    return gain, worst, moved


@kernel
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
) -> tuple[float, float, bool]:
    """The same as improve_group where inner products are kept: each row is read once, and once more if its α moves."""
    n = len(slots)
    g, delta = np.empty(n), np.zeros(n)
    worst, used = 0.0, 0.0
    for s in range(n):
        g[s] = margin[slots[s]] - dot(rows, slots[s], w)
        worst = max(worst, g[s])
        used += alpha[slots[s]]
    up, down = extremes(g, alpha, slots)
    if not (g[up] > 0.0 or (down >= 0 and g[down] < 0.0)):
        return 0.0, worst, False
    products = group_products(space, curve, slots)
    gain = 0.0
    for _ in range(2 * n + 2):
        up, down = extremes(g, alpha, slots)
        other = -1
        if down >= 0 and -g[down] > max(g[up], 0.0):
            up, slope, bend = down, g[down], products[down, down]
            step = best_step(slope, bend, -alpha[slots[down]], 0.0)
        elif g[up] > 0.0 and used < C * (1.0 - 1e-12):  # a room of one bit would bar all trades
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
    moved = False
    for s in range(n):
        if delta[s] != 0.0:
            moved = True
            move(space, rows, slots[s], delta[s], w, v)
    return gain, worst, moved


@kernel
def group_products(space: Plain, curve: Floats, slots: Ints) -> Floats:
    """(n, n) the inner products of a group."""
    n = len(slots)
    products = np.empty((n, n))
    for s in range(n):
        products[s, s] = curve[slots[s]]
        for r in range(s):
            products[s, r] = products[r, s] = space.gram[space.gram_indptr[slots[s]] + r]
    return products


@kernel
def shift_alpha(s: int, step: float, alpha: Floats, slots: Ints, delta: Floats, g: Floats, products: Floats) -> None:
    """α_s += step, and the gradients of the group follow; `delta` keeps what w has yet to learn."""
    old = alpha[slots[s]]
    alpha[slots[s]] = max(0.0, old + step)
    delta[s] += alpha[slots[s]] - old
    for r in range(len(g)):
        g[r] -= step * products[r, s]


@kernel
def extremes(g: Floats, alpha: Floats, slots: Ints) -> tuple[int, int]:
    """The place of the largest gradient, and of the smallest among those with α > 0, or −1."""
    up, down = 0, -1
    for s in range(len(slots)):
        if g[s] > g[up]:
            up = s
        if alpha[slots[s]] > 0.0 and (down < 0 or g[s] < g[down]):
            down = s
    return up, down


@kernel
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
        used_up = step == room  # asked of the step before it is rounded, or a room of one bit would bar all trades
        if step != 0.0:
            alpha[k] = max(0.0, old + step)
            step = alpha[k] - old
            used += step
            move(space, rows, k, step, w, v)
            gain += step * (g - 0.5 * step * curve[k])
            moved = True
        emptied = used_up and used > alpha[k]
        while emptied:  # a partner that had little to give makes way for the next
            gained, emptied = trade(space, rows, margin, alpha, curve, k, slots, w, v)
            gain += gained
            moved = moved or gained > 0.0
    return gain, worst, moved


@kernel
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


@kernel
def add_rows(rows: Rows, alpha: Floats, v: Floats) -> None:
    """v ← Σ_k α_k x_k from nothing, so that rounding does not pile up."""
    v[:] = 0.0
    for k in range(len(alpha)):
        if alpha[k] != 0.0:
            add(rows, k, alpha[k], v)


@kernel
def cache_loss(rows: Rows, margin: Floats, members: Ints, group_indptr: Ints, capacity: Floats, w: Floats) -> float:
    """Σ_i C_i · max(0, max_k l_k − ⟨w, x_k⟩) over the cached constraints that have a slack, all at this w."""
    loss = 0.0
    for group in range(len(capacity)):
        worst = 0.0
        for s in range(group_indptr[group], group_indptr[group + 1]):
            worst = max(worst, margin[members[s]] - dot(rows, members[s], w))
        if capacity[group] < np.inf:
            loss += capacity[group] * worst
    return loss
