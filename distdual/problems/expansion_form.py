"""How problems are written with one row β_i of coefficients for each example, as an exact kernel needs it.

    w_c = Σ_i β_ic φ(x_i),     s_ic = ⟨w_c, φ(x_i)⟩,     h_i = t_i − s_i
    D(β) = Σ_i ⟨t_i, β_i⟩ − ε Σ_i |β_i| − 1/2 Σ_c ||w_c||²

                 t_i                  feasible β_i                           violation(h_i), of which ξ_i is max(0, ·)
    binary       y_i l_i              0 ≤ y_i β_i ≤ C_i                      y_i h_i
    regression   target_i             |β_i| ≤ C_i                            |h_i| − ε
    multiclass   −loss(y_i, c)        Σ_c β_ic = 0,  β_ic ≤ C_i [c = y_i]    h_iy − min over c ≠ y of h_ic

The gradient of D by β_i is h_i, up to ε. D and D's constraints follow from those of the problems' own files, with
β_i = Σ_j α_ij v_ij, where v_ij is y_i, ±1, or e_y − e_j.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rows import Bools, Floats, Int32s, Ints
from distdual.problems.base import Keys, Problem
from distdual.problems.binary import Binary
from distdual.problems.linear import FREE
from distdual.problems.multiclass import Multiclass
from distdual.problems.regression import Regression


@dataclass(frozen=True)
class ExpansionForm(ABC):
    columns: int = 1  # scores of an example
    steepness: float = 1.0  # by how much ξ changes at most when every score changes by 1
    epsilon: float = 0.0

    @abstractmethod
    def targets(self, shard: Shard) -> Floats:
        """(n, columns) t_i."""

    def labels(self, shard: Shard) -> Int32s:
        """(n,) what decides which β_i are feasible."""
        return shard.y.astype(np.int32)

    @abstractmethod
    def violation(self, h: Floats, label: Int32s) -> Floats:
        """(n,) of which ξ_i is the positive part."""

    @abstractmethod
    def label_of(self, beta: Floats) -> Int32s:
        """(n,) the label for which such a β_i, not 0, can be feasible."""

    @abstractmethod
    def infeasible(self, beta: Floats, label: Int32s, most: Floats) -> Bools:
        """(n,) which β_i are not feasible, exactly, for C_i = `most`."""

    def names(self, beta: Floats) -> tuple[Ints, Keys, Floats]:
        """The constraints (row of β, key) behind β, and their α > 0."""
        used = np.flatnonzero(beta[:, 0])
        return used, Keys.none(len(used)), np.abs(beta[used, 0])

    def coefficients(self, row: Ints, keys: Keys, alpha: Floats, label: Int32s) -> Floats:  # noqa: ARG002
        """β from named constraints of examples with these labels."""
        found = np.zeros((len(label), 1))
        found[row, 0] = np.where(label[row] == 1, alpha, -alpha)
        return found


@dataclass(frozen=True)
class TwoSided(ExpansionForm):
    """One coefficient an example, whose sign is a label: 1 for positive ones."""

    def label_of(self, beta: Floats) -> Int32s:
        return (beta[:, 0] > 0).astype(np.int32)

    def sides(self, label: Int32s) -> tuple[Floats, Floats]:
        """The least and the largest β_i, divided by C_i."""
        return np.where(label == 1, 0.0, -1.0), np.where(label == 1, 1.0, 0.0)

    def infeasible(self, beta: Floats, label: Int32s, most: Floats) -> Bools:
        low, high = self.sides(label)
        found: Bools = ~((beta[:, 0] >= low * most) & (beta[:, 0] <= high * most))
        return found


@dataclass(frozen=True)
class BinaryForm(TwoSided):
    def targets(self, shard: Shard) -> Floats:
        margin = np.ones(shard.n_examples) if shard.margin is None else shard.margin
        return np.where(shard.y == 1, margin, -margin)[:, None]

    def violation(self, h: Floats, label: Int32s) -> Floats:
        return np.where(label == 1, h[:, 0], -h[:, 0])


@dataclass(frozen=True)
class RegressionForm(TwoSided):
    def targets(self, shard: Shard) -> Floats:
        return shard.y.astype(np.float64)[:, None]

    def labels(self, shard: Shard) -> Int32s:
        return np.zeros(shard.n_examples, dtype=np.int32)

    def violation(self, h: Floats, label: Int32s) -> Floats:  # noqa: ARG002
        found: Floats = np.abs(h[:, 0]) - self.epsilon
        return found

    def sides(self, label: Int32s) -> tuple[Floats, Floats]:
        return np.full(len(label), -1.0), np.ones(len(label))


@dataclass(frozen=True)
class MulticlassForm(ExpansionForm):
    loss: tuple[tuple[float, ...], ...] = ()

    def targets(self, shard: Shard) -> Floats:
        found: Floats = -np.array(self.loss)[shard.y]
        return found

    def violation(self, h: Floats, label: Int32s) -> Floats:
        at = np.arange(len(h)), label
        others = h.copy()
        others[at] = np.inf
        found: Floats = h[at] - others.min(axis=1, initial=np.inf)
        return found

    def label_of(self, beta: Floats) -> Int32s:
        found: Int32s = beta.argmax(axis=1).astype(np.int32)
        return found

    def infeasible(self, beta: Floats, label: Int32s, most: Floats) -> Bools:
        at = np.arange(len(beta)), label
        wrong = beta.copy()
        wrong[at] = 0.0
        unbalanced = np.array([math.fsum(row) != 0.0 for row in beta.tolist()], dtype=bool)
        found: Bools = ~((wrong <= 0).all(axis=1) & (beta[at] <= most)) | unbalanced
        return found

    def names(self, beta: Floats) -> tuple[Ints, Keys, Floats]:
        row, key = np.nonzero(beta < 0)
        return row, Keys(np.arange(len(row) + 1), key.astype(np.int32)), -beta[row, key]

    def coefficients(self, row: Ints, keys: Keys, alpha: Floats, label: Int32s) -> Floats:
        found = np.zeros((len(label), self.columns))
        np.subtract.at(found, (row, keys.values), alpha)
        np.add.at(found, (row, label[row]), alpha)
        return found


def expansion_form_of(problem: Problem) -> ExpansionForm:
    """The form of a problem, if it has one."""
    if getattr(problem, "bias", 0.0) == FREE:
        raise InputError("a free bias is not possible with an exact kernel; give kernel.basis for a low-rank one")
    if isinstance(problem, Binary):
        return BinaryForm()
    if isinstance(problem, Regression):
        return RegressionForm(epsilon=float(problem.epsilon))
    if isinstance(problem, Multiclass):
        if problem.rescaling != "margin":
            raise InputError('an exact kernel needs problem.rescaling = "margin"; give kernel.basis for a low-rank one')
        table: Any = problem.losses
        return MulticlassForm(len(problem.classes), 2.0, loss=tuple(map(tuple, table.tolist())))
    raise InputError(
        f"an exact kernel needs a binary, multiclass or regression problem, not {problem.kind}; "
        "give kernel.basis for a low-rank one"
    )
