"""The command line in tests, and the form of its error messages."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from distdual.cli.commands import main
from distdual.kernels.compile_cache import NOTICE

PROGRAMS = Path(sys.executable).parent


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def environment(**extra: str) -> dict[str, str]:
    """This process's environment without credentials, with this interpreter's programs first in PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DASK_"))}
    nowhere = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull)
    path = f"{PROGRAMS}{os.pathsep}{kept['PATH']}"
    return {**kept, **nowhere, "AWS_EC2_METADATA_DISABLED": "true", "PATH": path, **extra}


def run(*command: Any, cwd: Path | None = None, env: dict[str, str] | None = None, timeout: float = 90) -> Ran:
    """Run a command in a new process."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env or environment(),
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=timeout,
    )
    return Ran(done.returncode, done.stdout, without_notice(done.stderr))


def distdual(*arguments: Any, **options: Any) -> Ran:
    return run("distdual" if "env" in options else PROGRAMS / "distdual", *arguments, **options)


def call(capsys: pytest.CaptureFixture[str], *arguments: Any) -> Ran:
    """Run a command in this process, which saves the imports."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in arguments])
    out, err = capsys.readouterr()
    code = end.value.code
    assert isinstance(code, int)
    return Ran(code, out, without_notice(err))


def without_notice(err: str) -> str:
    """Drop the line that only the first run of a kernel prints."""
    return err.replace(f"{NOTICE}\n", "")


def assert_refused(ran: Ran, *words: str) -> None:
    """Exit code 2, nothing on stdout, and on stderr one line that contains all of `words`."""
    assert (ran.code, ran.out) == (2, ""), ran
    assert ran.err.count("\n") == 1, ran.err
    assert ran.err.startswith("distdual: "), ran.err
    for word in words:
        assert word in ran.err, f"{word!r} is not in {ran.err!r}"
