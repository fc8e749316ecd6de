"""One shard's share of P(w) and of D(α), recomputed on a worker."""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from distdual.certificate.rebuild import SingleConstraints, Support
from distdual.data.shard import Shard
from distdual.kernels.rounding import MARGIN, Enclosed, enclosed_product, gamma, norm_bound, sum_of
from distdual.kernels.row_sums import add_runs
from distdual.kernels.rows import Floats, Ints
from distdual.problems.base import Magnitude, Problem
from distdual.problems.latent.base import Completed
from distdual.scan.loss_error import LossError, checked, loss_error, slack_error, upper_loss
from distdual.scan.shard_reader import Openable, streamed
from distdual.solver.proven import Mass
from distdual.solver.sweep import slacks

SAME_SLACK = 1e-9  # largest relative difference between two slacks of the same constraint
FEASIBLE = 1e-9  # relative excess of Σ α over C_i that rounding may cause


class Sparse(NamedTuple):
    """A sparse vector as positions and values, or in full where `at` is None."""

    at: Ints | None
    values: Floats


NOTHING = Sparse(np.empty(0, dtype=np.int64), np.empty(0))


class ShardCheck(NamedTuple):
    shard: int
    exact: bool
    intact: bool  # False if its checksum differs from the prepared one
    loss: float  # Σ cost_i ξ_i(w), or an upper bound of it
    error: LossError
    linear: Enclosed  # Σ α l over the shard's support constraints
    v: Sparse  # Σ α x over these
    mass: Mass
    magnitude: Magnitude
    infeasible: Ints  # examples with Σ α > C_i or α < 0
    excess: float  # largest Σ α / C_i − 1 of the others, by rounding
    missed: Ints  # examples with a support constraint that is violated more than what the oracle returned
    bytes_read: int
    gets: int
    relaxed: float = 0.0  # the part of `loss` that inference leaves open


def check_shard(source: Openable, problem: Problem, w: Floats, shard: int, C: float, support: Support) -> ShardCheck:
    """Compute one shard's share of P(w) and of D(α), on a worker."""
    with streamed(source, shard, check=False) as loaded:
        found = problem.prepared(loaded.shard)
        if isinstance(problem, Completed):
            problem.check_latent(found)
        costs = problem.costs(found)
        worst = checked(problem, found, problem.offenders(w, found), w)
        (loss, relaxed), size = upper_loss(costs, worst), problem.magnitude(found, worst)
        most = worst.slack if worst.bound is None else worst.bound
        dual = DualPart(problem, found, w, most, size if problem.exact else None)
        for piece in support.pieces(found, problem):
            dual.add(piece)
        infeasible, excess = dual.feasibility(C * costs)
        return ShardCheck(
            shard,
            problem.exact,
            loaded.intact,
            loss,
            loss_error(size, costs, loss),
            sum_of(dual.linear),
            shorter(dual.v),
            Mass(MARGIN * dual.alpha, float(dual.counts.sum())),
            size,
            found.first + infeasible,
            excess,
            found.first + np.unique(np.concatenate(dual.missed)),
            loaded.bytes_read,
            loaded.gets,
            relaxed,
        )


class DualPart:
    """Sums over the support constraints of one shard."""

    def __init__(self, problem: Problem, shard: Shard, w: Floats, slack: Floats, size: Magnitude | None) -> None:
        self.w, self.slack = w, slack
        self.v, self.alpha, self.linear = np.zeros(problem.n_weights), 0.0, list[Enclosed]()
        self.used, self.counts = np.zeros(shard.n_examples), np.zeros(shard.n_examples, dtype=np.int64)
        self.negative = np.zeros(shard.n_examples, dtype=np.bool_)
        self.missed = [np.empty(0, dtype=np.int64)]
        self.size = size

    def add(self, piece: SingleConstraints) -> None:
        margin, rows = piece.constraints.margin, piece.constraints.rows
        add_runs(rows, piece.alpha, np.array([0, len(piece.alpha)]), self.v[np.newaxis])
        self.linear.append(enclosed_product(piece.alpha, margin, 2.0))
        self.alpha += float(np.abs(piece.alpha).sum())
        self.used += np.bincount(piece.example, piece.alpha, minlength=len(self.used))
        self.counts += np.bincount(piece.example, minlength=len(self.used))
        self.negative[piece.example[piece.alpha < 0]] = True
        if self.size is not None:
            own = np.empty(len(margin))
            slacks(rows, margin, self.w, own)
            most = self.slack[piece.example] * (1.0 + SAME_SLACK) + slack_error(self.size, self.norm)
            self.missed.append(piece.example[own > most])

    @cached_property
    def norm(self) -> float:
        return norm_bound(self.w)

    def feasibility(self, most: Floats) -> tuple[Ints, float]:
        """The examples whose α is not feasible, and the excess over C_i of the others, due to rounding."""
        wrong = (self.used > most * (1 + FEASIBLE)) | self.negative | ~np.isfinite(self.used)
        rounded = self.used * (1.0 + gamma(float(self.counts.max(initial=0)) + 4.0))
        share = np.divide(rounded, most, out=np.ones(len(most)), where=(self.used > 0) & ~wrong)
        return np.flatnonzero(wrong), float(max(0.0, share.max(initial=0.0) - 1.0))


def shorter(v: Floats) -> Sparse:
    """Return v in the form that takes fewer bytes to send."""
    at = np.flatnonzero(v)
    return Sparse(at, v[at]) if 2 * len(at) < len(v) else Sparse(None, v)
