"""Checks that a user's own problem keeps the contract, by brute force where possible."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from distdual.cluster.dask_client import round_trip
from distdual.config import toml_value
from distdual.data.dataset import open_dataset
from distdual.data.shard import Shard
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows, Floats, dot
from distdual.problems.base import Offenders
from distdual.problems.registry import build_problem, own_class
from distdual.problems.user.latent import LatentUserProblem
from distdual.problems.user.problem import UserProblem
from distdual.problems.user.time_limit import OvertimeError, time_limit

N_EXAMPLES = 40  # examples to test
MOST_OUTPUTS = 10_000  # of an example that are tried
N_RANDOM = 20  # outputs tried where they cannot be listed
EXACT = 1e-6  # relative to ||w|| ||φ||: feature maps may be computed in float32
CHECK = 0.2  # share of an example's time limit that a whole check may take
HANGS = "did not return within"
MEASURE = 0.3  # least seconds for a measurement of speed
DEFAULTS: dict[str, Any] = {"n_features": 4, "classes": ["0", "1", "2"]}


class Check(NamedTuple):
    name: str
    ok: bool
    sentence: str


class Case(NamedTuple):
    """One example at one w."""

    i: int
    x: Any
    y_true: Any
    w: Floats


class Broken(Exception):
    """A check that failed, in one sentence."""


def check_problem(
    name: str | type[UserProblem], data: str | Location | None = None, settings: Sequence[str] = ()
) -> list[Check]:
    """Try a problem on the first examples of a data set, or on random ones; `settings` are its keys, as "key=value"."""
    cls = own_class(name, UserProblem) if isinstance(name, str) else name
    problem, shard = make_case(cls, Location(data) if isinstance(data, str) else data, settings)
    tests: dict[str, Callable[[UserProblem, Shard], str]] = {
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
        found.append(outcome(each, test, problem, shard))
        if HANGS in found[-1].sentence:
            break  # the other checks would hang as well
    return found


def outcome(name: str, test: Callable[[UserProblem, Shard], str], problem: UserProblem, shard: Shard) -> Check:
    try:
        with time_limit(CHECK * problem.oracle_seconds):
            return Check(name, True, test(problem, shard))
    except OvertimeError:
        return Check(name, False, f"{HANGS} {CHECK * problem.oracle_seconds:g} s (oracle_seconds of its class)")
    except (Broken, InputError) as error:
        return Check(name, False, str(error))
    except Exception as error:  # the user's code may raise anything, and the other checks are still of use
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
    return made, replace(shard, latent=made.draw(shard, 0)) if isinstance(made, LatentUserProblem) else shard


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


def weights_for_check(problem: UserProblem) -> list[Floats]:
    """Weights of zero, then random weights, small and large."""
    rng = np.random.default_rng(1)
    return [scale * rng.normal(size=problem.n_weights) for scale in (0.0, 0.1, 1.0)]


def cases(problem: UserProblem, shard: Shard) -> Iterator[Case]:
    for w, i in itertools.product(weights_for_check(problem), range(shard.n_examples)):
        yield Case(i, problem.example(shard, i), problem.truth(shard.y[i].item()), w)


def value_of(problem: UserProblem, case: Case, y: Any) -> float:
    """The value that `argmax` maximises."""
    return float(problem.loss(case.y_true, y)) + problem.dot(case.w, problem.feature_map(case.x, y))


def rivals(problem: UserProblem, shard: Shard, case: Case) -> tuple[list[Any], bool]:
    """All outputs of an example and True, or some that other weights bring up and False."""
    listed = problem.outputs(case.x)
    if listed is not None:
        some = list(itertools.islice(listed, MOST_OUTPUTS + 1))
        return some[:MOST_OUTPUTS], len(some) <= MOST_OUTPUTS
    rng = np.random.default_rng(case.i)
    truths = [problem.truth(shard.y[i].item()) for i in rng.integers(shard.n_examples, size=N_RANDOM)]
    return [problem.argmax(rng.normal(size=len(case.w)), case.x, y_true) for y_true in truths], False


# --- the checks: each returns what was found in a sentence, or raises


def check_latent(problem: UserProblem, shard: Shard) -> str:
    assert isinstance(problem, LatentUserProblem)
    tried = 0
    for case in cases(problem, shard):
        every = list(problem.latent_values(case.x, case.y_true))
        for h in every:
            if not problem.is_output(case.x, problem.complete(case.y_true, h)):
                raise Broken(f"complete(y_true, {h}) of example {case.i} is not known to is_output or outputs")
        found = problem.impute_one(case.w, case.x, case.y_true)
        if found not in every:
            raise Broken(f"impute_one gives {found!r} for example {case.i}, which latent_values does not know")
        right = [problem.complete(case.y_true, h) for h in every]
        scores = [problem.dot(case.w, problem.feature_map(case.x, y)) for y in right]
        at, best, tried = every.index(found), int(np.argmax(scores)), tried + len(every)
        if not scores[at] >= scores[best] - tolerance(problem, case, right[at]):
            names = f"{found} with {scores[at]:.6g}, {every[best]} has {scores[best]:.6g}"
            raise Broken(f"impute_one is not the best for example {case.i}: it gives {names}")
    return f"impute_one is the best of {tried:,} latent values, all there are"


def right_outputs(problem: UserProblem, case: Case) -> list[Any]:
    """The right output; of a latent problem, with each of its latent values."""
    if not isinstance(problem, LatentUserProblem):
        return [case.y_true]
    return [problem.complete(case.y_true, h) for h in problem.latent_values(case.x, case.y_true)]


def check_outputs(problem: UserProblem, shard: Shard) -> str:
    for case in cases(problem, shard):
        y = problem.argmax(case.w, case.x, case.y_true)
        key = problem.encode(y)
        again = problem.encode(problem.decode(key))
        if key != again:
            raise Broken(f"decode and encode turn the output {key} of example {case.i} into {again}")
        if not problem.is_output(case.x, problem.decode(key)):
            raise Broken(f"argmax gives {key} for example {case.i}, which is_output or outputs does not know")
        if not all(-(2**31) <= part < 2**31 for part in key):
            raise Broken(f"encode gives {key} for example {case.i}; each number must fit 32 bits")
    return "outputs come back from the whole numbers that name them"


def check_loss(problem: UserProblem, shard: Shard) -> str:
    for case in cases(problem, shard):
        for right in right_outputs(problem, case):
            own = float(problem.loss(case.y_true, right))
            if own != 0:
                raise Broken(f"loss(y, y) is {own:g} for the right output of example {case.i}; it must be 0")
        for y in rivals(problem, shard, case)[0]:
            found = float(problem.loss(case.y_true, y))
            if not 0 <= found < np.inf:
                raise Broken(f"the loss of output {problem.encode(y)} of example {case.i} is {found:g}, not 0 or more")
    return "the loss is 0 for the right output and never negative"


def check_argmax(problem: UserProblem, shard: Shard) -> str:
    if not problem.exact:
        return "not compared: exact = False, so runs report an estimate and no certificate"
    complete, tried = True, 0
    for case in cases(problem, shard):
        y = problem.argmax(case.w, case.x, case.y_true)
        found, room = value_of(problem, case, y), tolerance(problem, case, y)
        others, listed = rivals(problem, shard, case)
        complete, tried = complete and listed, tried + len(others)
        for other in others:
            best = value_of(problem, case, other)
            if not found >= best - room:
                names = f"{problem.encode(y)} with {found:.6g}, {problem.encode(other)} has {best:.6g}"
                raise Broken(f"argmax is not the best for example {case.i}: it gives {names}")
    how = "all outputs" if complete else "some outputs only: define outputs(x) for a complete check"
    return f"argmax is the best of {tried:,} values, {how}"


def tolerance(problem: UserProblem, case: Case, y: Any) -> float:
    size = float(np.linalg.norm(problem.checked(problem.feature_map(case.x, y)).values))
    return EXACT * (1e-6 + abs(float(problem.loss(case.y_true, y))) + float(np.linalg.norm(case.w)) * size)


def check_row_slacks(problem: UserProblem, shard: Shard) -> str:
    for w in weights_for_check(problem):
        found = problem.offenders(w, shard)
        violated = np.flatnonzero(found.slack > 0)
        built = problem.constraints(shard, violated, found.keys.take(violated))
        for k, i in enumerate(violated):
            short = built.margin[k] - dot(built.rows, k, w)
            if not abs(short - found.slack[i]) <= 1e-9 * (1 + abs(found.slack[i])):
                raise Broken(f"example {i}: margin − ⟨w, row⟩ is {short:.9g}, its slack {found.slack[i]:.9g}")
    return "margin − ⟨w, row⟩ is the slack of every offender"


def check_kernels(problem: UserProblem, shard: Shard) -> str:
    """Methods that work on a whole shard, against those of the base class, which use the user's functions."""
    base = LatentUserProblem if isinstance(problem, LatentUserProblem) else UserProblem
    names = [name for name in ("offenders", "constraints") if getattr(type(problem), name) is not getattr(base, name)]
    if not names:
        return f"offenders and constraints are those of {base.__name__}"
    for w in weights_for_check(problem):
        own, plain = problem.offenders(w, shard), base.offenders(problem, w, shard)
        far = np.flatnonzero(~np.isclose(own.slack, plain.slack, rtol=EXACT, atol=EXACT))
        if len(far):
            i = int(far[0])
            raise Broken(f"offenders gives example {i} the slack {own.slack[i]:.9g}, argmax {plain.slack[i]:.9g}")
        every = np.arange(shard.n_examples)
        left = problem.constraints(shard, every, plain.keys)
        right = base.constraints(problem, shard, every, plain.keys)
        probe = np.random.default_rng(2).normal(size=problem.n_weights)
        for i in range(shard.n_examples):
            a, b = (side.margin[i] - dot(side.rows, i, probe) for side in (left, right))
            if not np.isclose(a, b, rtol=EXACT, atol=EXACT):
                raise Broken(f"constraints builds another row or margin for example {i} than feature_map and loss do")
    return f"{' and '.join(names)} of its own agree with feature_map, loss and argmax"


