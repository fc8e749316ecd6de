"""Rows that refer to a matrix, when they are copied, are what they refer to."""

import numpy as np
import pytest

from distdual.coordinator.cache import ConstraintCache, rows_nbytes
from distdual.coordinator.growing import GrowingFeatures
from distdual.data import referred
from distdual.data.referred import copied, packed
from distdual.prior import Prior
from distdual.problems.base import Constraints, Keys
from distdual.rows import OuterRows, ReferredRows, n_rows
from tests import naive
from tests.build import python_kernels, rows_of

X = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.0, 3.0, 4.0], [5.0, 0.0, 0.0]], dtype=np.float32)
AT, SCALE = np.array([2, 0, 2, 1]), np.array([1.0, -1.0, -1.0, 1.0])

formats = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
biases = pytest.mark.parametrize("bias", [0.0, 0.5], ids=["no bias", "a bias"])


def rows_with(bias: float, *, sparse: bool) -> ReferredRows:
    return ReferredRows(rows_of(X.copy(), sparse=sparse), AT, SCALE, bias, 3 + (bias != 0))


def written_out(bias: float) -> np.ndarray:
    features = np.hstack([X, np.full((4, 1), bias)]) if bias else X
    return SCALE[:, None] * features[AT]


@formats
@biases
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "in plain Python"])
def test_a_copy_holds_the_rows_that_were_referred_to(sparse, bias, compiled):
    rows = rows_with(bias, sparse=sparse)
    if compiled:
        made = copied(rows)
    else:
        with python_kernels(referred.__name__):
            made = copied(rows)
    np.testing.assert_array_equal(naive.dense(made, rows.width), written_out(bias))
    assert rows_nbytes(rows) == rows_nbytes(made)
    assert n_rows(rows) == n_rows(made) == 4


@formats
@biases
def test_a_cache_has_rows_of_its_own(sparse, bias):
    rows = rows_with(bias, sparse=sparse)
    cache = ConstraintCache(1.0, Prior(rows.width))
    for part in (slice(0, 1), slice(1, 4)):
        example = np.arange(4)[part]
        taken = rows._replace(at=rows.at[part], scale=rows.scale[part])
        n = len(example)
        cache.insert(Constraints(example, np.ones(n), np.ones(n), taken, Keys.none(n)))
    rows.x.values[:] = np.nan
    np.testing.assert_array_equal(naive.dense(cache.view().rows, rows.width), written_out(bias))
    np.testing.assert_allclose(cache.curve.view, (written_out(bias) ** 2).sum(axis=1))


@formats
def test_features_in_the_other_format_are_converted(sparse):
    growing = GrowingFeatures(rows_of(X, sparse=not sparse))
    growing.extend(rows_with(0.0, sparse=sparse))
    np.testing.assert_array_equal(naive.dense(growing.view, 3), written_out(0.0))


@formats
def test_outer_rows_whose_features_are_elsewhere_get_their_own(sparse):
    sides = np.array([0, 1, 1], dtype=np.int32), np.array([1, 0, 0], dtype=np.int32)
    outer = OuterRows(rows_with(0.5, sparse=sparse), np.array([0, 0, 3]), *sides, np.ones(3), 4)
    features = written_out(0.5)[[0, 0, 3]]
    expected = np.hstack([features, -features])
    expected[1:] *= -1
    made = packed(outer)
    np.testing.assert_array_equal(naive.dense(made, 8), expected)
    assert packed(made) is made
