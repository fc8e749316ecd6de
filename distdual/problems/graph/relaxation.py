"""Labels and an upper bound for any graph, by max-product linear programming (Globerson and Jaakkola, 2007).

Each edge in turn shares its value with its ends so that the bound

    Σ_i max_a ( unary[i, a] + Σ_e shared[e, i, a] ) + Σ_e max_ab ( pair[e, a, b] − shared[e, i, a] − shared[e, j, b] )

falls or stays. Labels are those that each node likes best then, improved one by one.
"""

import numpy as np

from distdual.kernels.jit import bare_kernel, kernel
from distdual.kernels.rows import Floats, Ints
from distdual.problems.graph.minimum_cut import MinimumCut

MAX_SWEEPS = 200
ENOUGH = 1e-4  # relative fall of the bound per sweep below which it ends


def relaxed(unary: Floats, edges: Ints, pair: Floats) -> MinimumCut:
    """Labels, and what no labels exceed."""
    belief, shared = unary.copy(), np.zeros((len(edges), 2, unary.shape[1]))
    before = np.inf
    labels, best = np.zeros(len(unary), dtype=np.int64), -np.inf
    for _ in range(MAX_SWEEPS):
        sweep(edges, pair, belief, shared)
        bound = bound_of(unary, edges, pair, belief, shared)
        found = belief.argmax(axis=1)
        improve_labels(unary, edges, pair, found)
        if (value := value_of(unary, edges, pair, found)) > best:
            labels, best = found, value
        if before - bound <= ENOUGH * (abs(bound) + 1e-12) or bound - best <= ENOUGH * ENOUGH * abs(bound):
            break
        before = bound
    # Summed in two ways, the bound may fall below the value by rounding alone.
    return MinimumCut(labels, max(bound, best))


def value_of(unary: Floats, edges: Ints, pair: Floats, labels: Ints) -> float:
    own = unary[np.arange(len(unary)), labels].sum()
    return float(own + pair[np.arange(len(edges)), labels[edges[:, 0]], labels[edges[:, 1]]].sum())


@bare_kernel
def sweep(edges: Ints, pair: Floats, belief: Floats, shared: Floats) -> None:
    """Update every edge once; `belief` is unary plus all that is shared with each node."""
    n_labels = belief.shape[1]
    for e in range(len(edges)):
        i, j = edges[e, 0], edges[e, 1]
        for a in range(n_labels):
            belief[i, a] -= shared[e, 0, a]
            belief[j, a] -= shared[e, 1, a]
        for a in range(n_labels):
            to_first, to_second = -np.inf, -np.inf
            for b in range(n_labels):
                to_first = max(to_first, belief[j, b] + pair[e, a, b])
                to_second = max(to_second, belief[i, b] + pair[e, b, a])
            shared[e, 0, a] = 0.5 * (to_first - belief[i, a])
            shared[e, 1, a] = 0.5 * (to_second - belief[j, a])
        for a in range(n_labels):
            belief[i, a] += shared[e, 0, a]
            belief[j, a] += shared[e, 1, a]


@bare_kernel
def bound_of(unary: Floats, edges: Ints, pair: Floats, belief: Floats, shared: Floats) -> float:
    """The bound; fills `belief` anew, as rounding adds up in it from sweep to sweep."""
    total, n_labels = 0.0, belief.shape[1]
    for i in range(len(belief)):
        for a in range(n_labels):
            belief[i, a] = unary[i, a]
    for e in range(len(edges)):
        for a in range(n_labels):
            belief[edges[e, 0], a] += shared[e, 0, a]
            belief[edges[e, 1], a] += shared[e, 1, a]
    for i in range(len(belief)):
        most = -np.inf
        for a in range(n_labels):
            most = max(most, belief[i, a])
        total += most
    for e in range(len(edges)):
        top = -np.inf
        for a in range(n_labels):
            for b in range(n_labels):
                top = max(top, pair[e, a, b] - shared[e, 0, a] - shared[e, 1, b])
        total += top
    return total


@kernel
def improve_labels(unary: Floats, edges: Ints, pair: Floats, labels: Ints) -> None:
    """Change one label after the other while that helps."""
    n_nodes, n_labels = unary.shape
    gain = unary.copy()  # of each label where all others stay
    for e in range(len(edges)):
        i, j = edges[e, 0], edges[e, 1]
        for a in range(n_labels):
            gain[i, a] += pair[e, a, labels[j]]
            gain[j, a] += pair[e, labels[i], a]
    begin = np.zeros(n_nodes + 1, dtype=np.int64)
    for e in range(len(edges)):
        begin[edges[e, 0] + 1] += 1
        begin[edges[e, 1] + 1] += 1
    for i in range(n_nodes):
        begin[i + 1] += begin[i]
    at, incident = begin.copy(), np.empty(2 * len(edges), dtype=np.int64)
    for e in range(len(edges)):
        for side in range(2):
            incident[at[edges[e, side]]] = e
            at[edges[e, side]] += 1
    changed, rounds = True, 0
    while changed and rounds < 50:
        changed = False
        rounds += 1
        for i in range(n_nodes):
            best = np.argmax(gain[i])
            old = labels[i]
            if gain[i, best] > gain[i, old] + 1e-12:
                labels[i] = best
                changed = True
                for k in range(begin[i], begin[i + 1]):
                    e = incident[k]
                    if edges[e, 0] == i:
                        for b in range(n_labels):
                            gain[edges[e, 1], b] += pair[e, best, b] - pair[e, old, b]
                    else:
                        for b in range(n_labels):
                            gain[edges[e, 0], b] += pair[e, b, best] - pair[e, b, old]
