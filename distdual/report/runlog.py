"""One JSON object a line for every round of a run."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO

from distdual.coordinator.train import Round
from distdual.errors import InputError


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

    def write(self, line: Round) -> None:
        if self.file:
            self.file.write(to_text(line) + "\n")
            self.file.flush()


def to_text(line: Round) -> str:
    """A JSON object, with null where a number is not finite."""
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(line).items()}
    return json.dumps(finite)
