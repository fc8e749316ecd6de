"""The protocol of a log, and the log file with one JSON object per line."""

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Protocol

from distdual.errors import InputError
from distdual.json_floats import finite_values
from distdual.report.number_format import counted
from distdual.report.round_log import Round

log = logging.getLogger(__name__)

LOG_ROOM = 1 << 14  # free bytes that a log file needs


class About(NamedTuple):
    """The facts about a run that are known before its first round."""

    config: dict[str, Any]  # without storage options
    n_examples: int
    n_shards: int
    dask: str | None = None  # URL of Dask's dashboard
    n_features: int = 0

    @property
    def trained(self) -> str:
        """What is trained, in words."""
        problem, solver, data = (self.config.get(name, {}) for name in ("problem", "solver", "data"))
        kind, url = problem.get("kind"), data.get("url")
        return trained_words(kind, solver.get("C"), url, self.n_examples, self.n_features, self.n_shards)


def trained_words(
    kind: object, C: object, url: object, n_examples: object, n_features: object, n_shards: object
) -> str:
    """The problem, C, the data set and its size, as far as they are known."""
    counts = [f"{n:,}" for n in (n_examples, n_features) if isinstance(n, int) and n > 0]
    shards = f"in {counted(n_shards, 'shard')}" if isinstance(n_shards, int) else ""
    found = [
        str(kind) if kind else "",
        f"C = {C:g}" if isinstance(C, int | float) else "",
        str(url) if url else "",
        " ".join(filter(None, [" × ".join(counts), shards])),
    ]
    return " · ".join(filter(None, found))


class Log(Protocol):
    """A receiver of rounds. A resumed run repeats its earlier rounds. A log must not raise during a run."""

    def begin(self, about: About) -> None: ...

    def write(self, line: Round) -> None: ...

    def end(self, certificate: Mapping[str, Any]) -> None:
        """Receive the certificate; not called if the run ends without one."""
        ...


def as_line(line: Round) -> dict[str, Any]:
    """A round as a dict for JSON, with None for numbers that are not finite; nested tables are not copied."""
    return finite_values({each.name: getattr(line, each.name) for each in fields(line)})


class RunLog:
    """A log file, or a log that does nothing if `path` is None."""

    def __init__(self, path: str | None) -> None:
        self.file: IO[str] | None = None
        if path is not None:
            try:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                self.file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - closed by __exit__
                check_disk_room(self.file)
            except OSError as error:
                raise InputError(f"output.log: {path} cannot be written: {error.strerror}") from None

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.file:
            with contextlib.suppress(OSError):  # told by `write`
                self.file.close()

    def begin(self, about: About) -> None:
        """Write nothing: each line of the file is a round."""

    def write(self, line: Round) -> None:
        if self.file:
            try:
                self.file.write(to_text(line) + "\n")
                self.file.flush()
            except OSError as error:
                log.warning("%s: no more lines are written to this log: %s", self.file.name, error.strerror)
                self.__exit__()
                self.file = None

    def end(self, certificate: Mapping[str, Any]) -> None:
        """Write nothing: the certificate has its own file."""


def check_disk_room(file: IO[str]) -> None:
    """Raise an OSError if a disk has no room for a first line."""
    try:
        os.write(file.fileno(), b" " * LOG_ROOM)
        os.fsync(file.fileno())
        os.ftruncate(file.fileno(), 0)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
    except OSError:
        file.close()
        raise


def to_text(line: Round) -> str:
    """A round as a JSON object, with null for numbers that are not finite."""
    return json.dumps(as_line(line))
