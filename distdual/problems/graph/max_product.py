"""Exact inference on forests: max-product from the leaves to a root of each tree, and back."""

import numpy as np

from distdual.kernels.jit import bare_kernel, kernel
from distdual.kernels.rows import Floats, Ints


def is_forest(n_nodes: int, edges: Ints) -> bool:
    """Whether the edges close no circle."""
    if len(edges) >= n_nodes:
        return False
    return bool(order_from_leaves(n_nodes, edges, np.empty(n_nodes, np.int64), np.empty(n_nodes, np.int64)))


def best_of_forest(unary: Floats, edges: Ints, pair: Floats) -> Ints:
    """Labels that maximise Σ unary[i, y_i] + Σ pair[e, y_i, y_j] over the edges e = (i, j) of a forest."""
    n = len(unary)
    order, parent = np.empty(n, np.int64), np.empty(n, np.int64)
    order_from_leaves(n, edges, order, parent)
    labels = np.empty(n, dtype=np.int64)
    max_product(unary.copy(), edges, pair, order, parent, np.empty(unary.shape, np.int64), labels)
    return labels


@kernel
def order_from_leaves(n_nodes: int, edges: Ints, order: Ints, parent: Ints) -> bool:
    """Fill `order` with the nodes, each before the other end of its edge `parent`; −1 at a root. False if circular.

    Removes a leaf at a time; what is left of the exclusive or of a leaf's edges is its last edge.
    """
    degree = np.zeros(n_nodes, dtype=np.int64)
    rest = np.zeros(n_nodes, dtype=np.int64)
    for e in range(len(edges)):
        for side in range(2):
            degree[edges[e, side]] += 1
            rest[edges[e, side]] ^= e
    filled = 0
    for i in range(n_nodes):
        if degree[i] <= 1:
            order[filled] = i
            filled += 1
    k = 0
    while k < filled:
        i = order[k]
        k += 1
        if degree[i] == 0:
            parent[i] = -1
            continue
        e = rest[i]
        parent[i] = e
        j = edges[e, 0] + edges[e, 1] - i
        degree[i] = 0
        degree[j] -= 1
        rest[j] ^= e
        if degree[j] == 1:
            order[filled] = j
            filled += 1
    return filled == n_nodes


@bare_kernel
def max_product(total: Floats, edges: Ints, pair: Floats, order: Ints, parent: Ints, best: Ints, labels: Ints) -> None:
    """Add up in `total` what lies below each node; `best` says which label goes with each of the other end."""
    n_labels = total.shape[1]
    for i in order:
        e = parent[i]
        if e < 0:
            continue
        first = edges[e, 0] == i
        j = edges[e, 1] if first else edges[e, 0]
        for b in range(n_labels):
            top, best[i, b] = -np.inf, 0  # which stays where scores are NaN
            for a in range(n_labels):
                value = total[i, a] + (pair[e, a, b] if first else pair[e, b, a])
                if value > top:
                    top = value
                    best[i, b] = a
            total[j, b] += top
    for k in range(len(order) - 1, -1, -1):
        i = order[k]
        e = parent[i]
        if e < 0:
            labels[i] = np.argmax(total[i])
        else:
            labels[i] = best[i, labels[edges[e, 0] + edges[e, 1] - i]]
