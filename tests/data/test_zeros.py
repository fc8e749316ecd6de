"""Leaving out zeros changes the format of features, and nothing else."""

import numpy as np
import pytest

from distdual.data import zeros
from distdual.data.shard import Shard
from distdual.data.zeros import SPARSE, WIDE, without_zeros
from distdual.rows import CsrRows, DenseRows
from tests import naive
from tests.build import python_kernels


def features(n: int, width: int, filled: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(n, width)) * (rng.random((n, width)) < filled)).astype(np.float32)


def shard_of(x: np.ndarray) -> Shard:
    return Shard(3, 70, DenseRows(x), np.arange(len(x)), cost=np.ones(len(x)))


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "in plain Python"])
@pytest.mark.parametrize("filled", [0.0, 0.1, 0.2])
def test_wide_features_that_are_mostly_0_become_sparse_and_stay_the_same(filled, compiled):
    x = features(40, WIDE, filled)
    x[5] = 0.0
    x[-1, -1], x[7, 3] = 2.0, np.nan  # which must show
    if compiled:
        found = without_zeros(shard_of(x))
    else:
        with python_kernels(zeros.__name__):
            found = without_zeros(shard_of(x))
    assert isinstance(found.x, CsrRows)
    np.testing.assert_array_equal(naive.dense(found.x, WIDE), x)
    assert len(found.x.values) == np.count_nonzero(x)
    assert (found.number, found.first, found.n_examples) == (3, 70, 40)
    assert (found.x.indices.dtype, found.x.values.dtype) == (np.int32, np.float32)


def test_a_piece_of_wider_features_will_do():
    x = features(40, 2 * WIDE, 0.1)[::2, :WIDE]
    np.testing.assert_array_equal(naive.dense(without_zeros(shard_of(x)).x, WIDE), x)


@pytest.mark.parametrize(
    "x",
    [features(40, WIDE - 1, 0.1), features(40, WIDE, 1.5 * SPARSE), features(0, WIDE, 0.1)],
    ids=["narrow", "not mostly 0", "no rows"],
)
def test_other_features_stay_as_they_are(x):
    shard = shard_of(x)
    assert without_zeros(shard) is shard


def test_features_that_only_seemed_to_be_mostly_0_stay_as_they_are():
    x = features(64, WIDE, 1.0)
    x[::4] = 0.0  # the rows that are looked at first
    shard = shard_of(x)
    assert without_zeros(shard) is shard
