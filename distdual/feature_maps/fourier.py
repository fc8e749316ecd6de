"""Random Fourier features: k(x − z) = E cos(⟨ω, x − z⟩) over frequencies ω of the kernel's spectrum.

    φ(x) = m^(−1/2) (cos ⟨ω_1, x⟩ … cos ⟨ω_m, x⟩, sin ⟨ω_1, x⟩ … sin ⟨ω_m, x⟩)

rbf: ω normal with variance 2γ. laplacian: ω Cauchy with scale γ. ||φ(x)|| is exactly 1.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.errors import InputError
from distdual.feature_maps.feature_map import FeatureMap
from distdual.feature_maps.kernel_function import KernelFunction, csr_matrix, dense_matrix
from distdual.kernels.rows import DenseRows, Features, Floats

STATIONARY = ("rbf", "laplacian")


@dataclass(frozen=True, eq=False)
class FourierMap(FeatureMap):
    kind: ClassVar[str] = "fourier"

    function: KernelFunction
    frequencies: Floats  # (n_inputs, m)

    @property
    def n_inputs(self) -> int:  # type: ignore[override]
        return len(self.frequencies)

    @property
    def width(self) -> int:
        return 2 * int(self.frequencies.shape[1])

    def block(self, x: Features) -> Floats:
        rows = dense_matrix(x, self.n_inputs) if isinstance(x, DenseRows) else csr_matrix(x, self.n_inputs)
        phase = np.asarray(rows @ self.frequencies)
        m = phase.shape[1]
        found = np.empty((len(phase), 2 * m))
        np.cos(phase, out=found[:, :m])
        np.sin(phase, out=found[:, m:])
        found *= m**-0.5
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"frequencies": self.frequencies}


def fourier_map(function: KernelFunction, n_inputs: int, width: int, seed: int) -> FourierMap:
    """A map with frequencies drawn by seed."""
    if function.kind not in STATIONARY:
        raise InputError(
            f'kernel.map = "fourier" needs a kernel of x − z, {" or ".join(STATIONARY)}, not {function.kind}; '
            'take map = "nystroem"'
        )
    if width % 2:
        raise InputError(f'kernel.basis must be even with map = "fourier", a cosine and a sine each; got {width}')
    draw, size = np.random.default_rng([seed, 5]), (n_inputs, width // 2)
    if function.kind == "rbf":
        return FourierMap(function, np.sqrt(2.0 * function.gamma) * draw.normal(size=size))
    return FourierMap(function, function.gamma * draw.standard_cauchy(size=size))
