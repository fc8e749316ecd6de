"""MLflow and TensorBoard logs, for the settings in [output]; both are optional packages, imported on use.

A service that is unavailable at the start is an InputError. A later failure is logged once, and training continues.
"""

import json
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from distdual import __version__
from distdual.data.storage.location import Location
from distdual.errors import InputError, Suspended
from distdual.model.io import load_model
from distdual.report.round_log import Round
from distdual.report.run_log import About, as_line

log = logging.getLogger(__name__)

EXPERIMENT = "distdual"
LOADER = "distdual.model.pyfunc"  # the module that MLflow asks to load a model
SEND_SECONDS = 2.0  # between two batches of metrics
MAX_METRICS = 500  # metrics per request, well below MLflow's limit
MAX_VALUE_LENGTH = 500  # characters of a parameter that every store accepts


def metrics(line: Round) -> dict[str, float]:
    """The numbers of a round that are known."""
    values = as_line(line)
    names = ("lower", "upper", "gap", "estimate", "cache_rows", "cache_bytes", "support", "seconds")
    found = {name: values[name] for name in names if values[name] is not None}
    found |= {name: value for name, value in line.totals.items() if isinstance(value, int | float)}
    if sum(line.staleness):
        found["staleness"] = sum(age * n for age, n in enumerate(line.staleness)) / sum(line.staleness)
    if line.workers:
        found["workers"] = len(line.workers)
    found |= {f"eval_{name}": value for name, value in line.scores.items()}
    return {name: float(value) for name, value in found.items()}


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A config as flat keys, such as solver.C, with text values."""
    found: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        elif value is not None:
            found[prefix + key] = str(value)[:MAX_VALUE_LENGTH]
    return found


class TensorBoardLog:
    """Event files in a local folder."""

    def __init__(self, folder: str) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise InputError(
                "output.tensorboard needs tensorboardX, which is not installed: pip install tensorboardX"
            ) from None
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.writer = SummaryWriter(folder)
        except OSError as error:
            raise InputError(f"output.tensorboard: {folder} cannot be written: {error.strerror}") from None
        self.step = 0

    def __enter__(self) -> "TensorBoardLog":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.writer.close()

    def begin(self, about: About) -> None:
        self._text("config", about.config)

    def write(self, line: Round) -> None:
        self.step += 1
        for name, value in metrics(line).items():
            group = "bounds" if name in ("lower", "upper", "gap", "estimate") else "run"
            self.writer.add_scalar(f"{group}/{name}", value, self.step, display_name=name)

    def end(self, certificate: Mapping[str, Any]) -> None:
        self.writer.add_scalar("bounds/certified", float(certificate["certified"]), self.step)
        self._text("certificate", certificate)

    def _text(self, name: str, value: Mapping[str, Any]) -> None:
        words = json.dumps(value, indent=2, default=str)
        self.writer.add_text(name, "".join(f"    {line}\n" for line in words.splitlines()))  # a Markdown code block


class MlflowLog:
    """A run of the experiment `distdual`, or of MLFLOW_EXPERIMENT_NAME, on a tracking server."""

    def __init__(self, uri: str, output: Location | None = None) -> None:
        """`output` is the folder of the model, which becomes an artifact at the end."""
        # By default MLflow waits for minutes for a server that does not answer.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        try:
            from mlflow import MlflowClient
            from mlflow.exceptions import MlflowException
        except ImportError:
            raise InputError(
                "output.mlflow needs mlflow-skinny, which is not installed: pip install mlflow-skinny"
            ) from None
        self.failures = (MlflowException, OSError)
        self.uri, self.step, self.alive, self.output = uri, 0, True, output
        self.waiting: list[Any] = []
        self.sent = time.monotonic()
        try:
            self.client = MlflowClient(tracking_uri=uri)
            self.run = self.client.create_run(self._experiment()).info.run_id
        except self.failures as error:
            raise InputError(f"output.mlflow: {uri} cannot be used: {first_sentence(error)}") from None

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self.client.get_experiment_by_name(name)
        return str(found.experiment_id if found else self.client.create_experiment(name))

    def __enter__(self) -> "MlflowLog":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._send()
        killed = kind is not None and issubclass(kind, KeyboardInterrupt | Suspended)
        status = "FINISHED" if kind is None else "KILLED" if killed else "FAILED"
        self._try(self.client.set_terminated, self.run, status)

    def begin(self, about: About) -> None:
        from mlflow.entities import Param

        values = {**flat(about.config), "n_examples": str(about.n_examples), "n_shards": str(about.n_shards)}
        params = [Param(key, value) for key, value in values.items()]
        for at in range(0, len(params), 100):  # MLflow's limit per request
            self._try(self.client.log_batch, self.run, params=params[at : at + 100])
        self._try(self.client.set_tag, self.run, "mlflow.runName", about.config["output"]["url"])

    def write(self, line: Round) -> None:
        self.step += 1
        self._add(metrics(line))
        if time.monotonic() - self.sent > SEND_SECONDS or len(self.waiting) > MAX_METRICS:
            self._send()

    def end(self, certificate: Mapping[str, Any]) -> None:
        self._add({"certified": float(certificate["certified"])})
        for name in ("certified", "reason", "lower", "upper", "gap", "target", "model"):
            self._try(self.client.set_tag, self.run, name, str(certificate[name]))
        if self.output is not None:
            self._try(self._log_model, self.output)

    def _log_model(self, output: Location) -> None:
        """Log the model folder as the artifact "model", which mlflow.pyfunc loads where an estimator predicts."""
        with warnings.catch_warnings(action="ignore"):  # of its own type hints
            import mlflow.pyfunc
        try:
            model = load_model(output)
        except InputError as error:  # a problem of the user's own, whose class the folder must not name
            log.warning("output.mlflow: the model is not logged as an artifact: %s", error)
            return
        with tempfile.TemporaryDirectory(prefix="distdual-mlflow-") as folder:
            model.save(Location(f"{folder}/files"), overwrite=False)
            if model.problem.estimator is None:
                self.client.log_artifacts(self.run, f"{folder}/files", "model")
                return
            needs = [f"distdual=={__version__}"]
            mlflow.pyfunc.save_model(
                f"{folder}/model", loader_module=LOADER, data_path=f"{folder}/files", pip_requirements=needs
            )
            self.client.log_artifacts(self.run, f"{folder}/model", "model")

    def _add(self, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        self.waiting += [Metric(name, value, now, self.step) for name, value in values.items()]

    def _send(self) -> None:
        for at in range(0, len(self.waiting), MAX_METRICS):
            self._try(self.client.log_batch, self.run, metrics=self.waiting[at : at + MAX_METRICS])
        self.waiting, self.sent = [], time.monotonic()

    def _try(self, call: Any, *arguments: Any, **more: Any) -> None:
        """Call MLflow, unless an earlier call failed."""
        if not self.alive:
            return
        try:
            call(*arguments, **more)
        except self.failures as error:
            self.alive = False
            log.warning("output.mlflow: training continues without %s: %s", self.uri, first_sentence(error))


def first_sentence(error: BaseException) -> str:
    return " ".join(str(error).split()).split(". ")[0][:300]
