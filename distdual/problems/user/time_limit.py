"""A time limit for a user's Python code, which could otherwise hang a scan forever.

A thread looks at what runs and raises OvertimeError in a thread whose time is up. Python code notices it at its next
instruction; code that waits in C, such as a read from a socket, only when that returns: `cluster.scan_timeout` ends a
run that waits for it.
"""

import contextlib
import ctypes
import math
import threading
import time
from collections.abc import Callable, Iterator

LOOK = 0.25  # seconds between two looks


class OvertimeError(Exception):
    """The code ran for longer than it may."""


class Deadlines:
    """The blocks that run, by thread, with the time at which each must end."""

    def __init__(self) -> None:
        self.ends: dict[int, float] = {}
        self.changing = threading.Lock()
        self.looking = False

    @contextlib.contextmanager
    def limit(self, seconds: float) -> Iterator[Callable[[], None]]:
        """Limit each part of the block: its time starts at every call of what is yielded."""
        thread = threading.get_ident()
        before = self.ends.get(thread)  # an outer block, whose limit stays
        latest = math.inf if before is None else before

        def restart() -> None:
            self.ends[thread] = min(latest, time.monotonic() + seconds)

        self._set(thread, min(latest, time.monotonic() + seconds))
        try:
            yield restart
        finally:
            self._set(thread, before)

    def _set(self, thread: int, end: float | None) -> None:
        with self.changing:
            if end is None:
                self.ends.pop(thread, None)
            else:
                self.ends[thread] = end
            if not self.looking:
                self.looking = True
                threading.Thread(target=self._look, name="time-limit", daemon=True).start()

    def _look(self) -> None:
        while True:
            time.sleep(LOOK)
            with self.changing:
                for thread in [thread for thread, end in list(self.ends.items()) if time.monotonic() > end]:
                    del self.ends[thread]
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(OvertimeError))


time_limit = Deadlines().limit
