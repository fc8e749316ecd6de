"""The scan of a user's own problem: its argmax for each example, with as little around it as can be.

φ of the right output is computed once as long as the shard stays in memory, φ of the offender once; rows, slacks and
norms of many examples are computed together.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rounding import MARGIN
from distdual.kernels.rows import CsrRows, Features, Floats, Ints
from distdual.problems.base import Keys, Magnitude, Offenders
from distdual.problems.user.cases import Inputs, naming_example, remember_vector
from distdual.problems.user.probe import probe
from distdual.problems.user.rows import (
    KeptVector,
    SparseVector,
    kept_vector,
    row_differences,
    shorts,
    smaller_form,
    stack_csr,
)

if TYPE_CHECKING:
    from distdual.problems.user.problem import UserProblem

SLIP = 1e-5  # relative: rows are float32, bounds are not
BATCH_NUMBERS = 1 << 20  # numbers of feature maps that are worked on together
KEPT_BYTES = 64 << 20  # of rows that wait for those of the offenders to be chosen

Key = tuple[int, ...]


class Case(NamedTuple):
    """An example with the output that must win."""

    i: int
    x: Any
    y_true: Any
    right: Any  # as `feature_map` takes it
    head: Key = ()  # what stands before the name of an output in a key


class Built(NamedTuple):
    """The rows and margins of examples, in order."""

    margin: Floats
    rows: CsrRows

    def take(self, chosen: Ints, width: int) -> tuple[Floats, Features]:
        return self.margin[chosen], smaller_form(self.rows.take(chosen), width)


class Batch:
    """The examples whose rows are still to be computed."""

    def __init__(self, problem: "UserProblem", w: Floats | None = None) -> None:
        self.problem, self.w = problem, w
        self.right: list[KeptVector] = []
        self.wrong: list[KeptVector] = []
        self.loss: list[float] = []
        self.size = 0
        self.parts: list[CsrRows] = []
        self.margin: list[Floats] = []
        self.slack: list[Floats] = []
        self.terms = self.norm = self.top = self.off = 0.0

    def add(self, right: KeptVector, wrong: KeptVector, loss: float) -> None:
        self.right.append(right)
        self.wrong.append(wrong)
        self.loss.append(loss)
        self.size += length(right) + length(wrong)
        if self.size > BATCH_NUMBERS:
            self.flush()

    def flush(self) -> None:
        if not self.loss:
            return
        loss = np.array(self.loss)
        scale = loss if self.problem.slack_rescaled else None
        found = row_differences(self.right, self.wrong, self.problem.n_weights, scale)
        self.right, self.wrong, self.loss, self.size = [], [], [], 0
        self.parts.append(found.rows)
        self.margin.append(loss)
        if self.w is not None:
            self.slack.append(shorts(found.rows, loss, self.w))
        self.terms = max(self.terms, float(np.diff(found.rows.indptr).max(initial=0)))
        self.norm = max(self.norm, float(found.norm.max(initial=0.0)))
        self.off = max(self.off, float(found.off.max(initial=0.0)))
        self.top = max(self.top, float(loss.max(initial=0.0)))

    def built(self) -> Built:
        self.flush()
        if not self.parts:
            index_type = np.int32 if self.problem.n_weights <= 2**31 else np.int64
            empty = CsrRows(np.zeros(1, np.int64), np.empty(0, index_type), np.empty(0, np.float32))
            return Built(np.empty(0), empty)
        return Built(np.concatenate(self.margin), stack_csr(self.parts))

    def magnitude(self) -> Magnitude:
        """That of all constraints, if those of other outputs are no larger than those found."""
        missed = self.off / self.norm if self.norm > 0 else 0.0
        return Magnitude(self.terms + 4, MARGIN * self.norm, self.top, self.top, missed=missed)


def length(vector: KeptVector) -> int:
    return len(vector.indices) if isinstance(vector, SparseVector) else len(vector)


def find_offenders(problem: "UserProblem", w: Floats, shard: Shard) -> Offenders:
    """The most violated constraint of each example that argmax finds, with its row."""
    inputs, batch = problem.inputs(shard), Batch(problem, w)
    keys: list[Key] = [()] * shard.n_examples
    asked, bound, finite = list[int](), list[float](), inputs.finite()
    with naming_example(problem.kind, problem.oracle_seconds, shard) as at:
        for i in range(shard.n_examples):
            at(i)
            x = inputs.x(i)
            case = problem.case(inputs, i, x)
            keys[i] = case.head
            if not finite[i]:
                continue
            y = problem.argmax(w, x, case.y_true)
            right = right_vector(problem, shard, case)
            if problem.bounded:
                y, most = pair(y)
                batch.norm = max(batch.norm, norm(right))
                most = -np.inf if most is None else most
                bound.append(most if problem.slack_rescaled else most - score(w, right))
            keys[i] = (*case.head, *problem.encode(y))
            batch.add(right, kept_vector(problem.feature_map(x, y)), problem.loss_of(case.y_true, y))
            asked.append(i)
    built = finished(problem, shard, batch)
    slack, upper = np.full(shard.n_examples, np.nan), None
    slack[asked] = np.concatenate([np.empty(0), *batch.slack])
    if problem.bounded:
        upper = slack.copy()
        upper[asked] = checked_bounds(problem, shard, np.array(asked, dtype=np.int64), slack, np.array(bound))
    if problem.exact and asked:
        i = asked[len(asked) // 2]
        probe(problem, w, shard, i, keys[i], float((slack if upper is None else upper)[i]))
    whole = len(asked) == shard.n_examples and built.rows.values.nbytes <= KEPT_BYTES
    return Offenders(slack, join_keys(keys), batch.magnitude(), upper, built if whole else None)


Named = Callable[[int, Inputs, int, Any], tuple[Case, Any]]
"""The case and the output that the k-th constraint names, of example i with this x."""


def checked_bounds(problem: "UserProblem", shard: Shard, asked: Ints, slack: Floats, bound: Floats) -> Floats:
    """Refuse bounds below what argmax itself has found; those that rounding explains are lifted to it."""
    own = slack[asked]
    wrong = np.flatnonzero((bound > -np.inf) & (bound < own - SLIP * (1.0 + np.abs(own))))
    if len(wrong):
        k = int(wrong[0])
        short = f"the bound of argmax is {own[k] - bound[k]:.6g} below the value of its own output"
        raise InputError(
            f"{problem.kind}: example {shard.first + asked[k]}: {short}, so it is not an upper bound; correct it"
        )
    return np.maximum(own, bound)


def build(problem: "UserProblem", shard: Shard, chosen: Ints, named: Named) -> tuple[Floats, Features]:
    """Margins and rows of constraints, one of each of the examples `chosen`."""
    inputs, batch = problem.inputs(shard), Batch(problem)
    with naming_example(problem.kind, problem.oracle_seconds, shard) as at:
        for k, i in enumerate(chosen.tolist()):
            at(i)
            x = inputs.x(i)
            case, y = named(k, inputs, i, x)
            right = right_vector(problem, shard, case)
            batch.add(right, kept_vector(problem.feature_map(x, y)), problem.loss_of(case.y_true, y))
    built = finished(problem, shard, batch)
    return built.margin, smaller_form(built.rows, problem.n_weights)


def finished(problem: "UserProblem", shard: Shard, batch: Batch) -> Built:
    try:
        return batch.built()
    except InputError as error:
        where = f"examples {shard.first} … {shard.first + shard.n_examples - 1}"
        raise InputError(f"{problem.kind}: {where} (shard {shard.number}): {error}") from None


def right_vector(problem: "UserProblem", shard: Shard, case: Case) -> KeptVector:
    """φ of the right output; its loss is checked_vector when it is computed, the first time."""
    key = (shard.first + case.i, case.head)
    known: KeptVector | None = None if shard.memo is None else shard.memo.get(key)
    if known is None:
        known = kept_vector(problem.feature_map(case.x, case.right))
        check_right(problem, case)
        remember_vector(shard.memo, key, known)
    return known


def check_right(problem: "UserProblem", case: Case) -> None:
    """Refuse a loss that is not 0 for the right output."""
    own = problem.loss_of(case.y_true, case.right)
    if own != 0:
        raise InputError(f"loss(y, y) is {own:g} for the right output; it must be 0")


def score(w: Floats, vector: KeptVector) -> float:
    if isinstance(vector, SparseVector):
        return float(w[vector.indices] @ vector.values)
    return float(w @ vector)


def norm(vector: KeptVector) -> float:
    values = vector.values if isinstance(vector, SparseVector) else vector
    return float(np.sqrt(values @ values))


def pair(found: Any) -> tuple[Any, float | None]:
    """What argmax of a class with `bounded` returns; None instead of a bound says that y is the best output."""
    if not isinstance(found, tuple) or len(found) != 2 or np.ndim(found[1]):
        raise InputError(f"argmax returned {type(found).__name__}; a class with bounded = True returns (y, bound)")
    return found[0], None if found[1] is None else float(found[1])


def join_keys(keys: list[Key]) -> Keys:
    indptr = np.concatenate([[0], np.cumsum([len(key) for key in keys], dtype=np.int64)])
    return Keys(indptr, np.array([part for key in keys for part in key], dtype=np.int32))


def key_of(keys: Keys, k: int) -> Key:
    return tuple(keys.values[keys.indptr[k] : keys.indptr[k + 1]].tolist())
