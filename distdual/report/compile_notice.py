"""The notice that kernels are being compiled: a spinner on a terminal, one line elsewhere."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console

from distdual.kernels.compile_cache import NOTICE, on_compile


@contextlib.contextmanager
def compiling_shown(console: Console) -> Iterator[None]:
    """Tell on the console whenever kernels are being compiled."""
    with on_compile(spinner(console) if console.is_terminal else one_line(console)):
        yield


def spinner(console: Console) -> Callable[[bool], None]:
    status = console.status(f"{NOTICE} …")
    return lambda compiling: status.start() if compiling else status.stop()


def one_line(console: Console) -> Callable[[bool], None]:
    said = False

    def tell(compiling: bool) -> None:
        nonlocal said
        if compiling and not said:
            said = True
            console.print(NOTICE)

    return tell
