"""The cached problem of an exact kernel: examples, their kernel matrix, and b = y α with its gradient.

D(b) = ⟨t, b⟩ − 1/2 ⟨b, K b⟩,   t_i = y_i l_i,   0 ≤ y_i b_i ≤ C_i,   h = t − K b
"""

from typing import Any

import numpy as np

from distdual.expansion.gram import Gram
from distdual.expansion.pair_ascent import ascend_pairs
from distdual.kernels.rows import Floats, Ints
from distdual.scan.expansion_scan import Examples

STEPS = 500  # between two looks at the gap


class CachedExpansion:
    def __init__(self, gram: Gram, C: float) -> None:
        self.gram, self.C = gram, C
        self.example: Ints = np.empty(0, dtype=np.int64)
        self.sign, self.margin, self.most, self.b, self.h = (np.empty(0) for _ in range(5))
        self.updates = 0

    def add(self, new: Examples) -> None:
        """Insert examples with b = 0."""
        if not len(new.example):
            return
        n = len(self.example)
        self.gram.add(new.rows)
        self.example = np.concatenate([self.example, new.example])
        self.sign = np.concatenate([self.sign, new.sign])
        self.margin = np.concatenate([self.margin, new.margin])
        self.most = np.concatenate([self.most, self.C * new.cost])
        self.b = np.concatenate([self.b, np.zeros(len(new.example))])
        self.h = np.concatenate([self.h, np.empty(len(new.example))])
        self.h[n:] = self.target[n:] - self._products(slice(n, None))

    @property
    def target(self) -> Floats:
        """t_i = y_i l_i."""
        return self.sign * self.margin

    @property
    def alpha(self) -> Floats:
        return np.abs(self.b)

    @property
    def support(self) -> Ints:
        return np.flatnonzero(self.b)

    def _products(self, rows: slice) -> Floats:
        """K b for some rows."""
        used = self.support
        block = self.gram.values[rows]
        return np.asarray(block[:, used] @ self.b[used].astype(block.dtype), dtype=np.float64)

    def bounds(self) -> tuple[float, float]:
        """D(b), and P restricted to the cached examples, both without a bound on rounding: they steer only."""
        square = float(self.b @ (self.target - self.h))
        slack = np.maximum(0.0, self.sign * self.h)
        return float(self.b @ self.target) - 0.5 * square, 0.5 * square + float(self.most @ slack)

    def ascend(self, gap: float, stop: Any) -> None:
        """Take steps until the gap of the cached problem is small enough, or `stop()`."""
        low, high = np.where(self.sign > 0, 0.0, -self.most), np.where(self.sign > 0, self.most, 0.0)
        values = self.gram.values
        diagonal = np.diag(values).astype(np.float64)
        while True:
            done = ascend_pairs(values, self.b, self.h, low, high, diagonal, STEPS)
            self.updates += 2 * done
            lower, upper = self.bounds()
            if done < STEPS or upper - lower <= gap * upper or stop():
                return

    def correct(self, exact: Floats) -> float:
        """Replace the gradients by exact ones; returns by how much they were off, on the average."""
        off = float(np.abs(self.h - exact).mean()) if len(exact) else 0.0
        self.h = exact
        return off
