"""What to do next. Pure: no clock, no network, no random state of its own."""

from dataclasses import dataclass

import numpy as np

CERTIFY_NEAR = 2.0  # certify once the estimated gap is within this factor of the target
CERTIFY_EVERY = 4  # and at least every so many passes, whatever the estimate says


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over all shards: rounds of shards that are scanned at one w each."""

    certify: bool  # a single round, whose losses add up to an upper bound
    rounds: tuple[tuple[int, ...], ...]
    tolerance: float  # gap of the cached problem at which to stop ascending after each round


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known between two passes."""

    n_passes: int
    since_certified: int  # passes since the last that certified
    estimate: float  # of the gap: losses at different weights; infinity before the first pass
    gap: float  # proven; infinity before the first certificate
    seconds: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Training is over; `reason` goes into the report word for word."""

    reason: str


def next_step(
    progress: Progress, *, n_shards: int, target: float, max_passes: int, max_seconds: float, seed: int
) -> Pass | Stop:
    """Stop when the proven gap is small enough or the budget is spent, else pass over the data again."""
    if progress.gap <= target:
        return Stop(f"gap {progress.gap:.2e} is at most the target {target:.2e}")
    if progress.n_passes >= max_passes:
        return Stop(f"{max_passes} passes are done")
    if progress.seconds >= max_seconds:
        return Stop(f"{max_seconds:g} seconds are over")
    known = min(progress.estimate, progress.gap)
    certify = progress.n_passes > 0 and (
        progress.estimate <= CERTIFY_NEAR * target or progress.since_certified >= CERTIFY_EVERY
    )
    order = tuple(int(s) for s in np.random.default_rng([seed, 0, progress.n_passes]).permutation(n_shards))
    tolerance = max(0.3 * target, min(0.1, 0.2 * known))
    return Pass(certify, (order,) if certify else cut_rounds(order, first=progress.n_passes == 0), tolerance)


def cut_rounds(order: tuple[int, ...], *, first: bool) -> tuple[tuple[int, ...], ...]:
    """Rounds of an eighth of the shards; the very first rounds are small, so that w soon means something."""
    most = max(1, len(order) // 8)
    rounds, begin, size = [], 0, 1 if first else most
    while begin < len(order):
        rounds.append(order[begin : begin + size])
        begin += size
        size = min(most, 2 * size)
    return tuple(rounds)
