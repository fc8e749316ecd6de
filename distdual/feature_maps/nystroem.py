"""The Nyström map: features on which the kernel is exact wherever one of its arguments is a landmark.

    K = L Lᵀ,   K_jl = k(z_j, z_l)        φ(x) = L⁻¹ k(Z, x)        ⟨φ(x), φ(x')⟩ = k(x, Z) K⁻¹ k(Z, x')

(Joachims, Finley and Yu, section 3.3.) All in float64: in single precision ||φ(x)||² can exceed k(x, x) several times,
and the problem is another one. Landmarks that others already span are dropped by a Cholesky factorisation with pivots.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, eigvalsh, lapack

from distdual.errors import InputError
from distdual.feature_maps.blas import one_blas_thread
from distdual.feature_maps.feature_map import FeatureMap
from distdual.feature_maps.kernel_function import KernelFunction, Landmarks
from distdual.kernels.rows import CsrRows, DenseRows, Features, Floats
from distdual.schema import array

SPANNED = 1e-10  # of the largest k(z, z): what a landmark must add to those before it
INDEFINITE = 1e-6  # of the same: what may be left of a positive semidefinite matrix in float64


@dataclass(frozen=True, eq=False)
class NystroemMap(FeatureMap):
    kind: ClassVar[str] = "nystroem"
    derived: ClassVar[tuple[str, ...]] = ("factor",)

    function: KernelFunction
    landmarks: Features
    factor: Floats  # (m, m) L, lower triangular
    n_inputs: int

    @property
    def width(self) -> int:
        return len(self.factor)

    def block(self, x: Features) -> Floats:
        values = self.function.between(x, self._landmarks)
        solved: Floats = blas.dtrsm(1.0, self._factor, values.T, side=0, lower=1, overwrite_b=1).T
        return solved

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            **{f"landmarks_{name}": array for name, array in self.landmarks.arrays().items()},
            "factor": self.factor,
        }

    @cached_property
    def _landmarks(self) -> Landmarks:
        return Landmarks(self.landmarks, self.n_inputs)

    @cached_property
    def _factor(self) -> Floats:
        return np.asfortranarray(self.factor)

    def __reduce__(self) -> Any:
        """Without what can be computed again."""
        return NystroemMap, (self.function, self.landmarks, self.factor, self.n_inputs)


def nystroem_map(function: KernelFunction, candidates: Features, n_inputs: int) -> NystroemMap:
    """The map onto these landmarks; raises an InputError where the kernel is not positive definite on them."""
    landmarks = trimmed(candidates)
    with one_blas_thread():
        matrix = function.between(landmarks, Landmarks(landmarks, n_inputs))
        order, factor = factorised(matrix, function)
    return NystroemMap(function, trimmed(landmarks.take(order)), factor, n_inputs)


def factorised(matrix: Floats, function: KernelFunction) -> tuple[NDArray[np.int64], Floats]:
    """The landmarks that are kept, in order, and L of their matrix."""
    largest = float(np.abs(np.diag(matrix)).max())
    packed, pivots, rank, _ = lapack.dpstrf(matrix, tol=SPANNED * largest, lower=1)
    order = pivots.astype(np.int64) - 1
    long = np.tril(packed)[:, :rank]
    rest = matrix[np.ix_(order[rank:], order[rank:])] - long[rank:] @ long[rank:].T
    if not rank or np.abs(rest).max(initial=0.0) > INDEFINITE * largest:
        smallest = float(eigvalsh(matrix, subset_by_index=[0, 0])[0])
        raise InputError(
            f"kernel: the {function.kind} kernel with gamma {function.gamma:g} and coef0 {function.coef0:g} is not "
            f"positive definite on the basis: its matrix has the eigenvalue {smallest:.3g}; take other parameters, or "
            "the rbf kernel, which always is"
        )
    return order[:rank], np.ascontiguousarray(long[:rank])


def check_factor(name: str, factor: Any, n: int) -> None:
    array(name, factor, np.float64, (n, n))
    if np.triu(factor, 1).any() or not (np.diag(factor) > 0).all():
        raise InputError(f"{name}: expected a lower triangular matrix with a positive diagonal")


def trimmed(rows: Features) -> Features:
    """The same rows in arrays of their own, in the order of columns that comparing files needs."""
    found = rows.take(np.arange(rows.n_rows))
    if isinstance(found, DenseRows):
        return DenseRows(np.ascontiguousarray(found.values))
    return CsrRows(found.indptr, found.indices, found.values)
