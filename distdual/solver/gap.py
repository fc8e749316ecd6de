"""The relative duality gap, by which solver, coordinator and certificate judge a pair of bounds."""


def relative_gap(upper: float, lower: float) -> float:
    """Return (upper − lower) / upper, or 0 where the optimum is 0; NaN stays NaN, so that no target accepts it."""
    return 0.0 if upper <= 0 else (upper - lower) / upper
