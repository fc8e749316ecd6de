"""A process that imports everything once and forks for each `distdual …` and `python FILE`.

Starting Python and importing Numba takes longer than most examples of the documentation. Each still runs in its own
process, folder and environment.
"""

import atexit
import contextlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.blocks import end_session
from tests.shell import environment

ROOT = Path(__file__).parents[1]
NEEDED = (
    "distdual.cli.commands distdual.coordinator.run distdual.certificate.verify distdual.model.predict "
    "distdual.coordinator.sweep_c distdual.estimators"
)
ASKING = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    socket.send_fds(connection, [b"!"], [0, 1, 2])
    connection.sendall(json.dumps([{name!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode() + b"\\n")
    answer = connection.makefile().read()
sys.exit(int(answer) if answer else 139)
"""


@contextlib.contextmanager
def preloaded(folder: Path) -> Iterator[Path]:
    """A folder with the programs `distdual` and `python`, which work within the block."""
    address = str(folder / "socket")
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.preloaded", address], cwd=ROOT, env=environment(), start_new_session=True
    )
    try:
        end = time.monotonic() + 60
        while not Path(address).exists():
            assert server.poll() is None and time.monotonic() < end, "did not start"  # noqa: PT018
            time.sleep(0.02)
        for name in ("distdual", "python"):
            (folder / name).write_text(ASKING.format(python=sys.executable, address=address, name=name))
            (folder / name).chmod(0o755)
        yield folder
    finally:
        end_session(server.pid)
        server.wait()


def serve(address: str) -> None:
    import importlib

    for name in (*NEEDED.split(), "sklearn.svm", "sklearn.datasets", "sklearn.model_selection", "distributed"):
        importlib.import_module(name)
    assert threading.active_count() == 1, "a process with threads must not fork"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # reap forked processes automatically
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{address}.new")
        server.listen()
        os.rename(f"{address}.new", address)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                answer(connection)
            connection.close()


def answer(connection: Any) -> None:
    """Run a request with the client's files and send the exit code; never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, files, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile() as request:
        name, arguments, folder, env = json.loads(request.readline())
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.path += [path for path in env.get("PYTHONPATH", "").split(":") if path and path not in sys.path]
    code: Any = 1
    try:
        run(name, arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(str(code).encode())
        os._exit(0)


def run(name: str, arguments: list[str]) -> None:
    if name == "distdual":
        from distdual.cli.commands import main

        sys.argv = ["distdual", *arguments]
        sys.path[0] = "" if "" in sys.path else sys.path[0]
        main(arguments)
    elif arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, inline = arguments, arguments[0] == "-c"
        sys.path[0] = "" if inline else str(Path(arguments[0]).resolve().parent)
        exec(arguments[1], {"__name__": "__main__"}) if inline else runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1])
