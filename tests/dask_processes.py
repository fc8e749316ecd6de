"""A Dask cluster of processes that a test can kill, stop and start one by one."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.s3_server import free_ports
from tests.shell import environment

ROOT = Path(__file__).parents[1]
START_SECONDS = 90


class DaskProcesses:
    """A scheduler on loopback and single-threaded workers, each in its own process group."""

    def __init__(self, folder: Path, workers: int = 0) -> None:
        self.folder = folder
        self.port = free_ports("scheduler")["scheduler"]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self.start_scheduler()
        for _ in range(workers):
            self.add_worker()

    def start_scheduler(self) -> None:
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", self.port)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        raise RuntimeError(f"no scheduler after {START_SECONDS} s")

    def add_worker(self, *options: str, path: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a worker, by default without a nanny; it joins when it is ready. `path` comes first on Python's."""
        extra = options or ("--no-nanny",)
        place = ("--host", "127.0.0.1", "--local-directory", self.folder)
        process = self._start("worker", self.address, "--nthreads", 1, *place, *extra, path=path)
        self.workers.append(process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """kill −9 and wait for the end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process in self.workers:
            self.workers.remove(process)

    def close(self) -> None:
        for process in [*self.workers, *([self.scheduler] if self.scheduler else [])]:
            self.end(process)

    def _start(self, *words: Any, path: Path | None = None) -> subprocess.Popen[bytes]:
        env = environment(PYTHONPATH=str(path)) if path else environment()
        command = [sys.executable, "-m", "dask", *map(str, words), "--no-dashboard"]
        with (self.folder / "dask.log").open("ab") as log:
            return subprocess.Popen(command, cwd=path or ROOT, env=env, stdout=log, stderr=log, start_new_session=True)
