"""The best bias at given weights: an exact search along one line, over the kinks that all shards report.

P(w, b) is convex and piecewise linear in b. Where its minimum lies between kinks that every shard has reported, it is
found exactly; else the search ends at the edge of what is known, which still is a bound, and lower than at 0.
"""

import math
from collections.abc import Sequence

import numpy as np

from distdual.certificate.bounds import ShardLoss
from distdual.kernels.rounding import MARGIN, gamma, norm_bound
from distdual.kernels.rows import Floats
from distdual.problems.base import BiasKinks
from distdual.scan.scan import ShardReport

FIRST_SORTED = 1 << 9  # kinks nearest to 0, among which the minimum mostly is once weights are good


def kinks_of(reports: Sequence[ShardReport]) -> list[BiasKinks]:
    """The kinks of all examples, or none if some report has none."""
    found = [report.kinks for report in reports if report.kinks is not None]
    return found if len(found) == len(reports) else []


def at_best_bias(
    w: Floats, losses: list[ShardLoss], parts: Sequence[BiasKinks], constant: float
) -> tuple[Floats, list[ShardLoss]]:
    """The weights with the best bias, and the losses at them; `constant` is the feature of the bias weight."""
    best = w.copy()
    best[-1] += best_shift(parts) / constant
    t = float(best[-1] - w[-1]) * constant
    norm = norm_bound(w)  # at which scores were rounded
    rounded = [loss._replace(fixed=loss.error.at(norm), stacked=0.0, slope=0.0) for loss in losses]
    return best, shifted(rounded, parts, t)


def best_shift(parts: Sequence[BiasKinks]) -> float:
    """The t that minimises the loss of all examples, as far as their kinks are known."""
    low, high = max(part.low for part in parts), min(part.high for part in parts)
    at = np.concatenate([part.at for part in parts])
    weight = np.concatenate([part.weight for part in parts])
    slope = sum(part.slope for part in parts)
    if slope == 0:
        return 0.0
    if slope < 0:
        return first_rise(at[at >= 0], weight[at >= 0], slope, high)
    return -first_rise(-at[at < 0], weight[at < 0], -slope, -low)


def first_rise(at: Floats, weight: Floats, slope: float, end: float) -> float:
    """The first kink, going up from 0, behind which the slope is not negative; at most `end`."""
    last, some = end, FIRST_SORTED
    while True:
        near = np.argpartition(at, some)[:some] if some < len(at) else np.arange(len(at))
        order = near[np.argsort(at[near], kind="stable")]
        rising = np.flatnonzero(slope + np.cumsum(weight[order]) >= 0)
        if len(rising):
            last = float(at[order[rising[0]]])
        if len(rising) or some >= len(at):
            break
        some *= 8
    found = min(last, end)
    return max(0.0, found) if np.isfinite(found) else 0.0


def change(part: BiasKinks, t: float) -> tuple[float, float]:
    """F(t) − F(0), and a bound on its rounding."""
    between = (part.at >= 0) & (part.at < t) if t > 0 else (part.at < 0) & (part.at > t)
    parts = part.weight[between] * np.abs(t - part.at[between])
    size = abs(t) * part.total + float(parts.sum())
    rounded = 2.0 * gamma(len(part.at) + 16.0) * size * MARGIN
    return part.slope * t + float(parts.sum()), rounded + 16.0 * abs(t) * part.total * 2.0**-52


def shifted(losses: Sequence[ShardLoss], parts: Sequence[BiasKinks], t: float) -> list[ShardLoss]:
    """Losses that add up to that of all examples at scores higher by t; the change is booked on the first."""
    first, *others = losses
    more = [change(part, t) for part in parts]
    loss, fixed = math.fsum(each[0] for each in more), MARGIN * math.fsum(each[1] for each in more)
    return [first._replace(loss=first.loss + loss, fixed=first.fixed + fixed), *others]
