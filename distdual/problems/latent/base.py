"""The contract of a problem with latent values, and the convex problem left once they are fixed.

A latent problem minimises, over w and over one latent value h_i an example,

    P_H(w) = 1/2 ||w||²  +  C Σ_i cost_i · max(0, max_j ( l_ij − ⟨w, x_ij(h_i)⟩ ))

With H fixed that is a convex problem like any other, with a certificate of its own: `Completed`. The non-convex
objective is P(w) = min_H P_H(w), and `impute` finds the H that attains it.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from distdual.config import check_choice
from distdual.data.shard import Shard, join_tokens
from distdual.errors import InputError
from distdual.kernels.rows import Bools, Floats, Int32s, Ints
from distdual.problems.base import Keys, Offenders, Problem
from distdual.problems.wrapping import Wrapping

DIFFERENCE = 0.01  # between copies of the same weights, relative to these


class StartWeights(NamedTuple):
    """Weights to begin with."""

    w: Floats
    imputes: bool = True  # whether they tell which latent values are good; else all look the same to them


@dataclass(frozen=True, kw_only=True)
class LatentProblem(Problem):
    """A problem whose methods find the latent values they need in `shard.latent`.

    The key of a constraint holds the latent value that its row is made with: example and key name the row.
    """

    per_token: ClassVar[bool] = False
    """True if an example has a latent value for each of its tokens, not just one."""

    starts: ClassVar[tuple[str, ...]]
    """Kinds of models that a warm start accepts."""

    rounds: int = 50
    """Largest number of convex problems to solve; fewer if the objective stops falling earlier."""

    restarts: int = 1
    """Number of runs from different initial latent values; the model with the lowest objective is kept."""

    init: str = "guess"
    """Initial latent values: the problem's own "guess", or "random"."""

    def __post_init__(self) -> None:
        check_choice("problem.init", self.init, ["guess", "random"])
        for name in ("rounds", "restarts"):
            if getattr(self, name) < 1:
                raise InputError(f"problem.{name} must be at least 1, got {getattr(self, name)}")

    @abstractmethod
    def impute(self, w: Floats, shard: Shard) -> Int32s:
        """The latent value, one or one a token, with which each example has the smallest slack at w."""

    @abstractmethod
    def rebase(self, shard: Shard, chosen: Ints, keys: Keys) -> Keys:
        """The keys of the same constraints with the latent values of `shard`; their α may move there."""

    @abstractmethod
    def check_latent(self, shard: Shard) -> None:
        """Raise an InputError for a latent value that an example cannot have: those of a model may be forged."""

    @abstractmethod
    def draw(self, shard: Shard, seed: int) -> Int32s:
        """Latent values at random, as a start."""

    def start_from(self, model: Problem, w: Floats, seed: int) -> StartWeights:  # noqa: ARG002
        """The weights `w` of a model as weights of this problem; here they are the same."""
        if model.kind not in self.starts or model.n_weights != self.n_weights:
            raise InputError(
                f"solver.start: a {self.kind} problem of {self.n_weights} weights begins with a model of "
                f"{' or '.join(self.starts)} with as many, not with {model.kind} of {model.n_weights}"
            )
        return StartWeights(w)

    def guesses(self, restart: int) -> int:  # noqa: ARG002
        """How often `guess` shall improve on values drawn at random."""
        return 0

    def summary(self, shard: Shard) -> Floats:
        """What `guess` needs to know of all shards and their latent values; it is added up."""
        raise NotImplementedError

    def guess(self, total: Floats, shard: Shard) -> Int32s:
        """Better latent values, without any w."""
        raise NotImplementedError

    def settle(self, old: Int32s, new: Int32s) -> Int32s:  # noqa: ARG002
        """The latent values of all examples to continue with: for each the new one or the old one."""
        return new

    def completed(self, shard: Shard, values: Int32s) -> "Completed":
        """The convex problem that is left, on one shard, with these latent values."""
        return Completed(self, values, shard.first, shard.tokens if self.per_token else None)


@dataclass(frozen=True, eq=False)
class Completed(Wrapping):
    """The convex problem that is left of `problem` with these latent values."""

    problem: LatentProblem
    values: Int32s  # of examples first, first + 1, …
    first: int = 0
    indptr: Ints | None = None  # where the values of each begin, and the end of the last; None where each has one

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        found = self._with_values(shard)
        self.problem.check_latent(found)  # as those of a checkpoint may be forged
        return self.problem.offenders(w, found)

    def check_latent(self, shard: Shard) -> None:
        self.problem.check_latent(self._with_values(shard))

    def rebase(self, shard: Shard, chosen: Ints, keys: Keys) -> Keys:
        return self.problem.rebase(self._with_values(shard), chosen, keys)

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        self.problem.check_keys(self._with_values(shard), chosen, keys)

    def summary(self, shard: Shard) -> Floats:
        return self.problem.summary(self._with_values(shard))

    def part(self, first: int, end: int) -> "Completed":
        begin, stop = first - self.first, end - self.first
        if self.indptr is None:
            return replace(self, values=self.values[begin:stop], first=first)
        indptr = self.indptr[begin : stop + 1]
        return replace(self, values=self.values[indptr[0] : indptr[-1]], first=first, indptr=indptr - indptr[0])

    @property
    def n_examples(self) -> int:
        return len(self.values) if self.indptr is None else len(self.indptr) - 1

    def changes(self, other: Int32s) -> Bools:
        """(n,) which examples have other latent values there."""
        differ: Bools = self.values != other
        return differ if self.indptr is None else np.logical_or.reduceat(differ, self.indptr[:-1])

    def of(self, shard: Shard) -> "Completed":
        """The same problem on the examples of a shard alone."""
        return self.part(shard.first, shard.first + shard.n_examples)

    def _with_values(self, shard: Shard) -> Shard:
        return replace(shard, latent=self.of(shard).values)


def join_completed(parts: Sequence[Completed]) -> Completed:
    """The problem on all examples, from what it is on those of each shard, in order."""
    first, values = parts[0], np.concatenate([part.values for part in parts])
    tokens = join_tokens([part.indptr for part in parts])
    return replace(first, values=values, indptr=tokens)


def stated(problem: Problem) -> Problem:
    """The problem itself, without latent values: to predict with, on any data."""
    return problem.problem if isinstance(problem, Completed) else problem


def told_apart(copies: Floats, seed: int) -> Floats:
    """Copies of the same weights with small differences by seed, without which none would ever be the better one."""
    size = float(np.sqrt((copies**2).mean())) or 1.0
    return copies + DIFFERENCE * size * np.random.default_rng([seed, 3]).normal(size=copies.shape)


def latent_of(shard: Shard) -> Int32s:
    assert shard.latent is not None  # `Completed` sets it
    return shard.latent


def check_range(shard: Shard, low: Int32s | int, high: Int32s | Ints | int, tokens: Ints | None = None) -> None:
    """Latent values must be from `low` to `high` − 1; `tokens` says whose they are where an example has several."""
    wrong = np.flatnonzero((latent_of(shard) < low) | (latent_of(shard) >= high))
    if len(wrong):
        value = latent_of(shard)[wrong[0]]
        at = wrong[0] if tokens is None else np.searchsorted(tokens, wrong[0], side="right") - 1
        raise InputError(f"example {shard.first + at} cannot have the latent value {value} that it was given")
