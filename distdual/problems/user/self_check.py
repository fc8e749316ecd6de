"""Checks that a user's own problem keeps the contract, by brute force where possible."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from distdual.cluster.dask_client import round_trip
from distdual.config import index_range, toml_value
from distdual.data.dataset import open_dataset
from distdual.data.shard import Shard
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows, Floats
from distdual.model.io import load_model
from distdual.problems.registry import build_problem, own_class
from distdual.problems.user.checks import (
    Broken,
    Trial,
    check_argmax,
    check_deterministic,
    check_kernels,
    check_latent,
    check_loss,
    check_outputs,
    check_prediction,
    check_row_slacks,
    same,
)
from distdual.problems.user.latent import LatentUserProblem
from distdual.problems.user.problem import UserProblem
from distdual.problems.user.time_limit import OvertimeError, time_limit

N_EXAMPLES = 40  # that are looked at
CHECK = 0.2  # share of an example's time limit that a whole check may take
HANGS = "did not return within"
MEASURE = 0.3  # seconds, at the least, to measure speed
DEFAULTS: dict[str, Any] = {"n_features": 4, "classes": ["0", "1", "2"]}


class Check(NamedTuple):
    name: str
    ok: bool
    sentence: str


def check_problem(
    name: str | type[UserProblem],
    data: str | Location | None = None,
    settings: Sequence[str] = (),
    *,
    nonnegative: Sequence[int | str] = (),
    model: str | Location | None = None,
) -> list[Check]:
    """Try a problem on the first examples of a data set, or on random ones; `settings` are its keys, as "key=value".

    Weights are random, not below 0 where `nonnegative` (as prior.nonnegative of a config) or the prior of `model` says
    so; with a model, its weights are tried as well.
    """
    cls = own_class(name, UserProblem) if isinstance(name, str) else name
    problem, shard = make_case(cls, Location(data) if isinstance(data, str) else data, settings)
    trial = Trial(problem, shard, weights_for_check(problem, nonnegative, model))
    tests: dict[str, Callable[[Trial], str]] = {
        **({"latent": check_latent} if isinstance(problem, LatentUserProblem) else {}),
        "outputs": check_outputs,
        "loss": check_loss,
        "argmax": check_argmax,
        "rows": check_row_slacks,
        "kernels": check_kernels,
        "prediction": check_prediction,
        "deterministic": check_deterministic,
        "travels": check_travels,
        "threads": check_threads,
        "speed": check_speed,
    }
    found = list[Check]()
    for each, test in tests.items():
        found.append(outcome(each, test, trial))
        if HANGS in found[-1].sentence:
            break  # the other checks would hang as well
    return found


def outcome(name: str, test: Callable[[Trial], str], trial: Trial) -> Check:
    most = CHECK * trial.problem.oracle_seconds
    try:
        with time_limit(most):
            return Check(name, True, test(trial))
    except OvertimeError:
        return Check(name, False, f"{HANGS} {most:g} s (oracle_seconds of its class)")
    except (Broken, InputError) as error:
        return Check(name, False, str(error))
    except (Exception, SystemExit) as error:  # the user's code may raise anything; the other checks are still of use
        return Check(name, False, f"raised {type(error).__name__}: {error}")


def make_case(cls: type[UserProblem], data: Location | None, settings: Sequence[str]) -> tuple[UserProblem, Shard]:
    options = dict(map(parse_setting, settings))
    if data is not None:
        dataset = open_dataset(data)
        shape: dict[str, Any] = {"n_features": dataset.layout.n_features, "classes": list(dataset.classes)}
        found = dataset.read(0).shard
        shard = found.piece(0, min(N_EXAMPLES, found.n_examples))
    else:
        shape = {key: options.pop(key, default) for key, default in DEFAULTS.items()}
        check_sizes(shape)
        shard = shard_for_check(shape["n_features"], len(shape["classes"]))
    made = build_problem(cls, options, n_features=shape["n_features"], classes=tuple(map(str, shape["classes"])))
    assert isinstance(made, UserProblem)
    if isinstance(made, LatentUserProblem):
        drawn = made.draw(shard, 0)
        shard = replace(shard, latent=drawn)
    return made, shard


def parse_setting(setting: str) -> tuple[str, Any]:
    name, equals, text = setting.removeprefix("problem.").partition("=")
    if not equals or not name.strip():
        raise InputError(f"--set {setting}: expected key=value, for example n_features=8")
    return name.strip(), toml_value(text)


def check_sizes(shape: dict[str, Any]) -> None:
    if type(shape["n_features"]) is not int or shape["n_features"] < 1:
        raise InputError(f"--set n_features: expected a whole number from 1, got {shape['n_features']!r}")
    if not isinstance(shape["classes"], list):
        raise InputError(f"--set classes: expected a list of labels or [], got {shape['classes']!r}")


def shard_for_check(n_features: int, n_classes: int) -> Shard:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N_EXAMPLES, n_features)).astype(np.float32)
    y = rng.integers(n_classes, size=N_EXAMPLES).astype(np.int32) if n_classes else rng.normal(size=N_EXAMPLES)
    return Shard(0, 0, DenseRows(x), y)


def weights_for_check(
    problem: UserProblem, nonnegative: Sequence[int | str], model: str | Location | None
) -> list[Floats]:
    """Weights of zero, then random weights, small and large, within the prior; then those of a model."""
    rng = np.random.default_rng(1)
    low = np.full(problem.n_weights, -np.inf)
    for each in nonnegative:
        low[index_range(each)] = 0.0
    low[problem.nonnegative_weights()] = 0.0
    trained = None if model is None else load_model(Location(model) if isinstance(model, str) else model, type(problem))
    if trained is not None:
        if len(trained.w) != problem.n_weights:
            raise InputError(
                f"{model}: {len(trained.w)} weights, but the problem has {problem.n_weights} on these data"
            )
        low = np.maximum(low, trained.prior.floor)
    drawn = [scale * rng.normal(size=problem.n_weights) for scale in (0.0, 0.1, 1.0)]
    return [np.where(low > -np.inf, np.abs(w), w) for w in drawn] + ([] if trained is None else [trained.w])


def check_travels(trial: Trial) -> str:
    problem = trial.problem
    try:
        there = round_trip(problem)
    except Exception as error:
        raise Broken(f"it cannot be pickled, so workers cannot get it: {type(error).__name__}: {error}") from None
    if there.describe() != problem.describe():
        raise Broken(f"it arrives at workers as {there.describe()}, not as {problem.describe()}")
    w = trial.weights[-1]
    if not same(there.offenders(w, trial.shard), problem.offenders(w, trial.shard)):
        raise Broken("pickled and unpickled, it gives other answers")
    return "it can be sent to workers"


def check_threads(trial: Trial) -> str:
    rounds = rounds_of(trial)
    one = timed(trial, rounds)
    with ThreadPoolExecutor(2) as pool:
        begin = time.perf_counter()
        list(pool.map(lambda _: timed(trial, rounds), range(2)))
        faster = 2 * one / (time.perf_counter() - begin)
    if faster > 1.4:
        return f"two threads do {faster:.1f} times the work of one: it releases the GIL"
    return f"two threads do {faster:.1f} times the work of one: it holds the GIL, so use processes with one thread each"


def check_speed(trial: Trial) -> str:
    rounds = rounds_of(trial)
    return f"{rounds * trial.shard.n_examples / timed(trial, rounds):,.0f} examples a second in one thread"


def rounds_of(trial: Trial) -> int:
    """The number of scans to time; the first, which may compile, is left out."""
    timed(trial, 1)
    return max(1, int(MEASURE / max(1e-6, timed(trial, 1))))


def timed(trial: Trial, rounds: int) -> float:
    begin = time.perf_counter()
    for _ in range(rounds):
        trial.problem.offenders(trial.weights[-1], trial.shard)
    return time.perf_counter() - begin
