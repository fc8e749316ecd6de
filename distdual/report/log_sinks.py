"""The logs of a run: the log file, MLflow and TensorBoard of [output], and the caller's own."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from distdual.config import OutputConfig
from distdual.data.storage.location import Location
from distdual.report.round_log import Round
from distdual.report.run_log import About, Log, RunLog
from distdual.report.tracking import MlflowLog, TensorBoardLog


class Logs(NamedTuple):
    """A log that forwards to several logs."""

    each: tuple[Log, ...]

    def begin(self, about: About) -> None:
        for log in self.each:
            log.begin(about)

    def write(self, line: Round) -> None:
        for log in self.each:
            log.write(line)

    def end(self, certificate: Mapping[str, Any]) -> None:
        for log in self.each:
            log.end(certificate)


@contextlib.contextmanager
def open_logs(output: OutputConfig, more: Sequence[Log] = ()) -> Iterator[Logs]:
    """Open the logs of a run, and close them at the end of the block."""
    with contextlib.ExitStack() as stack:
        found: list[Log] = [stack.enter_context(RunLog(output.log))]
        if output.tensorboard is not None:
            found.append(stack.enter_context(TensorBoardLog(output.tensorboard)))
        if output.mlflow is not None:
            found.append(stack.enter_context(MlflowLog(output.mlflow, Location(output.url, output.storage_options))))
        yield Logs((*found, *more))
