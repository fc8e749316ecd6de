"""Rows that refer to a matrix, when they are copied, are what they refer to."""

import numpy as np
import pytest

from distdual.kernels import row_copies as referred
from distdual.kernels.row_copies import (
    SPARSE,
    WIDE,
    are_mostly_zeros,
    copied,
    narrowed,
    packed,
    without_zeros,
)
from distdual.kernels.rows import CsrRows, DenseRows, OuterRows, ReferredRows
from distdual.problems.base import Constraints, Keys
from distdual.solver.cache import ConstraintCache
from distdual.solver.growable import GrowingFeatures
from distdual.solver.regularizer import Prior
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
    assert rows.nbytes == made.nbytes
    assert rows.n_rows == made.n_rows == 4


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


def wide(n: int, filled: float, width: int = WIDE) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(n, width)) * (rng.random((n, width)) < filled)).astype(np.float32)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (wide(200, 0.8 * SPARSE), True),
        (wide(200, 1.2 * SPARSE), False),
        (wide(200, 0.1, WIDE - 1), False),
        (wide(1, 0.1), True),
    ],
    ids=["mostly 0", "not quite", "narrow", "one row"],
)
def test_only_wide_dense_rows_of_many_zeros_are_better_sparse(x, expected):
    n, width = x.shape
    assert are_mostly_zeros(DenseRows(x)) == expected
    assert are_mostly_zeros(ReferredRows(DenseRows(x), np.arange(n), np.ones(n), 0.0, width)) == expected
    assert not are_mostly_zeros(rows_of(x, sparse=True))


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "in plain Python"])
@pytest.mark.parametrize("filled", [0.0, 0.1, 1.0], ids=["all 0", "some", "none is 0"])
def test_rows_without_their_zeros_are_the_same_rows(filled, compiled):
    x = wide(9, filled)
    x[3], x[8, -1] = 0.0, np.nan  # which must show
    if compiled:
        made = without_zeros(DenseRows(x))
    else:
        with python_kernels(referred.__name__):
            made = without_zeros(DenseRows(x))
    for found, expected in zip(made, rows_of(x, sparse=True), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
        assert found.base is None  # or it would hold on to the room for all values


def insert(cache: ConstraintCache, first: int, rows: object, n: int) -> None:
    cache.insert(Constraints(first + np.arange(n), np.ones(n), np.ones(n), rows, Keys.none(n)))


@pytest.mark.parametrize("value", [3.0, 2.0**24, -0.125, 2.0**-149])
def test_what_single_precision_holds_is_kept_in_it(value):
    found = narrowed(np.array([1.0, value]))
    assert (found.dtype, found.tolist()) == (np.float32, [1.0, value])


@pytest.mark.parametrize("value", [0.1, 2.0**24 + 1, 1e300, 1e-300])
def test_what_single_precision_would_round_is_kept_in_double(value):
    found = narrowed(np.array([1.0, value]))
    assert (found.dtype, found.tolist()) == (np.float64, [1.0, value])


@formats
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["single first", "double first"])
def test_a_cache_keeps_the_precision_of_all_rows_and_says_how_large_it_will_be(sparse, order):
    single = rows_of(X, sparse=sparse)
    kinds = single, single._replace(values=single.values.astype(np.float64) / 3)
    cache = ConstraintCache(1.0, Prior(3))
    for first, kind in zip((0, 4), order, strict=True):
        part = Constraints(first + np.arange(4), np.ones(4), np.ones(4), kinds[kind], Keys.none(4))
        expected = cache.nbytes_with([part])
        cache.insert(part)
    assert cache.rows is not None
    assert cache.rows.view.values.dtype == np.float64
    written = [naive.dense(kinds[kind], 3) for kind in order]
    np.testing.assert_array_equal(naive.dense(cache.rows.view, 3), np.vstack(written))
    assert 0 <= expected - cache.nbytes <= 100


@biases
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "in plain Python"])
def test_a_cache_of_wide_rows_leaves_out_their_zeros_and_nothing_else(bias, compiled):
    x = wide(30, 0.1)
    x[3], x[4, :], x[-1, -1], x[7, 0] = 0.0, 1.0, 2.0, np.nan  # which must show
    features = np.hstack([x, np.full((30, 1), bias)]) if bias else x
    at, scale = np.array([3, 4, 29, 7, 0, 0]), np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    width = features.shape[1]
    cache = ConstraintCache(1.0, Prior(width))

    def fill() -> None:
        insert(cache, 0, ReferredRows(DenseRows(x), np.arange(30), np.ones(30), bias, width), 30)
        insert(cache, 30, ReferredRows(DenseRows(x), at, scale, bias, width), 6)
        insert(cache, 36, ReferredRows(DenseRows(x), at[:0], scale[:0], bias, width), 0)
        insert(cache, 36, DenseRows(features.astype(np.float32)), 30)
        insert(cache, 66, rows_of(features.astype(np.float32), sparse=True), 30)

    if compiled:
        fill()
    else:
        with python_kernels(referred.__name__):
            fill()
    rows = cache.view().rows
    assert isinstance(rows, CsrRows)
    expected = np.vstack([features, scale[:, None] * features[at], features, features])
    np.testing.assert_array_equal(naive.dense(rows, width), expected)
    assert len(rows.values) == len(rows.indices) == np.count_nonzero(expected)


def test_features_of_several_classes_lose_their_zeros_too():
    x = wide(5, 0.1)
    sides = np.array([0, 1, 1, 0, 1, 0], dtype=np.int32), np.array([1, 0, 0, 1, 0, 1], dtype=np.int32)
    at = np.array([0, 0, 1, 2, 3, 4])
    cache = ConstraintCache(1.0, Prior(2 * WIDE))
    outer = OuterRows(DenseRows(x), at, *sides, np.ones(6), WIDE)
    keys = Keys(np.arange(7), np.arange(6, dtype=np.int32))
    cache.insert(Constraints(at, np.ones(6), np.ones(6), outer, keys))
    rows = cache.view().rows
    assert isinstance(rows, OuterRows)
    assert isinstance(rows.x, CsrRows)
    np.testing.assert_array_equal(naive.dense(rows, 2 * WIDE), naive.dense(outer, 2 * WIDE))


def test_rows_of_weights_that_may_not_be_negative_do_not_make_others_sparse():
    prior = Prior(WIDE, precision=np.eye(WIDE) + 0.1, nonnegative=np.arange(WIDE))
    cache = ConstraintCache(1.0, prior)
    x = DenseRows(wide(3, 1.0))
    cache.insert_nonnegative(x)
    insert(cache, 0, x, 3)
    assert isinstance(cache.view().rows, DenseRows)
