"""A feature map made of rows that were drawn for it, as [kernel] says."""

from distdual.config import KernelConfig
from distdual.errors import InputError
from distdual.feature_maps.feature_map import FeatureMap
from distdual.feature_maps.fourier import fourier_map
from distdual.feature_maps.kernel_function import KernelFunction
from distdual.feature_maps.landmarks import CANDIDATES, Moments, kmeans_plus_plus
from distdual.feature_maps.nystroem import nystroem_map
from distdual.kernels.rows import Features
from distdual.memory import check_room

MAP_SAMPLE = 500  # rows that judge the map
LANDMARK_ROWS, SAMPLE_ROWS = 1, 2  # streams of random numbers


def n_drawn(kernel: KernelConfig) -> int:
    """Landmarks, or candidates for them, to draw from the data set."""
    if kernel.map == "fourier" or not isinstance(kernel.basis, int):
        return 0
    return kernel.basis * (CANDIDATES if kernel.landmarks == "k-means++" else 1)


def function_of(kernel: KernelConfig, n_features: int, moments: Moments, name: str) -> KernelFunction:
    """The kernel function; `moments`, needed for γ = "scale" alone, are those of all features of the data `name`."""
    gamma = gamma_of(kernel, n_features, moments, name)
    return KernelFunction(kind=kernel.kind, gamma=gamma, degree=kernel.degree, coef0=kernel.coef0)


def gamma_of(kernel: KernelConfig, n_features: int, moments: Moments, name: str) -> float:
    """γ as scikit-learn has it: "scale" is 1 / (n_features · variance), "auto" is 1 / n_features."""
    if kernel.gamma == "auto":
        return 1.0 / n_features
    if kernel.gamma != "scale":
        return float(kernel.gamma)
    if not moments.variance > 0:
        raise InputError(f'{name}: all features are equal, so that kernel.gamma = "scale" is undefined; give a number')
    return 1.0 / (n_features * moments.variance)


def map_of(kernel: KernelConfig, function: KernelFunction, n_inputs: int, rows: Features, seed: int) -> FeatureMap:
    """The map onto rows that were drawn, or with frequencies drawn by seed; kernel.basis is a number."""
    assert isinstance(kernel.basis, int)
    check_room(f"the map of kernel.basis = {kernel.basis}", 8 * kernel.basis * (2 * kernel.basis + n_inputs))
    if kernel.map == "fourier":
        return fourier_map(function, n_inputs, kernel.basis, seed)
    if kernel.landmarks == "k-means++":
        rows = kmeans_plus_plus(rows, kernel.basis, n_inputs, seed)
    return nystroem_map(function, rows, n_inputs)
