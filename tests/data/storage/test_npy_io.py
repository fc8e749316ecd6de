"""Arrays that NumPy has saved are read by one thread at a time, wherever we read them."""

import ast
import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from distdual.data.sources.npy import header_of
from distdual.data.storage.npy_io import load_npy, unzip

X, Y = np.arange(6, dtype=np.int16).reshape(2, 3), np.array([0.5, np.inf])


@pytest.fixture
def parser(monkeypatch):
    """Python's parser, which takes its time and tells how many threads were in it at once."""
    inside, at_once, parse = threading.Semaphore(100), [], ast.literal_eval

    def slowly(text):
        with inside:
            at_once.append(100 - inside._value)
            time.sleep(0.002)
            return parse(text)

    monkeypatch.setattr(ast, "literal_eval", slowly)
    return at_once


def test_no_two_threads_are_in_pythons_parser_at_once(parser):
    both, one = io.BytesIO(), io.BytesIO()
    np.savez(both, x=X, y=Y)
    np.save(one, X)

    def read(_: int) -> None:
        found = unzip(both.getvalue())
        assert sorted(found) == ["x", "y"]
        np.testing.assert_array_equal(found["x"], X)
        np.testing.assert_array_equal(found["y"], Y)
        np.testing.assert_array_equal(load_npy(io.BytesIO(one.getvalue())), X)
        assert header_of(io.BytesIO(one.getvalue()), "one").shape == X.shape

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(12)))
    assert len(parser) == 12 * 4
    assert set(parser) == {1}


def test_what_is_no_array_is_an_error_and_nothing_is_unpickled():
    for content in (b"", b"nonsense", b"\x93NUMPY"):
        with pytest.raises((ValueError, EOFError)):
            load_npy(io.BytesIO(content))
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    pickled.seek(0)
    with pytest.raises(ValueError, match="pickle"):
        load_npy(pickled)
