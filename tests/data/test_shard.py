"""Rows are selected as NumPy selects them, for every kind of index."""

import numpy as np
import pytest

from distdual.kernels import rows as row_formats
from distdual.kernels.rows import CsrRows
from tests import naive
from tests.build import rows_of

X = np.random.default_rng(0).normal(size=(7, 4)) * (np.random.default_rng(1).random((7, 4)) < 0.6)
SELECTIONS = {
    "a slice": slice(1, 5),
    "backwards": slice(None, None, -2),
    "none": np.empty(0, dtype=np.int64),
    "twice": np.array([3, 3, -1, 0]),
    "a mask": np.arange(7) % 3 == 1,
}


@pytest.fixture(params=["compiled", "python"], autouse=True)
def kernels(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(row_formats, "move_runs", row_formats.move_runs.py_func)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("which", SELECTIONS.values(), ids=SELECTIONS)
def test_rows_are_taken_as_numpy_takes_them(which, sparse):
    taken = rows_of(X.astype(np.float32), sparse=sparse).take(which)
    np.testing.assert_array_equal(naive.dense(taken, 4), X.astype(np.float32)[which])


@pytest.mark.parametrize("which", SELECTIONS.values(), ids=SELECTIONS)
def test_rows_are_taken_from_a_piece_whose_values_begin_elsewhere(which):
    whole = rows_of(np.vstack([X[:3], X]).astype(np.float32), sparse=True)
    assert isinstance(whole, CsrRows)
    taken = whole._replace(indptr=whole.indptr[3:]).take(which)
    np.testing.assert_array_equal(naive.dense(taken, 4), X.astype(np.float32)[which])
