"""A free bias: the loss along it, as the kinks of a convex piecewise linear function.

A shift t of all scores changes an example's slack at one kink, or at two in regression. Near the optimum only the kinks
close to 0 matter, so a shard reports the nearest ones and how far they reach.
"""

import numpy as np

from distdual.kernels.rows import Bools, Floats
from distdual.problems.base import BiasKinks


def hinge_kinks(residual: Floats, positive: Bools, cost: Floats, most: int) -> BiasKinks:
    """ξ_i = max(0, residual_i − y_i t): the loss falls with t for y_i = 1 until t = residual_i, and rises for −1."""
    at = np.where(positive, residual, -residual)
    slope = -float(cost[positive & (residual >= 0)].sum()) + float(cost[~positive & (residual > 0)].sum())
    return nearest_kinks(at, cost, slope, float(cost.sum()), most)


def tube_kinks(residual: Floats, epsilon: float, cost: Floats, most: int) -> BiasKinks:
    """ξ_i = max(0, |residual_i − t| − ε): the loss falls until residual_i − ε, and rises from residual_i + ε on."""
    slope = float(cost[residual + epsilon < 0].sum()) - float(cost[residual - epsilon >= 0].sum())
    at = np.concatenate([residual - epsilon, residual + epsilon])
    return nearest_kinks(at, np.concatenate([cost, cost]), slope, float(cost.sum()), most)


def nearest_kinks(at: Floats, weight: Floats, slope: float, total: float, most: int) -> BiasKinks:
    """Keep the kinks nearest to 0, at most so many."""
    kept = np.flatnonzero(weight > 0)
    at, weight = at[kept], weight[kept]
    low, high = -np.inf, np.inf
    if len(at) > most:
        order = np.argpartition(np.abs(at), most)
        reach = float(np.abs(at[order[most]]))  # the nearest of those left out
        low, high = -reach, reach
        at, weight = at[order[:most]], weight[order[:most]]
    return BiasKinks(at, weight, slope, low, high, total)
