"""Runs commands in a worker process, which is started again after a crash, and judges what they do."""

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.shell import environment

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds for a command that takes a tenth of one: what takes longer hangs
ROUNDING = 1e-6


class Answer(NamedTuple):
    code: Any  # of the exit, or what happened instead
    out: str
    err: str


class Worker:
    """The worker process of a test."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> str:
        if self.process is None:
            return ""
        self.process.kill()
        _, err = self.process.communicate()
        self.process = None
        return err or ""

    def call(self, *arguments: Any) -> Answer:
        if self.process is None:
            command = [sys.executable, "-m", "tests.fuzz.worker"]
            pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment(), text=True, **pipes)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([str(one) for one in arguments]), file=self.process.stdin, flush=True)
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        if not ready:
            return Answer("hang", "", self.end())
        if not (line := self.process.stdout.readline()):
            code = self.process.wait()
            return Answer(f"crash {code}", "", self.end())
        return Answer(*json.loads(line))


def fault(answer: Answer) -> str:
    """What is wrong with the way a command ended; nothing if it did as it should."""
    if answer.code not in (0, 1, 2):
        return f"{answer.code}: {answer.err[-2000:]}"
    if "Traceback" in answer.err or (answer.code == 2 and one_sentence(answer.err)):
        return f"exit {answer.code} with {answer.err!r}"
    return ""


def one_sentence(err: str) -> bool:
    lines = [line for line in err.splitlines() if line.startswith("distdual: ")]
    return len(lines) != 1 or not err.endswith(lines[0] + "\n") or len(lines[0]) > 1000


def apart(found: dict[str, Any], lower: float, upper: float) -> bool:
    """Whether two pairs of proven bounds of the same optimum contradict one another."""
    slip = ROUNDING * max(1.0, abs(upper))
    return found["upper"] is None or found["lower"] > upper + slip or found["upper"] < lower - slip
