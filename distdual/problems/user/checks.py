"""What a user's own problem must keep to: each check returns what was found in a sentence, or raises."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from distdual.data.shard import Shard
from distdual.kernels.rows import Floats, dot
from distdual.problems.base import Offenders
from distdual.problems.latent.base import latent_of
from distdual.problems.user.latent import LatentUserProblem
from distdual.problems.user.oracle import pair
from distdual.problems.user.problem import UserProblem
from distdual.problems.user.rows import dot_vector, norm_of

MOST_OUTPUTS = 10_000  # of an example that are tried
MOST_LATENT = 1_000  # latent values of an example that are tried
N_RANDOM = 20  # outputs tried where they cannot be listed
EXACT = 1e-6  # relative to ||w|| ||φ||: feature maps may be computed in float32


class Broken(Exception):
    """A check that failed, in one sentence."""


class TrialCase(NamedTuple):
    """One example at one w."""

    i: int
    x: Any
    y_true: Any
    w: Floats


@dataclass(frozen=True, slots=True)
class Trial:
    """A problem, some examples, and weights that it may have."""

    problem: UserProblem
    shard: Shard
    weights: list[Floats]

    def cases(self) -> Iterator[TrialCase]:
        inputs = self.problem.inputs(self.shard)
        for w, i in itertools.product(self.weights, range(self.shard.n_examples)):
            x = inputs.x(i)
            yield TrialCase(i, x, self.problem.right_output(inputs, i, x), w)

    def best(self, case: TrialCase) -> Any:
        """What argmax takes for the best output."""
        found = self.problem.argmax(case.w, case.x, case.y_true)
        return pair(found)[0] if self.problem.bounded else found

    def score(self, case: TrialCase, y: Any) -> float:
        return dot_vector(case.w, self.problem.feature_map(case.x, y))

    def value(self, case: TrialCase, y: Any) -> float:
        """The value that `argmax` maximises."""
        loss = float(self.problem.loss(case.y_true, y))
        if not self.problem.slack_rescaled:
            return loss + self.score(case, y)
        return loss * (1.0 + self.score(case, y) - self.score(case, self.right(case)[0]))

    def tolerance(self, case: TrialCase, y: Any) -> float:
        size = norm_of(self.problem.feature_map(case.x, y), self.problem.n_weights)
        return EXACT * (1e-6 + abs(float(self.problem.loss(case.y_true, y))) + float(np.linalg.norm(case.w)) * size)

    def right(self, case: TrialCase) -> list[Any]:
        """The right output; of a latent problem, with each of its latent values, or some."""
        if not isinstance(self.problem, LatentUserProblem):
            return [case.y_true]
        return [self.problem.complete(case.y_true, h) for h in self.latent(case)[0]]

    def latent(self, case: TrialCase) -> tuple[list[Any], bool]:
        """All latent values of an example and True, or some and False."""
        problem = self.problem
        assert isinstance(problem, LatentUserProblem)
        own = problem.value(latent_of(self.shard).reshape(-1, problem.latent_size)[case.i].tolist())
        listed = problem.latent_values(case.x, case.y_true)
        if listed is not None:
            some = list(itertools.islice(listed, MOST_LATENT + 1))
            return some[:MOST_LATENT], len(some) <= MOST_LATENT
        rng = np.random.default_rng(case.i)
        drawn = [problem.draw_one(case.x, case.y_true, rng) for _ in range(N_RANDOM)]
        imputed = [problem.impute_one(rng.normal(size=len(case.w)), case.x, case.y_true) for _ in range(N_RANDOM)]
        return [own, *drawn, *imputed], False

    def rivals(self, case: TrialCase) -> tuple[list[Any], bool]:
        """All outputs of an example and True, or some that other weights bring up for the same example and False."""
        listed = self.problem.outputs(case.x)
        if listed is not None:
            some = list(itertools.islice(listed, MOST_OUTPUTS + 1))
            return some[:MOST_OUTPUTS], len(some) <= MOST_OUTPUTS
        rng = np.random.default_rng(case.i)
        scales = np.resize([0.0, 0.1, 1.0, 10.0], N_RANDOM)
        others = [case._replace(w=scale * self.like(case.w, rng)) for scale in scales]
        return [*self.right(case), *(self.best(other) for other in others)], False

    def like(self, w: Floats, rng: np.random.Generator) -> Floats:
        """Other weights, negative only where one of those tried is."""
        signed = np.min(self.weights, axis=0) < 0
        drawn = rng.normal(size=len(w))
        return np.where(signed, drawn, np.abs(drawn))


def check_latent(trial: Trial) -> str:
    problem = trial.problem
    assert isinstance(problem, LatentUserProblem)
    tried, complete = 0, True
    for case in trial.cases():
        every, listed = trial.latent(case)
        complete = complete and listed
        for h in every:
            if not problem.is_latent(case.x, case.y_true, h):
                raise Broken(f"draw_one or impute_one gives {h!r} for example {case.i}, which is_latent rejects")
            if not problem.is_output(case.x, problem.complete(case.y_true, h)):
                raise Broken(f"complete(y_true, {h}) of example {case.i} is rejected by is_output or not in outputs")
        found = problem.impute_one(case.w, case.x, case.y_true)
        if not problem.is_latent(case.x, case.y_true, found):
            raise Broken(f"impute_one gives {found!r} for example {case.i}, which is_latent rejects")
        right = [problem.complete(case.y_true, h) for h in every]
        scores = [trial.score(case, y) for y in right]
        own = problem.complete(case.y_true, found)
        best, tried = int(np.argmax(scores)), tried + len(every)
        if not trial.score(case, own) >= scores[best] - trial.tolerance(case, own):
            names = f"{found} with {trial.score(case, own):.6g}, {every[best]} has {scores[best]:.6g}"
            raise Broken(f"impute_one is not the best for example {case.i}: it gives {names}")
    how = "all there are" if complete else "some only: they are not listed, or too many"
    return f"impute_one is the best of {tried:,} latent values, {how}"


def check_outputs(trial: Trial) -> str:
    problem = trial.problem
    for case in trial.cases():
        y = trial.best(case)
        key = problem.encode(y)
        again = problem.encode(problem.decode(key))
        if key != again:
            raise Broken(f"decode and encode turn the output {key} of example {case.i} into {again}")
        if not problem.is_output(case.x, problem.decode(key)):
            raise Broken(f"argmax gives {key} for example {case.i}, which is_output rejects or outputs lacks")
        if not all(-(2**31) <= part < 2**31 for part in key):
            raise Broken(f"encode gives {key} for example {case.i}; each number must fit 32 bits")
    return "outputs come back from the whole numbers that name them"


def check_loss(trial: Trial) -> str:
    problem = trial.problem
    for case in trial.cases():
        for right in trial.right(case):
            own = float(problem.loss(case.y_true, right))
            if own != 0:
                raise Broken(f"loss(y, y) is {own:g} for the right output of example {case.i}; it must be 0")
        for y in trial.rivals(case)[0]:
            found = float(problem.loss(case.y_true, y))
            if not 0 <= found < np.inf:
                raise Broken(f"the loss of output {problem.encode(y)} of example {case.i} is {found:g}, not 0 or more")
    return "the loss is 0 for the right output and never negative"


def check_argmax(trial: Trial) -> str:
    problem = trial.problem
    if not problem.exact:
        return "not compared: exact = False, so runs report an estimate and no certificate"
    complete, tried, room = True, 0, 0.0
    for case in trial.cases():
        y, most = problem.argmax(case.w, case.x, case.y_true), None
        if problem.bounded:
            y, most = pair(y)
        found, slip = trial.value(case, y), trial.tolerance(case, y)
        reached = bound = found if not problem.bounded or most is None else most
        if not bound >= found - slip:
            raise Broken(f"the bound {bound:.6g} of example {case.i} is below {found:.6g}, the value of its own output")
        others, listed = trial.rivals(case)
        complete, tried, room = complete and listed, tried + len(others), room + reached - found
        for other in others:
            best = trial.value(case, other)
            if not reached >= best - slip:
                name = f"{problem.encode(other)} has {best:.6g}"
                if most is not None:
                    raise Broken(f"the bound {bound:.6g} of example {case.i} is not an upper bound: {name}")
                given = f"it gives {problem.encode(y)} with {found:.6g}"
                raise Broken(f"argmax is not the best for example {case.i}: {given}, {name}")
    how = "all outputs" if complete else "some outputs only: define outputs(x) for a complete check"
    if problem.bounded:
        mean = room / max(1, trial.shard.n_examples * len(trial.weights))
        return f"bounds hold for {tried:,} values, {how}; they are {mean:.3g} above what argmax finds, on average"
    return f"argmax is the best of {tried:,} values, {how}"


def check_row_slacks(trial: Trial) -> str:
    problem, shard = trial.problem, trial.shard
    for w in trial.weights:
        found = problem.offenders(w, shard)
        violated = np.flatnonzero(found.slack > 0)
        built = problem.constraints(shard, violated, found.keys.take(violated))
        for k, i in enumerate(violated):
            short = built.margin[k] - dot(built.rows, k, w)
            if not abs(short - found.slack[i]) <= 1e-9 * (1 + abs(found.slack[i])):
                raise Broken(f"example {i}: margin − ⟨w, row⟩ is {short:.9g}, its slack {found.slack[i]:.9g}")
    return "margin − ⟨w, row⟩ is the slack of every offender"


def check_kernels(trial: Trial) -> str:
    """Methods that work on a whole shard, against those of the base class, which use the user's functions."""
    problem, shard = trial.problem, trial.shard
    base = LatentUserProblem if isinstance(problem, LatentUserProblem) else UserProblem
    names = [name for name in ("offenders", "constraints") if getattr(type(problem), name) is not getattr(base, name)]
    if not names:
        return f"offenders and constraints are those of {base.__name__}"
    for w in trial.weights:
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


def check_prediction(trial: Trial) -> str:
    problem = trial.problem
    for case in trial.cases():
        y = problem.predict_one(case.w, case.x)
        found = trial.score(case, y)
        for other in trial.rivals(case)[0] if problem.exact and not problem.bounded else []:
            best = trial.score(case, other)
            if not found >= best - trial.tolerance(case, y):
                raise Broken(
                    f"predict_one gives {problem.encode(y)} for example {case.i}, {problem.encode(other)} scores more"
                )
    if problem.bounded:
        return "predict_one gives an output; with bounded = True it need not be the best"
    return "predict_one gives the output with the highest score"


def check_deterministic(trial: Trial) -> str:
    for w in trial.weights:
        for _ in range(2):
            if not same(trial.problem.offenders(w, trial.shard), trial.problem.offenders(w, trial.shard)):
                raise Broken("the same weights and examples give other offenders the second time")
    return "the same question has the same answer"


def same(a: Offenders, b: Offenders) -> bool:
    keys = np.array_equal(a.keys.indptr, b.keys.indptr) and np.array_equal(a.keys.values, b.keys.values)
    return keys and np.array_equal(a.slack, b.slack)
