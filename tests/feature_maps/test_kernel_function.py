import math

import numpy as np
import pytest

from distdual.config.kernel import KERNELS
from distdual.feature_maps.kernel_function import KernelFunction, Landmarks
from distdual.kernels.rows import DenseRows, as_csr

DRAW = np.random.default_rng(3)
X = DRAW.normal(size=(7, 4)).astype(np.float32) * (DRAW.random((7, 4)) < 0.6)
Z = DRAW.normal(size=(5, 4)).astype(np.float32)
FORMATS = {"dense": DenseRows, "csr": lambda x: as_csr(DenseRows(x), np.int32)}


def by_hand(function, x, z):
    inner = sum(float(a) * float(b) for a, b in zip(x, z, strict=True))
    apart = [abs(float(a) - float(b)) for a, b in zip(x, z, strict=True)]
    return {
        "rbf": lambda: math.exp(-function.gamma * sum(d * d for d in apart)),
        "laplacian": lambda: math.exp(-function.gamma * sum(apart)),
        "polynomial": lambda: (function.gamma * inner + function.coef0) ** function.degree,
        "sigmoid": lambda: math.tanh(function.gamma * inner + function.coef0),
    }[function.kind]()


@pytest.mark.parametrize("rows", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("kind", KERNELS)
def test_kernel_values_are_those_of_the_definition(kind, rows):
    function = KernelFunction(kind=kind, gamma=0.3, degree=3, coef0=0.5)
    x = rows(X).piece(2, 7)

    found = function.between(x, Landmarks(rows(Z), 4))
    diagonal = function.diagonal(x)

    np.testing.assert_allclose(found, [[by_hand(function, a, b) for b in Z] for a in X[2:]], rtol=1e-13)
    np.testing.assert_allclose(diagonal, [by_hand(function, a, a) for a in X[2:]], rtol=1e-13)


def test_an_rbf_value_is_never_above_one():
    x = DenseRows(np.full((3, 50), 1 / 3, dtype=np.float32) * np.float32(1e3))
    assert KernelFunction(kind="rbf", gamma=1e6).between(x, Landmarks(x, 50)).max() <= 1.0
