"""Proof that an oracle is not exact: it missed a constraint that it had returned before."""

from collections.abc import Sequence

import numpy as np

from distdual.certificate.bounds import ShardLoss
from distdual.kernels.rounding import norm_bound
from distdual.kernels.rows import Floats

KNOWN_ERROR = 1e-9  # relative difference between two losses of the same constraints that rounding may cause


def refutation(w: Floats, losses: Sequence[ShardLoss], known: Floats, C: float, *, together: bool) -> str | None:
    """Say so if cached constraints are violated more than what an exact scan of the same shards returned.

    `known` is the loss of the cached constraints, by shard; `together`: all examples share one slack.
    """
    if together:
        losses = [ShardLoss(0, 0, sum(s.loss for s in losses), True, *np.sum([s.error for s in losses], axis=0))]
    norm = norm_bound(w)
    for s in losses:
        found, allowed = C * s.loss, C * 2.0 * s.error.at(norm)
        if known[s.shard] > found + allowed + KNOWN_ERROR * abs(found):
            return (
                f"the oracle is not exact: constraints of shard {s.shard} that it returned before are violated by "
                f"{known[s.shard]:.10g}, what it returned now by {found:.10g}"
            )
    return None
