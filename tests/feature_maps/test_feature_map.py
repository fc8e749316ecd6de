import pickle

import numpy as np
import pytest
import scipy.linalg

from distdual.errors import InputError
from distdual.feature_maps.feature_map import BLOCK
from distdual.feature_maps.fourier import fourier_map
from distdual.feature_maps.kernel_function import KernelFunction, Landmarks
from distdual.feature_maps.nystroem import nystroem_map
from distdual.feature_maps.quality import quality
from distdual.kernels.rows import DenseRows, as_csr

DRAW = np.random.default_rng(5)
X = DRAW.normal(size=(2 * BLOCK + 40, 6)).astype(np.float32)
RBF = KernelFunction(kind="rbf", gamma=0.1)


def exact(function, x, z):
    return function.between(DenseRows(x), Landmarks(DenseRows(z), x.shape[1]))


def test_a_nystroem_map_is_the_projection_onto_the_landmarks():
    function, z = KernelFunction(kind="polynomial", gamma=0.5, degree=2, coef0=1.0), X[:12]
    inverse = np.linalg.inv(exact(function, z, z))
    across = exact(function, X, z)

    mapped = nystroem_map(function, DenseRows(z), 6).rows(DenseRows(X)).values.astype(np.float64)

    np.testing.assert_allclose(mapped @ mapped.T, across @ inverse @ across.T, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(mapped @ mapped[:12].T, exact(function, X, z), rtol=1e-5, atol=1e-5)


def test_mapped_rows_are_never_longer_than_the_kernel_says():
    made = nystroem_map(KernelFunction(kind="rbf", gamma=1e-3), DenseRows(X[:200]), 6)
    mapped = made.rows(DenseRows(X)).values.astype(np.float64)
    assert (mapped**2).sum(axis=1).max() <= 1.0 + 1e-6


def test_landmarks_that_others_span_are_dropped():
    z = np.concatenate([X[:5], X[:5], X[3:8]])
    made = nystroem_map(RBF, DenseRows(z), 6)
    assert made.width == 8
    mapped = made.rows(DenseRows(z)).values.astype(np.float64)
    np.testing.assert_allclose(mapped @ mapped.T, exact(RBF, z, z), atol=1e-6)


def test_a_kernel_that_is_not_positive_definite_on_the_basis_is_refused():
    sigmoid = KernelFunction(kind="sigmoid", gamma=1.0, coef0=-1.0)
    assert scipy.linalg.eigvalsh(exact(sigmoid, X[:30], X[:30]))[0] < -0.1
    with pytest.raises(InputError, match=r"the sigmoid kernel .* is not positive definite .* the eigenvalue -"):
        nystroem_map(sigmoid, DenseRows(X[:30]), 6)


@pytest.mark.parametrize("kind", ["rbf", "laplacian"])
def test_fourier_features_come_close_to_the_kernel(kind):
    made = fourier_map(KernelFunction(kind=kind, gamma=0.2), 6, 20_000, seed=1)
    found = quality(made, DenseRows(X[:60]))
    assert made.width == 20_000
    assert found.largest_error < 6 / np.sqrt(10_000)
    np.testing.assert_allclose(np.linalg.norm(made.rows(DenseRows(X[:9])).values, axis=1), 1.0, rtol=1e-6)


def test_fourier_features_of_another_kernel_are_refused():
    with pytest.raises(InputError, match="needs a kernel of x − z, rbf or laplacian, not polynomial"):
        fourier_map(KernelFunction(kind="polynomial", gamma=1.0), 6, 10, seed=1)
    with pytest.raises(InputError, match="must be even"):
        fourier_map(RBF, 6, 11, seed=1)


MAPS = {
    "nystroem": lambda: nystroem_map(RBF, DenseRows(X[:50]), 6),
    "fourier": lambda: fourier_map(RBF, 6, 64, seed=2),
}


@pytest.mark.parametrize("made", MAPS.values(), ids=MAPS)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_the_features_of_a_row_do_not_depend_on_its_neighbours_to_the_last_bit(made, sparse):
    rows, feature_map = as_csr(DenseRows(X), np.int32) if sparse else DenseRows(X), made()

    whole = feature_map.rows(rows).values

    for begin, end in ((0, 1), (3, BLOCK), (17, BLOCK + 90), (BLOCK - 1, len(X))):
        np.testing.assert_array_equal(feature_map.rows(rows.piece(begin, end)).values, whole[begin:end])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(feature_map)).rows(rows).values, whole)


def test_quality_is_zero_on_the_landmarks_and_positive_elsewhere():
    made = nystroem_map(RBF, DenseRows(X[:50]), 6)
    on, off = quality(made, DenseRows(X[:50])), quality(made, DenseRows(X[50:150]))
    assert on.relative_error < 1e-6 < off.relative_error < 0.5
    assert off.sample == 100