def check_prediction(problem: UserProblem, shard: Shard) -> str:
    for case in cases(problem, shard):
        y = problem.predict_one(case.w, case.x)
        found = problem.dot(case.w, problem.feature_map(case.x, y))
        for other in rivals(problem, shard, case)[0] if problem.exact else []:
            best = problem.dot(case.w, problem.feature_map(case.x, other))
            if not found >= best - tolerance(problem, case, y):
                raise Broken(
                    f"predict_one gives {problem.encode(y)} for example {case.i}, {problem.encode(other)} scores more"
                )
    return "predict_one gives the output with the highest score"


def check_deterministic(problem: UserProblem, shard: Shard) -> str:
    for w in weights_for_check(problem):
        for _ in range(2):
            if not same(problem.offenders(w, shard), problem.offenders(w, shard)):
                raise Broken("the same weights and examples give other offenders the second time")
    return "the same question has the same answer"


def same(a: Offenders, b: Offenders) -> bool:
    keys = np.array_equal(a.keys.indptr, b.keys.indptr) and np.array_equal(a.keys.values, b.keys.values)
    return keys and np.array_equal(a.slack, b.slack)


def check_travels(problem: UserProblem, shard: Shard) -> str:
    try:
        there = round_trip(problem)
    except Exception as error:
        raise Broken(f"it cannot be pickled, so workers cannot get it: {type(error).__name__}: {error}") from None
    if there.describe() != problem.describe():
        raise Broken(f"it arrives at workers as {there.describe()}, not as {problem.describe()}")
    w = weights_for_check(problem)[-1]
    if not same(there.offenders(w, shard), problem.offenders(w, shard)):
        raise Broken("pickled and unpickled, it gives other answers")
    return "it can be sent to workers"


