"""What are the best α and w for the constraints met so far? A hot-started maximiser of D(α)."""

import numpy as np

from distdual.coordinator.ascent import ascend_groups, cache_loss, rebuild
from distdual.coordinator.cache import ConstraintCache
from distdual.problems.base import Constraints
from distdual.rows import Floats, Ints


class Solver:
    """Owns the cache, α and w. α stays feasible and w = Σ α x at all times; D(α) never falls."""

    def __init__(self, n_weights: int, C: float, seed: int) -> None:
        self.cache = ConstraintCache(C)
        self.w: Floats = np.zeros(n_weights)
        self.lower = 0.0  # D(0)
        self.n_updates = 0
        self.random = np.random.default_rng([seed, 1])

    def insert(self, constraints: Constraints) -> Ints:
        """Add constraints and improve the groups they belong to once; returns their slots."""
        slots = self.cache.insert(constraints)
        if len(slots):
            touched = np.unique(self.cache.example.view[slots])
            self._ascend(np.searchsorted(self.cache.group_example, touched))
        return slots

    def ascend(self, tolerance: float, max_passes: int) -> float:
        """Passes over the cache until its own gap is at most `tolerance`; returns that gap, or the last estimate.

        The gap of the cached problem steers the work; it says nothing about the examples not cached.
        """
        gap = np.inf
        for _ in range(max_passes if len(self.cache) else 0):
            estimate = self._ascend(np.arange(self.cache.n_groups))
            gap = relative_gap(estimate, self._dual())
            if gap <= tolerance:
                gap = relative_gap(self.cache_upper(), self._dual())
                if gap <= tolerance:
                    break
        return gap

    def bound(self) -> float:
        """Rebuild w from α and return `lower`: D(α), which holds for the full problem."""
        if len(self.cache):
            view = self.cache.view()
            rebuild(view.rows, view.alpha, self.w)
        self.lower = self._dual()
        return self.lower

    def cache_upper(self) -> float:
        """P restricted to the cached constraints: steers the solver, bounds nothing else."""
        view = self.cache.view()
        loss = cache_loss(view.rows, view.margin, view.members, view.group_indptr, view.capacity, self.w)
        return 0.5 * float(self.w @ self.w) + loss

    def support(self) -> Ints:
        """The slots with α > 0."""
        return np.flatnonzero(self.cache.alpha.view)

    def _ascend(self, groups: Ints) -> float:
        """One pass over `groups` in random order; returns UB′ (23)."""
        loss = ascend_groups(*self.cache.view(), self.w, self.random.permutation(groups))
        self.n_updates += len(groups)
        return 0.5 * float(self.w @ self.w) + loss

    def _dual(self) -> float:
        return float(self.cache.margin.view @ self.cache.alpha.view) - 0.5 * float(self.w @ self.w)


def relative_gap(upper: float, lower: float) -> float:
    """(upper − lower) / upper, and 0 where the optimum is 0."""
    return (upper - lower) / upper if upper > 0 else 0.0
