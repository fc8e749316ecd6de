"""No array passes whose numbers would lead a kernel outside, and every sound one does."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.data.layout import Layout
from distdual.data.shard_checks import WHILE, are_columns, check_shard_arrays, count_falls
from distdual.errors import InputError
from distdual.kernels.rounding import greatest_bits, largest_value, row_norm_bound, value_norm_bound
from distdual.kernels.rows import CsrRows, DenseRows
from tests.build import compiling

WIDTH = 6


def layout(**more: Any) -> Layout:
    told: dict[str, Any] = {"kind": "binary", "n_features": WIDTH, "sparse": True, "index_dtype": "int32"}
    told |= {"labels": ("a", "b"), "columns": ("cost", "margin"), "chunk": {}, "compress": True}
    return Layout(**{**told, **more})


def arrays(**more: Any) -> dict[str, Any]:
    return {
        "indptr": np.array([0, 2, 2, 5]),
        "indices": np.array([0, 5, 1, 2, 4], dtype=np.int32),
        "values": np.ones(5, dtype=np.float32),
        "y": np.array([0, 1, 1], dtype=np.int32),
        "cost": np.ones(3),
        "margin": np.ones(3),
        **more,
    }


def test_a_sound_shard_passes():
    check_shard_arrays("here", layout(), arrays())
    check_shard_arrays("here", layout(), arrays(indices=np.array([5, 0, 4, 2, 1], dtype=np.int32)))  # in any order


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"indptr": np.array([0, 2, 1, 5])}, "'indptr': must rise from 0 to 5"),
        ({"indptr": np.array([1, 2, 2, 5])}, "'indptr'"),
        ({"indptr": np.array([0, 2, 2, 6])}, "'indptr'"),
        ({"indptr": np.array([0, 2**62, -(2**62), 5])}, "'indptr'"),
        ({"indices": np.array([0, 6, 1, 2, 4], dtype=np.int32)}, "'indices': 6 is not from 0 to 5"),
        ({"indices": np.array([-1, 5, 1, 2, 4], dtype=np.int32)}, "'indices': -1 is not from 0 to 5"),
        ({"indices": np.array([0, 5, 1, 9, 4], dtype=np.int32)}, "'indices': 9 is not"),
        ({"indices": np.array([0, 5, 1, 4, 4], dtype=np.int32)}, "row 2 names column 4 twice"),
        ({"values": np.array([1, 2, 3, np.nan, 5], dtype=np.float32)}, "a feature of row 2 is NaN or infinite"),
        ({"values": np.array([1, -np.inf, 3, 4, 5], dtype=np.float32)}, "a feature of row 0 is NaN or infinite"),
        ({"y": np.array([0, 2, 1], dtype=np.int32)}, "'y': 2 is not from 0 to 1"),
        ({"cost": np.array([1.0, -1.0, 1.0])}, "'cost': -1.0 is below 0"),
        ({"cost": np.array([1.0, np.inf, 1.0])}, "'cost': a number is NaN or infinite"),
        ({"margin": np.array([1.0, np.nan, 1.0])}, "'margin': a number is NaN or infinite"),
    ],
)
def test_what_points_outside_or_is_no_number_is_named(change, words):
    with pytest.raises(InputError, match=f"^here, array {words}" if words[0] == "'" else words):
        check_shard_arrays("here", layout(), arrays(**change))


@pytest.mark.parametrize("tokens", [[0, 3], [0, 0, 3], [1, 3], [0, 2], [0, 4, 3]])
def test_sequences_must_cover_all_tokens(tokens):
    given_arrays, ragged = arrays(tokens=np.array(tokens)), layout(ragged=True, columns=())
    if tokens == [0, 3]:
        check_shard_arrays("here", ragged, given_arrays)
        return
    with pytest.raises(InputError, match="'tokens': must rise from 0 to 3, in runs of at least one each"):
        check_shard_arrays("here", ragged, given_arrays)


def test_dense_features_and_targets_must_be_finite():
    told = layout(sparse=False, labels=(), columns=())
    x, y = np.ones((3, 2), dtype=np.float32), np.zeros(3)
    check_shard_arrays("here", told, {"x": x, "y": y})
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(InputError, match="'y': a target is NaN or infinite"):
            check_shard_arrays("here", told, {"x": x, "y": np.array([0.0, bad, 1.0])})
        x[1, 1] = bad
        with pytest.raises(InputError, match="'x': a feature of row 1 is NaN or infinite"):
            check_shard_arrays("here", told, {"x": x, "y": y})
        x[1, 1] = 1.0


def sound(indptr: Any, indices: Any) -> bool:
    return are_columns(indptr, indices, WIDTH, count_falls(indices))


rows = st.lists(st.lists(st.integers(-2, WIDTH + 1), max_size=4), max_size=5)


@compiling
@given(rows)
def test_columns_are_found_sound_exactly_where_each_row_ascends_within_the_width(made):
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in made], dtype=np.int64)])
    indices = np.array([j for row in made for j in row], dtype=np.int32)
    expected = all(sorted(set(row)) == row and all(0 <= j < WIDTH for j in row) for row in made)
    assert sound(indptr, indices) == expected
    assert are_columns.py_func(indptr, indices, WIDTH, count_falls(indices)) == expected


def test_falls_are_counted_across_the_places_where_counts_are_added_up():
    numbers = np.arange(2 * WHILE + 5, dtype=np.int32)
    assert count_falls(numbers) == 0
    numbers[[7, WHILE - 1, WHILE, WHILE + 1, 2 * WHILE + 1]] = 0
    assert count_falls(numbers) == int((np.diff(numbers) <= 0).sum())
    assert count_falls(np.zeros(2 * WHILE + 5, dtype=np.int32)) == 2 * WHILE + 4
    assert count_falls(numbers[:0]) == count_falls(numbers[:1]) == 0


def test_rows_that_do_not_divide_the_indices_are_no_columns():
    indices = np.arange(4, dtype=np.int32)
    for indptr in ([0, 4], [0, 0, 4], [0, 4, 4]):
        assert sound(np.array(indptr), indices)
    for indptr in ([], [0], [0, 3], [0, 5], [1, 4], [0, 5, 4], [0, 4, 2, 4], [0, -1, 4], [0, 2**62, 4]):
        assert not sound(np.array(indptr, dtype=np.int64), indices)


@compiling
@given(st.lists(st.floats(width=32), max_size=20))
def test_the_largest_value_is_infinite_where_one_is_not_finite(values):
    values = np.array(values, dtype=np.float32)
    expected = float(np.abs(values).max(initial=0.0)) if np.isfinite(values).all() else np.inf
    assert largest_value(values) == expected
    assert greatest_bits.py_func(values.view(np.int32)) == greatest_bits(values.view(np.int32))


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_on_norms_is_above_them_and_not_far(seed):
    rng = np.random.default_rng(seed)
    x = (10.0 ** rng.choice([-45, -20, 0, 18, 38], size=(6, 5)) * rng.uniform(-1, 1, (6, 5))).astype(np.float32)
    indptr = np.array([0, 5, 7, 7, 12, 20, 30])
    for rows in (DenseRows(x), CsrRows(indptr, np.zeros(30, dtype=np.int32), x.ravel())):
        assert row_norm_bound(rows) <= value_norm_bound(rows) * (1 + 1e-5) <= 11.0**0.5 * row_norm_bound(rows)
    assert value_norm_bound(DenseRows(x[:0])) == 0.0
