"""Where compiled kernels are kept, and the notice that kernels are being compiled.

Numba keeps them beside the modules, in the user's cache folder, or in NUMBA_CACHE_DIR. Where none of these is writable,
as in containers with a read-only file system, they go to a private folder for temporary files.
"""

import contextlib
import functools
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core import event

log = logging.getLogger(__name__)

NOTICE = "compiling kernels (once per installation)"
OWN_PACKAGE = __name__.partition(".")[0]
settings: Any = numba.config  # its stubs do not know CACHE_DIR


@functools.cache
def use_private_cache() -> bool:
    """Let Numba keep kernels in a private temporary folder; False if there can be none."""
    folder = private_folder()
    if folder is None:
        log.warning("no folder is writable: kernels are compiled in every process; set NUMBA_CACHE_DIR to one that is")
        return False
    if kept := settings.CACHE_DIR:
        folder /= Path(kept).name  # kernels with checked indices have a folder of their own
        if not folder.exists():
            copy_kernels(Path(kept), folder)
    log.warning("compiled kernels are kept in %s; set NUMBA_CACHE_DIR to a writable folder to keep them longer", folder)
    settings.CACHE_DIR = os.fspath(folder)
    return True


def private_folder() -> Path | None:
    """The folder of this user, which all its processes share; a new one if somebody else could write to that."""
    with contextlib.suppress(OSError):
        shared = Path(tempfile.gettempdir(), f"{OWN_PACKAGE}-kernels-{os.getuid()}")
        shared.mkdir(mode=0o700, exist_ok=True)
        if is_private(shared):
            return shared
        return Path(tempfile.mkdtemp(prefix=f"{OWN_PACKAGE}-kernels-"))
    return None


def is_private(folder: Path) -> bool:
    """Whether only this user may write to it: compiled kernels are code."""
    found = folder.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & others


def copy_kernels(source: Path, folder: Path) -> None:
    """Copy kernels that were compiled ahead to a folder that cannot be written to, as in an image."""
    folder.mkdir(exist_ok=True)
    with contextlib.suppress(OSError, shutil.Error):
        shutil.copytree(source, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)


class CompilationListener(event.Listener):
    """Tells when the outermost compilation of one of this package's kernels begins and ends."""

    def __init__(self) -> None:
        self.depth = 0
        self.began = self.seconds = 0.0  # of the outermost compilations so far
        self.logged = False
        self.told: list[Callable[[bool], None]] = []

    def on_start(self, event: Any) -> None:
        if not is_own_kernel(event):
            return
        self.depth += 1
        if self.depth == 1:
            if not self.logged:
                log.info(NOTICE)
                self.logged = True
            self.began = time.monotonic()
            self.tell(True)

    def on_end(self, event: Any) -> None:
        if is_own_kernel(event):
            self.depth -= 1
            if self.depth == 0:
                self.seconds += time.monotonic() - self.began
                self.tell(False)

    def tell(self, compiling: bool) -> None:
        for each in list(self.told):
            each(compiling)


def is_own_kernel(event: Any) -> bool:
    return str(event.data["dispatcher"].py_func.__module__).startswith(f"{OWN_PACKAGE}.")


watch = CompilationListener()
register: Any = event.register  # without types
register("numba:compile", watch)


@contextlib.contextmanager
def on_compile(told: Callable[[bool], None]) -> Iterator[None]:
    """Call `told` with True when a compilation of kernels begins, and with False when it ends."""
    watch.told.append(told)
    try:
        yield
    finally:
        watch.told.remove(told)
