"""Proven bounds on P(w*), and the conditions under which they are proven."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from distdual.kernels.rows import Floats
from distdual.scan.scan import ShardReport
from distdual.solver.gap import relative_gap
from distdual.solver.regularizer import Prior


class ShardLoss(NamedTuple):
    shard: int
    version: int
    loss: float  # Σ_i cost_i ξ_i(w) over the shard
    exact: bool


def shard_losses(reports: Iterable[ShardReport]) -> list[ShardLoss]:
    """Return the losses that scans reported."""
    return [ShardLoss(report.shard, report.version, report.loss, report.exact) for report in reports]


def whole_shards(losses: Iterable[ShardLoss]) -> list[ShardLoss]:
    """Losses per shard from losses per piece; pieces of different versions give version −1."""
    made: dict[int, ShardLoss] = {}
    for piece in losses:
        known = made.get(piece.shard)
        if known is not None:
            version = piece.version if piece.version == known.version else -1
            piece = ShardLoss(piece.shard, version, known.loss + piece.loss, known.exact and piece.exact)  # noqa: PLW2901
        made[piece.shard] = piece
    return [made[shard] for shard in sorted(made)]


class CertificateError(ValueError):
    """The scans at hand do not prove an upper bound."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """lower ≤ P(w*) ≤ upper, for the weights numbered `version`."""

    lower: float
    upper: float
    version: int

    @property
    def gap(self) -> float:
        return relative_gap(self.upper, self.lower)


def upper_bound(
    w: Floats, version: int, losses: Sequence[ShardLoss], *, C: float, n_shards: int, prior: Prior | None = None
) -> float:
    """Return P(w) = R(w) + C Σ loss from one exact scan of every shard at this version.

    R(w) = 1/2 ||w||² without a prior. `fsum` makes the result independent of the order in which workers report.
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
    return objective(w, losses, C=C, prior=prior)


def objective(w: Floats, losses: Sequence[ShardLoss], *, C: float, prior: Prior | None = None) -> float:
    """Return R(w) + C Σ loss, an upper bound only under the conditions of `upper_bound`, else an estimate."""
    penalty = (prior or Prior(len(w))).penalty(w)
    return penalty + C * math.fsum(s.loss for s in losses)
