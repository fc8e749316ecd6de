"""R(w), R*(v) and D(α) with a bound on their rounding, for data, weights and α taken as exact numbers."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from distdual.kernels.rounding import MARGIN, UNIT, UNKNOWN_VALUE, Enclosed, enclosed_product, gamma, norm_bound, root
from distdual.kernels.rows import Floats
from distdual.problems.base import Magnitude
from distdual.solver.regularizer import Prior


class Mass(NamedTuple):
    """What the rounding of Σ α l and Σ α x depends on: bounds over the constraints added up."""

    alpha: float = 0.0  # Σ α, each times the cost of the members of its row
    terms: float = 0.0  # constraints added up, and roundings in each


def penalty(prior: Prior, w: Floats) -> Enclosed:
    """R(w)."""
    off = prior.away(w)
    if not prior.full:
        scaled = off if prior.precision is None else prior.precision * off
        return enclosed_product(off, scaled, 4.0).times(0.5)
    assert prior.precision is not None
    with np.errstate(over="ignore", invalid="ignore"):
        value, size = off @ (prior.precision @ off), np.abs(off) @ (np.abs(prior.precision) @ np.abs(off))
    return Enclosed(0.5 * float(value), gamma(2.0 * len(w) + 8.0) * float(size)) if np.isfinite(size) else UNKNOWN_VALUE


def conjugate(prior: Prior, v: Floats, off: float = 0.0, reach: float = 0.0) -> Enclosed:
    """R* at any vector within `off` of v: R*(v + δ) ≤ R*(v) + ⟨w, δ⟩ + 1/2 δᵀ Λ⁻¹ δ. Only its upper side is proven.

    A free bias of which |b| ≤ `reach` is known adds reach · |v_b|.
    """
    if prior.free:
        rest = conjugate(replace(prior, free=0.0), np.append(v[:-1], 0.0), off)
        imbalance = abs(float(v[-1]))
        return rest.plus(Enclosed(MARGIN * reach * imbalance if imbalance else 0.0, reach * off if off else 0.0))
    if prior.plain:
        square = enclosed_product(v, v)
        return square.times(0.5).wider((root(square.high) + 0.5 * off) * off * MARGIN)
    w = prior.weights(v)
    found = enclosed_product(v, w).plus(penalty(prior, w), -1.0)
    grown = (norm_bound(w) + 0.5 * off / least_precision(prior)) * off
    return found.wider(MARGIN * (grown + below_supremum(prior, v, w)))


def below_supremum(prior: Prior, v: Floats, w: Floats) -> float:
    """How far ⟨v, w⟩ − R(w) may lie below its supremum R*(v), as w is rounded: 1/2 (ŵ − w)ᵀ Λ (ŵ − w)."""
    if not prior.full:
        with np.errstate(over="ignore"):
            size = np.abs(prior.centre) + np.abs(prior.variance * v)
            return 16.0 * UNIT**2 * float((size**2 / prior.variance).sum())
    assert prior.precision is not None
    away = w - prior.centre
    rest = v - prior.precision @ away
    size = np.abs(v) + np.abs(prior.precision) @ (np.abs(w) + np.abs(prior.centre))
    bound = np.abs(rest) + gamma(len(v) + 4.0) * size
    return MARGIN * 0.5 * float(bound @ bound) / least_precision(prior)


def least_precision(prior: Prior) -> float:
    """A lower bound of the eigenvalues of Λ."""
    if prior.precision is None:
        return 1.0
    return max(prior.least_precision, math.ulp(0.0)) / MARGIN


def reach_of(prior: Prior, size: Magnitude, upper: float) -> float:
    """A bound on |b| at an optimum with a free bias, where P(w*) ≤ `upper`.

    Some example of either sign has α > 0 there, so |b c| ≤ max |l| + max ||x|| ||w*||, and R(w*) ≤ P(w*).
    """
    if not prior.free:
        return 0.0
    if not upper < math.inf:
        return math.inf
    centre = 0.0 if prior.mean is None else norm_bound(prior.mean)
    norm = centre + root(2.0 * max(0.0, upper) / least_precision(prior))
    return MARGIN * (size.margin + size.row * norm) / prior.free


def dual(prior: Prior, linear: Enclosed, v: Floats, mass: Mass, size: Magnitude, upper: float = math.inf) -> Enclosed:
    """D(α) from Σ α l and v = Σ α x as computed; its lower side is proven.

    ||v̂ − v|| ≤ γ Σ α ||x||, and rounding puts each margin off by at most γ |l|. `upper`, a bound of P(w*), bounds what
    rounding of Σ α x_b = 0 can do where the bias is free.
    """
    rounded = gamma(mass.terms + size.terms)
    off = rounded * mass.alpha * max(size.row, 1.0) if mass.alpha else 0.0
    off_linear = rounded * mass.alpha * size.margin if mass.alpha else 0.0
    return linear.wider(off_linear).plus(conjugate(prior, v, MARGIN * off, reach_of(prior, size, upper)), -1.0)


def lower_bound(prior: Prior, found: Enclosed) -> Enclosed:
    """The better of D(α) and D(0), which holds whatever α is."""
    if prior.plain and not prior.free:
        at_zero = Enclosed(0.0)
    else:
        nothing = conjugate(prior, np.zeros(prior.n_weights))
        at_zero = Enclosed(-nothing.value, nothing.error)
    return found if found.low > at_zero.low else at_zero
