"""Following a data set: train, wait for appended shards, continue from the model, and certify anew."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from distdual.config import Config
from distdual.coordinator.run import Result, train
from distdual.coordinator.run_inputs import data_of, output_of
from distdual.data.dataset import open_dataset
from distdual.errors import InputError
from distdual.problems.multivariate.problem import Multivariate

REACTION = 0.1  # seconds in which a request to end is noticed


def follow_data(
    config: Config,
    seconds: float = 10.0,
    *,
    interrupted: Callable[[], bool] = lambda: False,
    terminated: Callable[[], bool] = lambda: False,
    resume: bool = False,
    **options: Any,
) -> Iterator[Result]:
    """Yield the result of each training, the first at once and others after shards were appended, until interrupted.

    A model that is in output.url already is continued. The data set is looked at every so many `seconds`; `options`
    are those of `train`.
    """
    check_can_start(config)
    while True:
        result = train(continuing(config), interrupted=interrupted, terminated=terminated, resume=resume, **options)
        yield result
        if not has_grown(config, len(result.model.data.checksum), seconds, lambda: interrupted() or terminated()):
            return


def check_can_start(config: Config) -> None:
    """Refuse runs without warm starts, before the first of them."""
    exact = config.kernel is not None and config.kernel.basis is None
    if exact or config.problem.kind == Multivariate.kind:
        what = "a run with an exact kernel" if exact else f"a {Multivariate.kind} problem"
        remedy = "; give kernel.basis for a low-rank one" if exact else ""
        raise InputError(f"{what} has no warm starts and cannot follow a data set{remedy}")


def continuing(config: Config) -> Config:
    """The same run, warm-started from the model in its folder, if any."""
    if not output_of(config).exists("model.json"):
        return config
    start = replace(config.solver, start=config.output.url)
    return replace(config, solver=start, output=replace(config.output, overwrite=True))


def has_grown(config: Config, n_shards: int, seconds: float, over: Callable[[], bool]) -> bool:
    """Wait until the data set has more shards; False once the wait is over."""
    while not over():
        if open_dataset(data_of(config)).n_shards > n_shards:
            return True
        end = time.monotonic() + seconds
        while time.monotonic() < end and not over():
            time.sleep(min(REACTION, seconds))
    return False
