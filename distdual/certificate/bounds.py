"""Proven bounds on P(w*), and the conditions under which they are proven."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distdual.kernels.rounding import UNIT, Enclosed, norm_bound, sum_of
from distdual.kernels.rows import Floats
from distdual.scan.loss_error import LossError
from distdual.scan.scan import ShardReport
from distdual.solver.gap import is_certified, relative_gap
from distdual.solver.proven import penalty
from distdual.solver.regularizer import Prior


class ShardLoss(NamedTuple):
    shard: int
    version: int
    loss: float  # Σ_i cost_i ξ_i(w) over the shard
    exact: bool
    fixed: float = 0.0  # how far rounding can have put `loss` off, see `LossError`
    stacked: float = 0.0
    slope: float = 0.0
    relaxed: float = 0.0  # the part of `loss` that inference leaves open

    @property
    def error(self) -> LossError:
        return LossError(self.fixed, self.stacked, self.slope)


def shard_losses(reports: Iterable[ShardReport]) -> list[ShardLoss]:
    """Return the losses that scans reported."""
    return [
        ShardLoss(report.shard, report.version, report.loss, report.exact, *report.error, report.relaxed)
        for report in reports
    ]


def whole_shards(losses: Iterable[ShardLoss]) -> list[ShardLoss]:
    """Losses per shard from losses per piece; pieces of different versions give version −1."""
    made: dict[int, ShardLoss] = {}
    for piece in losses:
        known = made.get(piece.shard)
        if known is not None:
            version = piece.version if piece.version == known.version else -1
            fixed, *others = (a + b for a, b in zip(known.error, piece.error, strict=True))
            loss = known.loss + piece.loss
            error = LossError(fixed + 2.0 * UNIT * abs(loss), *others)  # of this sum itself, too
            relaxed = known.relaxed + piece.relaxed
            piece = ShardLoss(piece.shard, version, loss, known.exact and piece.exact, *error, relaxed)  # noqa: PLW2901
        made[piece.shard] = piece
    return [made[shard] for shard in sorted(made)]


class CertificateError(ValueError):
    """The scans at hand do not prove an upper bound."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """lower ≤ P(w*) ≤ upper, for the weights numbered `version`; rounding is part of the bounds."""

    lower: float
    upper: float
    version: int
    rounding: float = 0.0  # how far both bounds together were moved apart for it

    @property
    def gap(self) -> float:
        return relative_gap(self.upper, self.lower)

    @property
    def is_proven(self) -> bool:
        """Whether there is an upper bound at all."""
        return bool(np.isfinite(self.upper))

    def reaches(self, target: float) -> bool:
        return is_certified(self.lower, self.upper, target)


def upper_bound(
    w: Floats, version: int, losses: Sequence[ShardLoss], *, C: float, n_shards: int, prior: Prior | None = None
) -> Enclosed:
    """Return P(w) = R(w) + C Σ loss from one exact scan of every shard at this version, with a bound on rounding.

    R(w) = 1/2 ||w||² without a prior. The result does not depend on the order in which workers report.
    """
    missing = set(range(n_shards)) - {s.shard for s in losses}
    if missing or len(losses) != n_shards:
        raise CertificateError(
            f"an upper bound needs each of {n_shards} shards exactly once; "
            f"got {len(losses)} scans, missing {sorted(missing)[:5]}"
        )
    for s in losses:
        if s.version != version:
            raise CertificateError(
                f"shard {s.shard} was scanned at weights v{s.version}, this bound is for v{version}; "
                "losses at different weights do not add up to P(w). Scan it again."
            )
        if not s.exact:
            raise CertificateError(
                f"shard {s.shard} used inexact inference, which can only underestimate P(w); "
                "report an estimate instead of a certificate."
            )
    norm = norm_bound(w)
    loss = sum_of([Enclosed(s.loss, s.error.at(norm)) for s in losses])
    return penalty(prior or Prior(len(w)), w).plus(loss.times(C))


def relaxed_part(losses: Sequence[ShardLoss], *, C: float) -> float:
    """Return the part of an upper bound that inference leaves open: more training does not lower it."""
    return C * math.fsum(s.relaxed for s in losses)


def objective(w: Floats, losses: Sequence[ShardLoss], *, C: float, prior: Prior | None = None) -> float:
    """Return R(w) + C Σ loss of the outputs found: P(w) under the conditions of `upper_bound`, else an estimate."""
    return (prior or Prior(len(w))).penalty(w) + C * math.fsum(s.loss - s.relaxed for s in losses)
