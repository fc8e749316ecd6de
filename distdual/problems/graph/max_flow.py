"""Two labels that attract each other: the best labels are a minimum cut, found by SciPy's maximum flow.

SciPy takes capacities of 32-bit integers. Ours are scaled and rounded down, so that the flow is one of the unrounded
capacities too: its value bounds that of every cut from below, and so the value of all labels from above.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from distdual.kernels.rows import Floats, Ints

MOST_CAPACITY = float(2**30 - 2**10)  # of a capacity: what is left of it, with a flow against it, must fit as well


class MinimumCut(NamedTuple):
    labels: Ints
    bound: float  # what no labels exceed


def attraction(pair: Floats) -> Floats:
    """(m,) how much better it is for the ends of each edge to have the same label; below 0 there is no minimum cut."""
    found: Floats = pair[:, 0, 0] + pair[:, 1, 1] - pair[:, 0, 1] - pair[:, 1, 0]
    return found


def best_cut(unary: Floats, edges: Ints, pair: Floats) -> MinimumCut:
    """The best of two labels for each node, where `attraction` is nowhere negative.

    With y_i in {0, 1}, a pair term is c + a y_i + b y_j − s/2 [y_i ≠ y_j], where s is the attraction. One that rounding
    has put below 0 counts as 0, and what that may cost is part of the bound.
    """
    attracts = attraction(pair)
    n, half = len(unary), 0.5 * np.maximum(0.0, attracts)
    one = unary[:, 1] - unary[:, 0]  # what label 1 gains
    i, j = edges[:, 0], edges[:, 1]
    one += np.bincount(i, 0.5 * (pair[:, 1, 0] + pair[:, 1, 1] - pair[:, 0, 0] - pair[:, 0, 1]), minlength=n)
    one += np.bincount(j, 0.5 * (pair[:, 0, 1] + pair[:, 1, 1] - pair[:, 0, 0] - pair[:, 1, 0]), minlength=n)
    constant = float(unary[:, 0].sum() + pair[:, 0, 0].sum())
    most = constant + float(np.maximum(0.0, one).sum() + 0.5 * np.maximum(0.0, -attracts).sum())
    if not ((one > 0).any() and (one < 0).any()):
        return MinimumCut((one > 0).any() * np.ones(n, dtype=np.int64), most)
    reached, flow = Network(n, i, j, half, one).cut()
    labels = np.ones(n, dtype=np.int64)
    labels[reached] = 0
    return MinimumCut(labels, most - flow)


class Network:
    """Nodes 0 … n − 1, a source n for label 0 and a sink n + 1 for label 1, as SciPy reads them."""

    def __init__(self, n: int, i: Ints, j: Ints, half: Floats, one: Floats) -> None:
        self.source, self.sink = n, n + 1
        gains, loses = np.flatnonzero(one > 0), np.flatnonzero(one < 0)
        tail = np.concatenate([i, j, np.full(len(loses), n), loses, gains, np.full(len(gains), n + 1)])
        head = np.concatenate([j, i, loses, np.full(len(loses), n), np.full(len(gains), n + 1), gains])
        nothing = np.zeros(max(len(gains), len(loses)))
        out, into = -one[loses], one[gains]
        size = np.concatenate([half, half, out, nothing[: len(loses)], into, nothing[: len(gains)]])
        self.scale = MOST_CAPACITY / float(min(out.sum(), into.sum()))
        self.graph = csr_array((size, (tail, head)), shape=(n + 2, n + 2))
        self.graph.sort_indices()
        self.graph.data = np.minimum(self.graph.data * self.scale, MOST_CAPACITY).astype(np.int32)

    def cut(self) -> tuple[Ints, float]:
        """The nodes on the side of the source, and the value of a largest flow."""
        found = maximum_flow(self.graph, self.source, self.sink)
        left = self.graph - found.flow
        left.data = np.where(left.data > 0, 1, 0).astype(np.int32)
        left.eliminate_zeros()
        reached = breadth_first_order(left, self.source, return_predecessors=False)
        nodes: Ints = reached[reached < self.source].astype(np.int64)
        return nodes, found.flow_value / self.scale
