"""Who is told of a run? Logs: of its beginning, of every round, of its end. One writes a JSON object a line."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Protocol

from distdual.errors import InputError
from distdual.json_floats import finite_values
from distdual.report.round_log import Round


class About(NamedTuple):
    """What is known of a run before its first round."""

    config: dict[str, Any]  # all but how to reach the storage
    n_examples: int
    n_shards: int
    dask: str | None = None  # where Dask shows what its workers do


class Log(Protocol):
    """Told of a run as it goes; a run that is resumed tells its earlier rounds again. It may not fail a run."""

    def begin(self, about: About) -> None: ...

    def write(self, line: Round) -> None: ...

    def end(self, certificate: Mapping[str, Any]) -> None:
        """Not called where a run ends without one."""
        ...


def as_line(line: Round) -> dict[str, Any]:
    """A round as JSON knows it, with None for a number that is not finite. It shares the round's tables."""
    return finite_values({each.name: getattr(line, each.name) for each in fields(line)})


class RunLog:
    """A log file, or nothing if no path is given."""

    def __init__(self, path: str | None) -> None:
        self.file: IO[str] | None = None
        if path is not None:
            try:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                self.file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - closed by __exit__
            except OSError as error:
                raise InputError(f"output.log: {path} cannot be written: {error.strerror}") from None

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.file:
            self.file.close()

    def begin(self, about: About) -> None:
        """Each line of the log is a round."""

    def write(self, line: Round) -> None:
        if self.file:
            self.file.write(to_text(line) + "\n")
            self.file.flush()

    def end(self, certificate: Mapping[str, Any]) -> None:
        """The certificate has a file of its own."""


def to_text(line: Round) -> str:
    """A JSON object, with null where a number is not finite."""
    return json.dumps(as_line(line))
