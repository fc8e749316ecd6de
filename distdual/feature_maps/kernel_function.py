"""Kernel functions k(x, z), as scikit-learn defines them, in float64.

rbf         exp(−γ ||x − z||²)
laplacian   exp(−γ ||x − z||₁)
polynomial  (γ ⟨x, z⟩ + coef0)^degree
sigmoid     tanh(γ ⟨x, z⟩ + coef0)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from distdual.kernels.rows import CsrRows, DenseRows, Features, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFunction:
    kind: str
    gamma: float
    degree: int = 3
    coef0: float = 0.0

    def between(self, x: Features, to: "Landmarks") -> Floats:
        """(n, m) k(x_i, z_j), in an array of its own."""
        if self.kind == "laplacian":
            return np.exp(-self.gamma * cdist(doubles(x, to.width), to.rows, "cityblock"))
        found = to.products(x)
        if self.kind == "rbf":
            found *= 2.0 * self.gamma
            found -= self.gamma * squared_norms(x)[:, None]
            found -= self.gamma * to.squared_norms
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


class Landmarks:
    """Rows z_j that others are compared with, in float64."""

    def __init__(self, rows: Features, width: int) -> None:
        self.width = width
        self.rows = doubles(rows, width)
        self.squared_norms = np.einsum("ij,ij->i", self.rows, self.rows)

    def products(self, x: Features) -> Floats:
        """(n, m) ⟨x_i, z_j⟩."""
        if isinstance(x, DenseRows):
            return doubles(x, self.width) @ self.rows.T
        return np.asarray(csr_matrix(x, self.width) @ self.rows.T)


def doubles(x: Features, width: int) -> Floats:
    """Rows as a dense matrix in float64."""
    if isinstance(x, DenseRows):
        return x.values.astype(np.float64)
    return np.asarray(csr_matrix(x, width).toarray())


def csr_matrix(x: CsrRows, width: int) -> Any:
    own = x.trimmed()
    return sp.csr_array((own.values.astype(np.float64), own.indices, own.indptr), shape=(x.n_rows, width))


def squared_norms(x: Features) -> Floats:
    """(n,) ||x_i||²."""
    if isinstance(x, DenseRows):
        found: Floats = np.einsum("ij,ij->i", x.values, x.values, dtype=np.float64)
        return found
    own = x.trimmed()
    return own.row_sums(own.values.astype(np.float64) ** 2)
