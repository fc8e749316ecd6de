"""The relative duality gap, and when it certifies: the rules by which all parts judge a pair of bounds."""

import math


def relative_gap(upper: float, lower: float) -> float:
    """Return (upper − lower) / upper, or 0 where the optimum is 0; NaN stays NaN, so that no target accepts it."""
    if upper <= 0:
        return 0.0 if lower <= 0 else -math.inf
    return (upper - lower) / upper


def is_certified(lower: float, upper: float, target: float) -> bool:
    """Whether both bounds are finite, in order, and 0 ≤ gap ≤ target < ∞."""
    finite = math.isfinite(lower) and math.isfinite(upper) and math.isfinite(target)
    return finite and upper >= 0.0 and lower <= upper and 0.0 <= relative_gap(upper, lower) <= target


def contradiction(lower: float, upper: float) -> str | None:
    """Say what must be wrong if a proven lower bound exceeds a proven upper bound; None if it does not."""
    if not lower > upper:
        return None
    return (
        f"the lower bound {lower:.10g} exceeds the upper bound {upper:.10g} by more than rounding explains, so one of "
        "three is wrong: the problem (a loss below 0, or an oracle that misses the worst output), the data (changed "
        "between two reads) or the dual (constraints that are not those of the data)"
    )
