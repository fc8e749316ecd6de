"""The rows of a loss over all examples, found by workers, are those of all pairs, or of the worst output."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from distdual.cluster.threads import InlineExecutor
from distdual.cluster.whole_oracle import oracle_of
from distdual.data.in_memory import MemoryDataset
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, DenseRows
from distdual.problems.multivariate.problem import Multivariate
from distdual.scan.cv_folds import Fold
from distdual.scan.whole_data import Participants

FOLD = Fold(0, 3, 0)


def find(x, y, weights, loss="auc", *, fold=None, keep=True):
    """The offenders, with their rows, from three shards."""
    cuts = [0, len(y) // 3, len(y) // 2, len(y)]
    made = CsrRows(x.indptr.astype(np.int64), x.indices, x.data) if scipy.sparse.issparse(x) else DenseRows(x)
    shards = [
        Shard(number, low, made.piece(low, high), y[low:high].astype(np.int32))
        for number, (low, high) in enumerate(itertools.pairwise(cuts))
    ]
    data = MemoryDataset(tuple(shards), ("-1", "1"), x.shape[1])
    problem = Multivariate(n_features=x.shape[1], classes=("-1", "1"), loss=loss)
    executor = InlineExecutor(data, problem)
    try:
        publish = lambda table: executor.publish(0, table)  # noqa: E731
        oracle = oracle_of(problem)(executor, problem, data.n_shards, publish, Participants(fold), keep)
        found = oracle.find(np.asarray(weights, dtype=float))
        return found, found.rows().rows
    finally:
        executor.close()


def all_pairs(x, y, w):
    """Σ over pairs of the hinge, and the margin and the row of the pairs that w violates; in units of C n."""
    scores, scale = x @ w, len(y) / (y.sum() * (~y).sum())
    pairs = [(i, j) for i in np.flatnonzero(y) for j in np.flatnonzero(~y) if scores[i] < scores[j] + 1.0]
    row = sum((x[i] - x[j] for i, j in pairs), np.zeros(x.shape[1]))
    return scale * sum(1.0 - scores[i] + scores[j] for i, j in pairs), scale * len(pairs), scale * row


@pytest.mark.parametrize("fold", [None, FOLD], ids=["all", "fold"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), n_positive=st.integers(4, 12), n_negative=st.integers(4, 12), spread=st.floats(0, 2))
def test_pairs_are_counted_as_one_by_one(sparse, fold, seed, n_positive, n_negative, spread):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n_positive + n_negative) < n_positive)
    x = np.round(2 * rng.normal(size=(len(y), 3))).astype(np.float32) / 2  # scores are often equal
    weights = np.round(spread * rng.normal(size=(2, 3)))
    kept = np.ones(len(y), dtype=bool) if fold is None else ~fold.holds(np.arange(len(y)))
    if len(set(y[kept])) < 2:
        return
    found, rows = find(scipy.sparse.csr_matrix(x) if sparse else x, y, weights, fold=fold)
    assert found.n == kept.sum()
    for k, w in enumerate(weights):
        slack, margin, row = all_pairs(x[kept].astype(float), y[kept], w)
        np.testing.assert_allclose([found.slack[k], found.margin[k]], [slack, margin], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(rows[k], row, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", ["auc", "f1"])
def test_shards_that_stay_in_memory_change_nothing(loss):
    rng = np.random.default_rng(0)
    x, y, weights = rng.normal(size=(40, 3)).astype(np.float32), rng.random(40) < 0.3, rng.normal(size=(2, 3))
    (kept, kept_rows), (read, read_rows) = (find(x, y, weights, loss, keep=keep) for keep in (True, False))
    np.testing.assert_array_equal(kept.slack, read.slack)
    np.testing.assert_array_equal(kept_rows, read_rows)


def test_the_loss_at_a_row_is_the_slack():
    """margin − ⟨w, row⟩, for pairs and for outputs."""
    rng = np.random.default_rng(1)
    x, y, weights = rng.normal(size=(40, 3)).astype(np.float32), rng.random(40) < 0.3, rng.normal(size=(3, 3))
    for loss in ("auc", "f1", "prbep"):
        found, rows = find(x, y, weights, loss)
        np.testing.assert_allclose(found.slack, found.margin - (rows * weights).sum(axis=1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("label", [False, True])
def test_a_class_without_examples_is_refused(label):
    with pytest.raises(InputError, match="of 6 examples are positive"):
        find(np.eye(6, 2, dtype=np.float32), np.full(6, label), [[0.0, 0.0]])
