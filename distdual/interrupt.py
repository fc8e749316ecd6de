"""Signal handlers that let Ctrl-C and SIGTERM end a run cleanly."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def on_interrupt(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after the first SIGINT; the second raises KeyboardInterrupt."""
    received = threading.Event()

    def handle(_: int, __: FrameType | None) -> None:
        if received.is_set():
            raise KeyboardInterrupt
        received.set()
        say("finishing this step, then certifying the current model; press Ctrl-C again to quit immediately")

    with handling(signal.SIGINT, handle):
        yield received.is_set


@contextlib.contextmanager
def on_terminate() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after the first SIGTERM; the second ends the process."""
    received = threading.Event()

    def handle(_: int, __: FrameType | None) -> None:
        received.set()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    with handling(signal.SIGTERM, handle):
        yield received.is_set


@contextlib.contextmanager
def children_ignore_interrupts() -> Iterator[None]:
    """Shield processes started within the block from Ctrl-C, which a terminal sends to all of them."""
    with handling(signal.SIGINT, signal.SIG_IGN):  # inherited by child processes
        yield


@contextlib.contextmanager
def handling(number: int, handler: Any) -> Iterator[None]:
    """Handle a signal within the block; other threads than the main one cannot, and leave it as it is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
