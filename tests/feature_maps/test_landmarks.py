import numpy as np

from distdual.feature_maps.landmarks import Moments, drawn, kmeans_plus_plus, moments_of
from distdual.kernels.rows import DenseRows, as_csr

DRAW = np.random.default_rng(9)
X = (DRAW.normal(size=(90, 3)) * (DRAW.random((90, 3)) < 0.7)).astype(np.float32)


def test_rows_are_drawn_once_each_and_named_within_their_shard():
    counts = np.array([10, 0, 25, 5])
    picks = drawn(counts, 30, seed=4, stream=1)
    assert sum(map(len, picks)) == 30
    for count, chosen in zip(counts, picks, strict=True):
        assert len(np.unique(chosen)) == len(chosen)
        assert ((chosen >= 0) & (chosen < count)).all()
    again = drawn(counts, 30, seed=4, stream=1)
    assert all(np.array_equal(a, b) for a, b in zip(picks, again, strict=True))
    assert [len(chosen) for chosen in drawn(counts, 99, seed=4, stream=1)] == counts.tolist()


def test_every_row_is_as_likely_as_any_other():
    seen = np.zeros(12)
    for seed in range(2000):
        a, b = drawn(np.array([4, 8]), 3, seed, 1)
        seen[np.concatenate([a, 4 + b])] += 1
    assert np.abs(seen - 500).max() < 5 * np.sqrt(500)


def test_kmeans_plus_plus_prefers_rows_far_from_each_other():
    corners = np.repeat(np.array([[0, 0, 100], [0, 100, 0], [100, 0, 0], [0, 0, 0]], dtype=np.float32), 25, axis=0)
    near = DenseRows(corners + DRAW.normal(size=corners.shape).astype(np.float32))
    chosen = kmeans_plus_plus(near, 4, 3, seed=1).values
    assert len(np.unique(chosen.round(-2), axis=0)) == 4


def test_kmeans_plus_plus_stops_where_all_rows_are_chosen():
    copies = DenseRows(np.repeat(X[:2], 10, axis=0))
    assert len(kmeans_plus_plus(copies, 5, 3, seed=1).values) == 2
    assert kmeans_plus_plus(DenseRows(X[:4]), 5, 3, seed=1).n_rows == 4


def test_the_variance_is_over_all_values_zeros_included():
    sparse = as_csr(DenseRows(X), np.int32)
    total = Moments()
    for begin, end in ((0, 40), (40, 90)):
        total = total.plus(moments_of(sparse.piece(begin, end), 3))
    np.testing.assert_allclose(total.variance, X.astype(np.float64).var(), rtol=1e-12)
