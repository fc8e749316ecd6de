"""Items read ahead are the same items, and the same error."""

import threading
from collections.abc import Iterator

import pytest

from distdual.data.sources.read_ahead import read_ahead


def test_all_items_come_in_order():
    assert list(read_ahead(iter(range(100)))) == list(range(100))
    assert list(read_ahead(iter(()))) == []


def test_an_error_follows_the_items_before_it():
    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("row 2 is bad")

    found = []
    with pytest.raises(ValueError, match="row 2 is bad"):
        found.extend(read_ahead(failing()))
    taken = read_ahead(failing())
    assert next(taken) == 1


def test_stopping_early_closes_the_source_and_ends_the_thread():
    closed, reader = threading.Event(), []

    def endless() -> Iterator[int]:
        reader.append(threading.current_thread())
        try:
            while True:
                yield 0
        finally:
            closed.set()

    items = read_ahead(endless())
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    assert closed.is_set()
    assert not reader[0].is_alive()


def test_at_most_so_many_items_wait():
    made = []

    def counting() -> Iterator[int]:
        for k in range(20):
            made.append(k)
            yield k

    items = read_ahead(counting(), 2)
    next(items)
    threading.Event().wait(0.3)
    assert len(made) <= 4  # one was taken, two wait, one has no place
    assert list(items) == list(range(1, 20))
