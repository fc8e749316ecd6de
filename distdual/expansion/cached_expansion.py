"""The cached problem of an exact kernel: examples, their kernel matrix, and coefficients b with their gradient.

D(b) = Σ_i ⟨t_i, b_i⟩ − ε Σ |b_i| − 1/2 Σ_c ⟨b_c, K b_c⟩,   h = t − K b        (problems/expansion_form.py)
"""

from typing import Any

import numpy as np

from distdual.errors import InputError
from distdual.expansion.class_ascent import ascend_classes
from distdual.expansion.gram import Gram
from distdual.expansion.pair_ascent import ascend_pairs
from distdual.kernels.rows import Floats, Int32s, Ints
from distdual.problems.expansion_form import ExpansionForm, TwoSided
from distdual.scan.expansion_scan import Examples

STEPS = 500  # between two looks at the gap
COEFFICIENT_GRID = 2.0**-44  # of C_i, rounded up to a power of 2: multiples of it add up without rounding


class CachedExpansion:
    def __init__(self, gram: Gram, C: float, form: ExpansionForm) -> None:
        self.gram, self.C, self.form = gram, C, form
        self.example: Ints = np.empty(0, dtype=np.int64)
        self.label: Int32s = np.empty(0, dtype=np.int32)
        self.most = np.empty(0)
        self.target, self.b, self.h = (np.empty((0, form.columns)) for _ in range(3))
        self.updates = 0

    def add(self, new: Examples) -> None:
        """Insert examples with b = 0, which were looked at with the present b."""
        if not len(new.example):
            return
        self.gram.add(new.rows)
        self.example = np.concatenate([self.example, new.example])
        self.label = np.concatenate([self.label, new.label])
        self.most = np.concatenate([self.most, self.C * new.cost])
        self.target = np.concatenate([self.target, new.target])
        self.b = np.concatenate([self.b, np.zeros(new.target.shape)])
        self.h = np.concatenate([self.h, new.h])

    def set(self, b: Floats) -> None:
        """Give all examples these coefficients, which must be feasible."""
        if b.shape != self.b.shape or self.form.infeasible(b, self.label, self.most).any():
            raise InputError("b: coefficients are not feasible")
        self.b = b
        values = self.gram.values
        self.h = self.target - (values @ b.astype(values.dtype)).astype(np.float64)

    @property
    def largest(self) -> Floats:
        """(n,) the coefficient of each example that C_i bounds."""
        found: Floats = np.abs(self.b).max(axis=1, initial=0.0)
        return found

    @property
    def support(self) -> Ints:
        return np.flatnonzero(self.b.any(axis=1))

    def bounds(self) -> tuple[float, float]:
        """D(b), and P restricted to the cached examples, both without a bound on rounding: they steer only."""
        square = float((self.b * (self.target - self.h)).sum())
        slack = np.maximum(0.0, self.form.violation(self.h, self.label))
        linear = float((self.b * self.target).sum()) - self.form.epsilon * float(np.abs(self.b).sum())
        return linear - 0.5 * square, 0.5 * square + float(self.most @ slack)

    def ascend(self, gap: float, stop: Any) -> None:
        """Take steps until the gap of the cached problem is small enough, none gains, or `stop()`."""
        diagonal = np.diag(self.gram.values).astype(np.float64)
        before, _ = self.bounds()
        while True:
            done = self._steps(diagonal)
            self.updates += 2 * done
            lower, upper = self.bounds()
            if done < STEPS or upper - lower <= gap * upper or lower <= before or stop():
                break
            before = lower
        self._settle()

    def _steps(self, diagonal: Floats) -> int:
        values = self.gram.values
        if isinstance(self.form, TwoSided):
            low, high = (side * self.most for side in self.form.sides(self.label))
            return ascend_pairs(values, self.b[:, 0], self.h[:, 0], low, high, diagonal, self.form.epsilon, STEPS)
        step = np.empty(self.form.columns)
        return ascend_classes(values, self.b, self.h, self.label, self.most, diagonal, step, STEPS)

    def _settle(self) -> None:
        """Round coefficients of several classes so that they are feasible exactly; gradients are off by as little."""
        if isinstance(self.form, TwoSided):
            return
        at = np.arange(len(self.b)), self.label
        wrong = np.minimum(self.b, 0.0)
        wrong[at] = 0.0
        total = -wrong.sum(axis=1)
        shrink = np.where(total > self.most, self.most / np.where(total > 0, total, 1.0), 1.0)
        grid = (COEFFICIENT_GRID * np.exp2(np.ceil(np.log2(np.where(self.most > 0, self.most, 1.0)))))[:, None]
        self.b = np.ceil(wrong * shrink[:, None] / grid) * grid
        self.b[at] = -self.b.sum(axis=1)

    def correct(self, exact: Floats) -> float:
        """Replace the gradients by exact ones; returns by how much they were off, on the average."""
        off = float(np.abs(self.h - exact).mean()) if len(exact) else 0.0
        self.h = exact
        return off
