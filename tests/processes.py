"""A Dask cluster of real processes, each ended with the block that started it."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.s3_server import free_ports
from tests.shell import PROGRAMS, environment

T = TypeVar("T")
QUIET = "--no-dashboard"


@contextlib.contextmanager
def started(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(answers: Callable[[], Any], what: str, seconds: float = 60) -> None:
    """Call it until it raises no OSError."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            answers()
            return
        time.sleep(0.1)
    pytest.fail(f"{what} did not come up")


def wait_until(true: Callable[[], T], what: str, seconds: float = 60) -> T:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(0.05)
    pytest.fail(f"{what} did not happen within {seconds} s")


def answers(port: int) -> None:
    socket.create_connection(("127.0.0.1", port), 1).close()


@contextlib.contextmanager
def dask_cluster(
    folder: Path, workers: int = 1, *, tls: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> Iterator[str]:
    """The address of a scheduler with single-threaded worker processes, each with a nanny."""
    port = free_ports("scheduler")["scheduler"]
    address = f"{'tls' if tls else 'tcp'}://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "cluster.log").open("wb"))
        keywords: dict[str, Any] = {"cwd": folder, "stdout": log, "stderr": log, "env": env or environment()}
        dask, host = str(PROGRAMS / "dask"), ["--host", "127.0.0.1"]
        stack.enter_context(started([dask, "scheduler", *host, "--port", str(port), QUIET, *tls], **keywords))
        wait_for(lambda: answers(port), "the scheduler")
        one = [dask, "worker", address, *host, "--nthreads", "1", QUIET, *tls]
        if workers:
            stack.enter_context(started([*one, "--nworkers", str(workers)], **keywords))
        yield address
