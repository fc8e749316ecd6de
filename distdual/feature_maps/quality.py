"""How well a map reproduces its kernel on a sample of rows."""

from typing import NamedTuple

import numpy as np

from distdual.feature_maps.blas import one_blas_thread
from distdual.feature_maps.feature_map import FeatureMap
from distdual.feature_maps.kernel_function import Landmarks
from distdual.kernels.rows import Features


class Quality(NamedTuple):
    sample: int  # rows
    relative_error: float  # ||K − Φ Φᵀ|| / ||K|| over the sample, in the Frobenius norm
    largest_error: float  # max |k(x, z) − ⟨φ(x), φ(z)⟩|


def quality(feature_map: FeatureMap, sample: Features) -> Quality:
    """Compare ⟨φ(x), φ(z)⟩ with k(x, z) for all pairs of the sample."""
    mapped = feature_map.rows(sample).values.astype(np.float64)
    with one_blas_thread():
        exact = feature_map.function.between(sample, Landmarks(sample, feature_map.n_inputs))
        error = exact - mapped @ mapped.T
    size = float(np.linalg.norm(exact))
    relative = float(np.linalg.norm(error)) / size if size else 0.0
    return Quality(sample.n_rows, relative, float(np.abs(error).max(initial=0.0)))
