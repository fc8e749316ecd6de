"""How do Ctrl-C and SIGTERM end a run in good order?"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def on_interrupt(tell: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Within the block the first SIGINT is remembered, and told by the function this yields; the second interrupts."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set  # only the main thread may handle signals
        return

    def handle(_: int, __: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        tell("finishing this step, then certifying what there is; Ctrl-C again to give up at once")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def on_terminate() -> Iterator[Callable[[], bool]]:
    """Within the block the first SIGTERM is remembered, and told by the function this yields; the second ends all."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def handle(_: int, __: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def children_ignore_interrupts() -> Iterator[None]:
    """Processes started within the block do not see Ctrl-C, which a terminal sends to all: this one ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited by what is started
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
