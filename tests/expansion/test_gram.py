import numpy as np
import pytest

from distdual.errors import InputError
from distdual.expansion.gram import TILE, Gram
from distdual.feature_maps.kernel_function import KernelFunction, Landmarks
from distdual.kernels.rows import DenseRows, as_csr

X = np.random.default_rng(1).normal(size=(TILE + 150, 3)).astype(np.float32)
RBF = KernelFunction(kind="rbf", gamma=0.3)
EXACT = RBF.between(DenseRows(X), Landmarks(DenseRows(X), 3)) + 0.25


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_the_matrix_grows_by_rows_and_columns(sparse):
    rows = as_csr(DenseRows(X), np.int32) if sparse else DenseRows(X)
    gram = Gram(RBF, 0.25, 3, len(X), 1e9)
    for begin, end in ((0, 5), (5, 6), (6, TILE + 40), (TILE + 40, len(X))):
        gram.add(rows.piece(begin, end))
        np.testing.assert_allclose(gram.values, EXACT[:end, :end], atol=3e-6)
    gram.widen()
    assert gram.is_double
    np.testing.assert_allclose(gram.values, EXACT, rtol=1e-13)


def test_a_matrix_beyond_the_limit_is_refused_and_names_the_way_out():
    gram = Gram(RBF, 0.0, 3, len(X), 4 * 100**2)
    gram.add(DenseRows(X[:100]))
    with pytest.raises(InputError, match=r"101 cached examples .* give kernel\.basis for a low-rank approximation"):
        gram.add(DenseRows(X[100:101]))
    with pytest.raises(InputError, match="in double precision"):
        gram.widen()
