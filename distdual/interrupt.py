"""Signal handlers that let Ctrl-C and SIGTERM end a run cleanly."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def on_interrupt(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after the first SIGINT; the second raises KeyboardInterrupt."""
    received = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield received.is_set  # only the main thread may handle signals
        return

    def handle(_: int, __: FrameType | None) -> None:
        if received.is_set():
            raise KeyboardInterrupt
        received.set()
        say("finishing this step, then certifying the current model; press Ctrl-C again to quit immediately")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield received.is_set
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def on_terminate() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after the first SIGTERM; the second ends the process."""
    received = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield received.is_set
        return

    def handle(_: int, __: FrameType | None) -> None:
        received.set()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield received.is_set
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def children_ignore_interrupts() -> Iterator[None]:
    """Shield processes started within the block from Ctrl-C, which a terminal sends to all of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited by child processes
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
