"""Whatever the format, a row is a row: Python, compiled code and NumPy agree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numba.core.errors import TypingError

from distdual.kernels.jit import kernel
from distdual.kernels.rows import (
    TWELVE,
    DenseRows,
    add,
    as_csr,
    as_dense,
    csr_add_blocks,
    csr_add_twelves,
    csr_dot,
    csr_dot_between,
    csr_sum_twelves,
    dot,
    inner,
    norm2,
)
from tests import naive
from tests.build import compiling, rows_of


@kernel
def compiled_dot(rows, k, w):
    return dot(rows, k, w)


@kernel
def compiled_add(rows, k, scale, w):
    add(rows, k, scale, w)


@kernel
def compiled_norm2(rows, k):
    return norm2(rows, k)


@kernel
def compiled_inner(rows, k, j):
    return inner(rows, k, j)


PYTHON = (dot, add, norm2, inner)
COMPILED = (compiled_dot, compiled_add, compiled_norm2, compiled_inner)

versions = pytest.mark.parametrize("version", [PYTHON, COMPILED], ids=["in Python", "in kernels"])
formats = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
matrices = st.tuples(st.integers(1, 5), st.integers(1, 11)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.sampled_from([0.0, 0.0, 1.0, -2.5, 0.1, 1e-3, 300.0]))
)


@versions
@formats
@compiling
@given(x=matrices, seed=st.integers(0, 99))
def test_every_operation_on_a_row_is_what_numpy_says(version, sparse, x, seed):
    row_dot, row_add, row_norm2, row_inner = version
    rows, exact = rows_of(x, sparse=sparse), x.astype(np.float64)
    w = np.random.default_rng(seed).normal(size=x.shape[1])
    assert rows.n_rows == len(x)
    for k in range(len(x)):
        assert row_dot(rows, k, w) == pytest.approx(exact[k] @ w, rel=1e-13, abs=1e-10)
        assert row_norm2(rows, k) == pytest.approx(exact[k] @ exact[k], rel=1e-13)
        for j in range(len(x)):
            assert row_inner(rows, k, j) == pytest.approx(exact[k] @ exact[j], rel=1e-13, abs=1e-10)
        moved = w.copy()
        row_add(rows, k, -0.7, moved)
        np.testing.assert_allclose(moved, w - 0.7 * exact[k], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("value", [np.float32, np.float64, np.int32])
def test_sparse_rows_may_have_wide_indices_and_be_sums_of_rows(index, value):
    x, w = np.array([[1.5, 0, -2, 0.1, 3, 0, 7, 0.25, -1]]), np.arange(9.0) ** 2
    rows = as_csr(DenseRows(x.astype(value)), index)
    assert compiled_dot(rows, 0, w) == pytest.approx(x.astype(value)[0].astype(float) @ w, rel=1e-14)


def test_numbers_that_are_no_neighbours_are_refused_where_four_are_read_at_once():
    x, every_other = as_csr(DenseRows(np.ones((1, 8), dtype=np.float32)), np.int32), np.ones(16, dtype=np.float32)[::2]
    with pytest.raises(TypingError, match="must be neighbours"):
        csr_dot(x.indices, every_other, 0, 8, np.ones(8))


def test_products_with_two_blocks_differ_by_what_the_blocks_do():
    x = np.random.default_rng(0).normal(size=(1, 11)).astype(np.float32)
    plus, minus = np.random.default_rng(1).normal(size=(2, 11))
    for n in range(12):
        rows = rows_of(x[:, :n], sparse=True)
        for run in (csr_dot_between, csr_dot_between.py_func):
            found = run(rows.indices, rows.values, 0, n, plus, minus)
            assert found == pytest.approx(x[0, :n].astype(float) @ (plus - minus)[:n], rel=1e-12, abs=1e-12)


@versions
@formats
def test_an_empty_row_is_zero_and_changes_nothing(version, sparse):
    row_dot, row_add, row_norm2, row_inner = version
    rows = rows_of([[0, 0, 0], [1, 0, 2], [0, 0, 0]], sparse=sparse)
    w = np.array([1.0, 2.0, 3.0])
    for k in (0, 2):
        row_add(rows, k, 5.0, w)
        assert row_dot(rows, k, w) == row_norm2(rows, k) == row_inner(rows, k, 1) == row_inner(rows, 1, k) == 0.0
    np.testing.assert_array_equal(w, [1.0, 2.0, 3.0])


@versions
@formats
def test_weights_beyond_the_features_are_left_alone(version, sparse):
    row_dot, row_add, _, _ = version
    rows = rows_of([[1, 2]], sparse=sparse)
    w = np.array([1.0, 1.0, 7.0])
    assert row_dot(rows, 0, w) == 3.0
    row_add(rows, 0, 1.0, w)
    np.testing.assert_array_equal(w, [2.0, 3.0, 7.0])


@versions
@formats
def test_products_of_single_precision_values_do_not_overflow(version, sparse):
    _, _, row_norm2, row_inner = version
    rows = rows_of([[3e30, 0], [2e30, 1]], sparse=sparse)
    assert row_norm2(rows, 0) == pytest.approx(9e60, rel=1e-6)
    assert row_inner(rows, 0, 1) == pytest.approx(6e60, rel=1e-6)


@versions
@formats
def test_nan_in_a_row_shows(version, sparse):
    row_dot, _, row_norm2, _ = version
    rows = rows_of([[1, np.nan]], sparse=sparse)
    assert np.isnan(row_dot(rows, 0, np.ones(2)))
    assert np.isnan(row_norm2(rows, 0))


ADDING = [csr_add_blocks, csr_add_twelves, csr_add_twelves.py_func]


@pytest.mark.parametrize("run", ADDING, ids=["blocks", "twelves", "twelves in plain Python"])
@compiling
@given(
    x=arrays(np.float32, (3, 11), elements=st.sampled_from([0.0, 1.0, -2.5])),
    width=st.integers(1, 36),
    index=st.sampled_from([np.int32, np.int64]),
)
def test_blocks_of_a_table_add_up_to_the_product(run, x, width, index):
    columns = width if run is csr_add_blocks else -(-width // TWELVE) * TWELVE
    rows, table = rows_of(x, sparse=True), np.random.default_rng(width).normal(size=(x.shape[1], columns))
    for k in range(len(x)):
        beyond = np.ones(width + 4)
        run(rows.indices.astype(index), rows.values, rows.indptr[k], rows.indptr[k + 1], table, beyond[:width])
        expected = 1.0 + x[k].astype(np.float64) @ table[:, :width]
        np.testing.assert_allclose(beyond[:width], expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(beyond[width:], 1.0)


@pytest.mark.parametrize("run", [csr_sum_twelves, csr_sum_twelves.py_func], ids=["compiled", "in plain Python"])
@compiling
@given(x=arrays(np.float32, (3, 11), elements=st.sampled_from([0.0, 1.0, -2.5])), width=st.integers(12, 40))
def test_overlapping_blocks_of_a_table_are_the_product(run, x, width):
    rows, table = rows_of(x, sparse=True), np.random.default_rng(width).normal(size=(x.shape[1], width))
    for k in range(len(x)):
        out = np.ones(width)
        run(rows.indices, rows.values, rows.indptr[k], rows.indptr[k + 1], table, out)
        np.testing.assert_allclose(out, x[k].astype(np.float64) @ table, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("run", ADDING[:2], ids=["blocks", "twelves"])
def test_nan_in_a_block_of_a_table_shows_in_its_column_alone(run):
    rows, table = rows_of([[1, 2]], sparse=True), np.ones((2, 24))
    table[1, [3, 13, 16]] = np.nan
    total = np.zeros(24)
    run(rows.indices, rows.values, 0, 2, table, total)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(total)), [3, 13, 16])


@compiling
@given(x=matrices)
def test_both_formats_hold_the_same_matrix(x):
    np.testing.assert_array_equal(naive.dense(rows_of(x, sparse=True), x.shape[1]), x)


@compiling
@given(x=matrices)
def test_rows_change_their_format_and_stay_the_same(x):
    dense, sparse = rows_of(x, sparse=False), rows_of(x, sparse=True)
    np.testing.assert_array_equal(as_dense(sparse, x.shape[1]).values, x)
    for left, right in zip(as_csr(dense, np.int32), sparse, strict=True):
        np.testing.assert_array_equal(left, right)
        assert left.dtype == right.dtype
    assert as_dense(dense, x.shape[1]) is dense
    assert as_csr(sparse, np.int32) is sparse
