"""An iterator that a thread runs some items ahead of whoever takes them, so that reading and computing overlap."""

import contextlib
from collections.abc import Iterator
from queue import Full, Queue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")

ITEMS_AHEAD = 2  # items that wait, besides the one in work on either side
NOTICED = 0.1  # seconds until the thread notices that nobody takes any more


class LastItem:
    """What follows the last item: the error that ended the iteration, if it was one."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def read_ahead(items: Iterator[T], ahead: int = ITEMS_AHEAD) -> Iterator[T]:
    """The same items and the same error at their end. Stopping early ends the thread, and closes `items` there."""
    waiting: Queue[T | LastItem] = Queue(ahead)
    stopped = Event()
    thread = Thread(target=fill_queue, args=(items, waiting, stopped), name="read-ahead", daemon=True)
    thread.start()
    try:
        while not isinstance(item := waiting.get(), LastItem):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        thread.join()


def fill_queue(items: Iterator[T], waiting: "Queue[T | LastItem]", stopped: Event) -> None:
    """Put items into the queue until there are no more, or nobody wants them."""
    error: BaseException | None = None
    try:
        for item in items:
            if not put_item(item, waiting, stopped):
                break
    except BaseException as found:  # raised again where items are taken
        error = found
    finally:
        with contextlib.suppress(AttributeError):  # only generators are closed
            items.close()  # type: ignore[attr-defined]
    put_item(LastItem(error), waiting, stopped)


def put_item(item: "T | LastItem", waiting: "Queue[T | LastItem]", stopped: Event) -> bool:
    while not stopped.is_set():
        with contextlib.suppress(Full):
            waiting.put(item, timeout=NOTICED)
            return True
    return False
