"""Balance of α where the bias is free: Σ_k α_k x_kb = 0, in which every lower bound begins.

Steps ascend the method of multipliers' dual, which allows an imbalance s = Σ α x_b and charges 1/2 s² + c s for it.
Moving the centre c by s after each sweep drives s to 0. What remains is taken from the heavier side, first from its
free α, where D is flat in that direction. Should D fall below that of the last balanced α even so, the best α between
the two is taken: both are feasible, so all between them are.
"""

from typing import NamedTuple

import numpy as np

from distdual.kernels.rows import CsrRows, DenseRows, Floats, Rows, product
from distdual.solver.regularizer import Prior

AT_BOUND = 1.0 - 1e-12  # share of its capacity above which an α is not free
TRIES = 3  # the second may remove what rounding has left of the imbalance
ROUNDED = 1e-15  # share of Σ α |x_b| up to which an imbalance is rounding, and part of the bound
HALVINGS = 20  # of the way from the last balanced α, until D does not fall


class Balanced(NamedTuple):
    """A feasible α, with v = Σ α x and D(α) as computed."""

    alpha: Floats
    v: Floats
    dual: float


def last_column(rows: Rows, width: int) -> Floats:
    """The bias entry of each row."""
    if isinstance(rows, DenseRows):
        return rows.values[:, -1].astype(np.float64)
    assert isinstance(rows, CsrRows)
    n, end = len(rows.indptr) - 1, int(rows.indptr[-1])
    at = np.flatnonzero(rows.indices[:end] == width - 1)
    row = np.searchsorted(rows.indptr, at, side="right") - 1
    return np.bincount(row, rows.values[at], minlength=n).astype(np.float64)


def imbalance(alpha: Floats, column: Floats) -> float:
    """Σ α x_b."""
    return product(alpha, column)


def scaled_to_balance(alpha: Floats, capacity: Floats, column: Floats) -> Floats:
    """α with the heavier side of Σ α x_b = 0 scaled down: its free α if they suffice, else all of them."""
    found = alpha.copy()
    for _ in range(TRIES):
        excess = imbalance(found, column)
        if abs(excess) <= ROUNDED * imbalance(found, np.abs(column)):
            break
        heavier = np.flatnonzero(column * np.sign(excess) > 0.0)
        free = heavier[found[heavier] < AT_BOUND * capacity[heavier]]
        mass = np.abs(imbalance(found[free], column[free]))
        chosen = free if mass >= np.abs(excess) else heavier
        mass = np.abs(imbalance(found[chosen], column[chosen]))
        if mass > 0.0:
            found[chosen] *= max(0.0, 1.0 - np.abs(excess) / mass)
    return found


def better(prior: Prior, margin: Floats, old: Balanced, new: Balanced) -> Balanced:
    """`new`, or an α between the two whose D is not below that of `old`."""
    share, best = 1.0, new
    for _ in range(HALVINGS):
        if best.dual >= old.dual:
            return best
        share *= 0.5
        alpha, v = old.alpha + share * (new.alpha - old.alpha), old.v + share * (new.v - old.v)
        best = Balanced(alpha, v, balanced_dual(prior, margin, alpha, v))
    return old


def balanced_dual(prior: Prior, margin: Floats, alpha: Floats, v: Floats) -> float:
    """D(α) of a balanced α."""
    rest = np.append(v[:-1], 0.0)
    w = prior.weights(rest)
    return product(margin, alpha) - (product(rest, w) - prior.penalty(w))
