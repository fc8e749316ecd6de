"""The rounding of a shard's loss Σ cost_i ξ_i(w), and what no exact oracle can return."""

from typing import NamedTuple

import numpy as np

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rounding import MARGIN, gamma, norm_bound
from distdual.kernels.rows import Floats, product
from distdual.problems.base import Magnitude, Offenders, Problem


class LossError(NamedTuple):
    """The loss is off by at most fixed + stacked + slope · ||w||, and by at most `fixed` where w = 0."""

    fixed: float = 0.0
    stacked: float = 0.0
    slope: float = 0.0

    def at(self, norm: float) -> float:
        return self.fixed + (self.stacked + self.slope * norm if norm > 0.0 else 0.0)


def loss_error(magnitude: Magnitude, costs: Floats, loss: float) -> LossError:
    """Bound the rounding of Σ cost_i ξ_i.

    |ξ̂_i − ξ_i| ≤ γ (||x|| ||w|| + stacked losses) + 2 u ξ_i for each i, and the sum adds γ_n Σ cost_i ξ_i.
    """
    rounded, total = gamma(magnitude.terms), MARGIN * float(costs.sum())
    slope = (rounded + 2.0 * magnitude.missed) * magnitude.row * total
    fixed = gamma(len(costs) + magnitude.terms + 4) * abs(loss)
    return LossError(fixed, rounded * magnitude.stacked * total, slope)


def slack_error(size: Magnitude, norm: float) -> float:
    """How far two slacks of one example, of a row as built and of the oracle, can differ by rounding."""
    rows = (gamma(size.terms) + size.missed) * size.row * norm
    return MARGIN * 2.0 * (rows + gamma(size.terms) * (size.margin + size.stacked))


def checked(problem: Problem, shard: Shard, found: Offenders, w: Floats) -> Offenders:
    """Refuse slacks below 0, which only an oracle that is not exact returns; clip those that rounding explains."""
    if not found.slack.min(initial=0.0) < 0.0:
        return found
    most = found.slack if found.bound is None else found.bound
    lowest = int(np.argmin(most))
    size = problem.magnitude(shard, found)
    allowed = gamma(size.terms) * (size.row * norm_bound(w) + size.margin + size.stacked)
    if problem.exact and not most[lowest] >= -allowed:
        bound = found.bound is not None
        raise InputError(below_zero(problem.kind, shard.first + lowest, float(most[lowest]), bound=bound))
    upper = None if found.bound is None else np.maximum(0.0, found.bound)
    return found._replace(slack=np.maximum(0.0, found.slack), bound=upper)


def upper_loss(costs: Floats, found: Offenders) -> tuple[float, float]:
    """Σ cost_i ξ_i or what bounds it from above, and the part of it that the oracle leaves open."""
    if found.bound is None:
        return product(costs, found.slack), 0.0
    return product(costs, found.bound), product(costs, found.bound - found.slack)


def below_zero(kind: str, example: int, slack: float, *, bound: bool = False) -> str:
    """The message about an example for which the oracle returned less than the right output has."""
    if bound:
        return (
            f"{kind}: example {example}: the oracle's bound is {slack:.6g}, below the slack 0 of the right output, so "
            "it is not an upper bound; correct it"
        )
    return (
        f"{kind}: example {example}: the oracle returned an output with slack {slack:.6g}, below the slack 0 of the "
        "right output, so it is not the argmax; correct it, or set exact = False"
    )
