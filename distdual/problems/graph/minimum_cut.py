"""Two labels that attract each other: the best labels are a minimum cut, found by a maximum flow.

Capacities are scaled to whole numbers and rounded down, so that the flow is one of the unrounded capacities too: its
value bounds that of every cut from below, and so the value of all labels from above.
"""

from typing import NamedTuple

import numpy as np

from distdual.kernels.jit import kernel
from distdual.kernels.rows import Floats, Ints
from distdual.problems.graph.max_flow import maximum_flow

MOST_CAPACITY = float(2**50)  # of all that leaves the source: sums stay exact in double precision


class MinimumCut(NamedTuple):
    labels: Ints
    bound: float  # what no labels exceed


def attraction(pair: Floats) -> Floats:
    """(m,) how much better it is for the ends of each edge to have the same label; below 0 there is no minimum cut."""
    found: Floats = pair[:, 0, 0] + pair[:, 1, 1] - pair[:, 0, 1] - pair[:, 1, 0]
    return found


def best_cut(unary: Floats, edges: Ints, pair: Floats) -> MinimumCut:
    """The best of two labels for each node, where `attraction` is nowhere negative."""
    labels = np.ones(len(unary), dtype=np.int64)
    return MinimumCut(labels, cut(unary, edges, pair, labels))


@kernel
def cut(unary: Floats, edges: Ints, pair: Floats, labels: Ints) -> float:
    """Fills `labels`, all 1 at first, and returns the bound.

    With y_i in {0, 1}, a pair term is c + a y_i + b y_j − s/2 [y_i ≠ y_j], where s is the attraction. One that rounding
    has put below 0 counts as 0, and what that may cost is part of the bound.
    """
    n, m = len(unary), len(edges)
    one, half = np.empty(n), np.empty(m)  # what label 1 gains; what different labels lose
    bound = 0.0
    for i in range(n):
        one[i] = unary[i, 1] - unary[i, 0]
        bound += unary[i, 0]
    for e in range(m):
        same, other, another, both = pair[e, 0, 0], pair[e, 0, 1], pair[e, 1, 0], pair[e, 1, 1]
        one[edges[e, 0]] += 0.5 * (another + both - same - other)
        one[edges[e, 1]] += 0.5 * (other + both - same - another)
        attracts = same + both - other - another
        half[e] = 0.5 * max(0.0, attracts)
        bound += same + 0.5 * max(0.0, -attracts)
    into = out = 0.0
    for i in range(n):
        into += max(0.0, one[i])
        out += max(0.0, -one[i])
    bound += into
    if into == 0.0 or out == 0.0:
        if into == 0.0:
            labels[:] = 0
        return bound
    scale = MOST_CAPACITY / min(into, out)
    terminal, capacity = np.empty(n, np.int64), np.empty(m, np.int64)
    for i in range(n):
        terminal[i] = np.int64(max(-MOST_CAPACITY, min(MOST_CAPACITY, -one[i] * scale)))
    for e in range(m):
        capacity[e] = np.int64(min(MOST_CAPACITY, half[e] * scale))
    reached = np.empty(n, np.bool_)
    flow = maximum_flow(edges, capacity, terminal, reached)
    for i in range(n):
        if reached[i]:
            labels[i] = 0
    return bound - flow / scale
