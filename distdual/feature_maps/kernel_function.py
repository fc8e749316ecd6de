"""Kernel functions k(x, z), as scikit-learn defines them, in float64.

rbf         exp(−γ ||x − z||²)
laplacian   exp(−γ ||x − z||₁)
polynomial  (γ ⟨x, z⟩ + coef0)^degree
sigmoid     tanh(γ ⟨x, z⟩ + coef0)
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from distdual.errors import InputError
from distdual.kernels.rounding import MARGIN, UNIT, gamma
from distdual.kernels.rows import CsrRows, DenseRows, Features, Floats
from distdual.memory import check_room

SPARSE_PRODUCT = 0.05  # share of values stored up to which sparse products are faster than dense ones
LARGEST = 1e37  # of a value and of what it is computed from: the search for offenders is in single precision


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFunction:
    kind: str
    gamma: float
    degree: int = 3
    coef0: float = 0.0

    @property
    def is_positive_definite(self) -> bool:
        """Whether all kernel matrices are positive semidefinite, without which D(α) bounds nothing."""
        return self.kind in ("rbf", "laplacian") or (self.kind == "polynomial" and self.coef0 >= 0)

    def between(self, x: Features, to: "Landmarks") -> Floats:
        """(n, m) k(x_i, z_j), in an array of its own."""
        own = squared_norms(x)
        self.check_range(float(own.max(initial=0.0)) ** 0.5, to.largest_norm)
        if self.kind == "laplacian":
            apart = cdist(dense_matrix(x, to.width), to.rows, "cityblock")
            return np.exp(-self.gamma * apart).astype(to.rows.dtype, copy=False)
        found = to.products(x)
        if self.kind == "rbf":
            found *= 2.0 * self.gamma
            found -= (self.gamma * own).astype(found.dtype)[:, None]
            found -= (self.gamma * to.squared_norms).astype(found.dtype)
            return np.exp(np.minimum(found, 0.0, out=found), out=found)
        found *= self.gamma
        found += self.coef0
        return np.tanh(found, out=found) if self.kind == "sigmoid" else found**self.degree

    def diagonal(self, x: Features) -> Floats:
        """(n,) k(x_i, x_i)."""
        if self.kind in ("rbf", "laplacian"):
            return np.ones(x.n_rows)
        found = self.gamma * squared_norms(x) + self.coef0
        return np.tanh(found) if self.kind == "sigmoid" else found**self.degree

    def largest(self, norm: float, other: float) -> float:
        """An upper bound of |k(x, z)| where ||x|| and ||z|| are at most these."""
        if self.kind in ("rbf", "laplacian", "sigmoid"):
            return 1.0
        return power_or_inf(self.gamma * norm * other + abs(self.coef0), self.degree)

    def check_range(self, norm: float, other: float) -> None:
        """Refuse rows of these norms where a value, or what it is computed from, may overflow."""
        inner = self.gamma * max(norm + other, (norm + other) ** 2) + abs(self.coef0)
        if not max(inner, self.largest(norm, other)) <= LARGEST:
            raise InputError(
                f"kernel: the {self.kind} kernel with gamma {self.gamma:g}, degree {self.degree} and coef0 "
                f"{self.coef0:g} overflows on rows as long as {max(norm, other):g}; scale the features, or take other "
                "parameters"
            )

    def rounding(self, norm: float, other: float, width: int) -> float:
        """An upper bound of the error of a value computed in float64, for rows of these norms and `width` columns.

        Exponents and inner products are sums of `width` products; exp, tanh and pow are right to a few units.
        """
        terms = gamma(width + 8)
        if self.kind == "rbf":
            return MARGIN * (self.gamma * terms * (norm + other) ** 2 + 8.0 * UNIT)
        if self.kind == "laplacian":
            return MARGIN * (self.gamma * terms * math.sqrt(width) * (norm + other) + 8.0 * UNIT)
        inner = self.gamma * norm * other + abs(self.coef0)
        if self.kind == "sigmoid":
            return MARGIN * (terms * inner + 8.0 * UNIT)
        return MARGIN * self.degree * (terms + 8.0 * UNIT) * power_or_inf(inner, self.degree)


class Landmarks:
    """Rows z_j that others are compared with, in float64 unless told otherwise."""

    def __init__(self, rows: Features, width: int, dtype: Any = np.float64) -> None:
        self.width = width
        check_room("the landmarks in full", rows.n_rows * width * np.dtype(dtype).itemsize)
        self.rows = dense_matrix(rows, width, dtype)
        self.squared_norms = squared_norms(rows)
        self.largest_norm = float(self.squared_norms.max(initial=0.0)) ** 0.5

    def products(self, x: Features) -> Floats:
        """(n, m) ⟨x_i, z_j⟩."""
        if isinstance(x, DenseRows) or n_stored(x) > SPARSE_PRODUCT * x.n_rows * self.width:
            return dense_matrix(x, self.width, self.rows.dtype) @ self.rows.T
        return np.asarray(csr_matrix(x, self.width, self.rows.dtype) @ self.rows.T)


def power_or_inf(base: float, exponent: int) -> float:
    """base^exponent, infinite where that overflows."""
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf


def dense_matrix(x: Features, width: int, dtype: Any = np.float64) -> Floats:
    if isinstance(x, DenseRows):
        return x.values.astype(dtype)
    return np.asarray(csr_matrix(x, width, dtype).toarray())


def csr_matrix(x: CsrRows, width: int, dtype: Any = np.float64) -> Any:
    own = x.trimmed()
    return sp.csr_array((own.values.astype(dtype), own.indices, own.indptr), shape=(x.n_rows, width))


def n_stored(x: CsrRows) -> int:
    return int(x.indptr[-1] - x.indptr[0])


def squared_norms(x: Features) -> Floats:
    """(n,) ||x_i||²."""
    if isinstance(x, DenseRows):
        found: Floats = np.einsum("ij,ij->i", x.values, x.values, dtype=np.float64)
        return found
    own = x.trimmed()
    return own.row_sums(own.values.astype(np.float64) ** 2)
