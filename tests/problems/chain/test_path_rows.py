"""Rows of paths are sorted by column."""

import numpy as np
import pytest

from distdual.problems.chain.path_rows import DIGITS, sort_columns


@pytest.mark.parametrize("run", [sort_columns, sort_columns.py_func], ids=["compiled", "python"])
@pytest.mark.parametrize("most", [1, 2, 255, 256, 70_000, 2**40])
def test_columns_are_sorted_and_equal_ones_stay_in_order(run, most):
    columns = np.random.default_rng(most).integers(most, size=60)
    parts, (columns_there, parts_there) = np.arange(60.0), (np.empty(60, dtype=np.int64), np.empty(60))
    order = np.argsort(columns, kind="stable")
    expected = columns[order]

    there = run(columns, parts, columns_there, parts_there, np.empty(DIGITS, dtype=np.int64))

    np.testing.assert_array_equal(columns_there if there else columns, expected)
    np.testing.assert_array_equal(parts_there if there else parts, order)


def test_no_columns_are_sorted():
    nothing = np.empty(0, dtype=np.int64)
    assert not sort_columns(nothing, np.empty(0), nothing, np.empty(0), np.empty(DIGITS, dtype=np.int64))