def check_threads(problem: UserProblem, shard: Shard) -> str:
    rounds = rounds_of(problem, shard)
    one = timed(problem, shard, rounds)
    with ThreadPoolExecutor(2) as pool:
        begin = time.perf_counter()
        list(pool.map(lambda _: timed(problem, shard, rounds), range(2)))
        faster = 2 * one / (time.perf_counter() - begin)
    if faster > 1.4:
        return f"two threads do {faster:.1f} times the work of one: it releases the GIL"
    return f"two threads do {faster:.1f} times the work of one: it holds the GIL, so use processes with one thread each"


def check_speed(problem: UserProblem, shard: Shard) -> str:
    rounds = rounds_of(problem, shard)
    return f"{rounds * shard.n_examples / timed(problem, shard, rounds):,.0f} examples a second in one thread"


def rounds_of(problem: UserProblem, shard: Shard) -> int:
    """The number of scans to time; the first, which may compile, is left out."""
    timed(problem, shard, 1)
    return max(1, int(MEASURE / max(1e-6, timed(problem, shard, 1))))


def timed(problem: UserProblem, shard: Shard, rounds: int) -> float:
    w = weights_for_check(problem)[-1]
    begin = time.perf_counter()
    for _ in range(rounds):
        problem.offenders(w, shard)
    return time.perf_counter() - begin
