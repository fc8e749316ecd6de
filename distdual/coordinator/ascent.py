"""Coordinate ascent on D(α) over the cached constraints.

D(α) = Σ_k α_k l_k − 1/2 ||w||²,     w = Σ_k α_k x_k,     α ≥ 0,     Σ_{k of i} α_k ≤ C_i
"""

import numpy as np

from distdual.kernel import kernel
from distdual.rows import Floats, Ints, Rows, add, dot, inner


@kernel
def ascend_groups(
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    norm2: Floats,
    members: Ints,
    group_indptr: Ints,
    capacity: Floats,
    w: Floats,
    visit: Ints,
) -> float:
    """One pass over the groups in `visit`: improve each α alone, or against a partner where the slack is used up.

    Returns Σ_i C_i · max(0, max_k g_k) of the visited groups, each taken at the w it was met at, which is UB′ (23)
    less 1/2 ||w||²: an estimate that tells when to stop, not a bound. Changes alpha and w.
    """
    loss = 0.0
    for t in range(len(visit)):
        group = visit[t]
        begin, end = group_indptr[group], group_indptr[group + 1]
        if end - begin == 1:
            worst = ascend_one(rows, members[begin], capacity[group], margin, alpha, norm2, w)
        else:
            worst = ascend_shared(rows, members[begin:end], capacity[group], margin, alpha, norm2, w)
        loss += capacity[group] * max(0.0, worst)
    return loss


@kernel
def ascend_one(rows: Rows, k: int, most: float, margin: Floats, alpha: Floats, norm2: Floats, w: Floats) -> float:
    """Maximise D over α_k in [0, most], and return the gradient met.

        g    = ∂D/∂α_k = l_k − ⟨w, x_k⟩                        (11)
        α_k ← clip(α_k + g / ||x_k||², 0, most)                (12)
        w   ← w + step · x_k

    Changes alpha[k] and w. A zero row has a constant gradient: α_k goes to the bound that g points to.
    """
    g = margin[k] - dot(rows, k, w)
    old = alpha[k]
    if (old == 0.0 and g <= 0.0) or (old == most and g >= 0.0):
        return float(g)
    best = old + g / norm2[k] if norm2[k] > 0.0 else np.inf * g
    new = min(max(best, 0.0), most)
    if new != old:
        alpha[k] = new
        add(rows, k, new - old, w)
    return float(g)


@kernel
def ascend_shared(rows: Rows, slots: Ints, C: float, margin: Floats, alpha: Floats, norm2: Floats, w: Floats) -> float:
    """Improve each α_k of a group that shares one slack, and return the largest gradient met.

    Where the slack is used up (Σ α = C) and g_k > 0, α moves from the j with α_j > 0 whose gradient is smallest:

        a = clip((g_k − g_j) / ||x_k − x_j||², 0, α_j),    α_k += a,    α_j −= a        (14)-(15)
    """
    worst = 0.0
    for s in range(len(slots)):
        k = slots[s]
        used = 0.0
        for other in slots:
            if other != k:
                used += alpha[other]
        g = ascend_one(rows, k, max(0.0, C - used), margin, alpha, norm2, w)
        worst = max(worst, g)
        if g > 0.0 and alpha[k] >= C - used and used > 0.0:
            trade(rows, slots, k, margin, alpha, norm2, w)
    return worst


@kernel
def trade(rows: Rows, slots: Ints, k: int, margin: Floats, alpha: Floats, norm2: Floats, w: Floats) -> None:
    """Move α to k from the partner with the smallest gradient, as far as D grows."""
    g = margin[k] - dot(rows, k, w)
    partner = -1
    smallest = g
    for j in slots:
        if j != k and alpha[j] > 0.0:
            g_j = margin[j] - dot(rows, j, w)
            if g_j < smallest:
                partner, smallest = j, g_j
    if partner < 0:
        return
    curvature = norm2[k] + norm2[partner] - 2.0 * inner(rows, k, partner)
    a = alpha[partner]
    if curvature > 0.0:
        a = min((g - smallest) / curvature, a)
    alpha[k] += a
    alpha[partner] -= a
    add(rows, k, a, w)
    add(rows, partner, -a, w)


@kernel
def rebuild(rows: Rows, alpha: Floats, w: Floats) -> None:
    """w ← Σ_k α_k x_k from nothing, so that rounding does not pile up."""
    w[:] = 0.0
    for k in range(len(alpha)):
        if alpha[k] != 0.0:
            add(rows, k, alpha[k], w)


@kernel
def cache_loss(rows: Rows, margin: Floats, members: Ints, group_indptr: Ints, capacity: Floats, w: Floats) -> float:
    """Σ_i C_i · max(0, max_k l_k − ⟨w, x_k⟩) over the cached constraints, all at this w."""
    loss = 0.0
    for group in range(len(capacity)):
        worst = 0.0
        for s in range(group_indptr[group], group_indptr[group + 1]):
            worst = max(worst, margin[members[s]] - dot(rows, members[s], w))
        loss += capacity[group] * worst
    return loss
