"""The plan of an ascent on the cached problem."""

from dataclasses import dataclass

import numpy as np

UNLIMITED_SWEEPS = 1000  # in effect "until converged"


@dataclass(frozen=True, slots=True)
class Ascent:
    """When to stop working on the cached problem."""

    tolerance: float  # until its gap is at most this …
    max_sweeps: int  # … or this many sweeps are done …
    slope: bool = False  # … or, if set, a sweep gains less per unit of work than the round with its scan
    patience: float = np.inf  # … or this multiple of the work of the round's scan is spent
    confirm: bool = True  # require a pass over the cache to show the gap; UB′ may be too low
    trusting: bool = False  # … unless scans have shown how far off UB′ is
    revisits: int = 0  # instead of sweeps: visits to random groups per new constraint
    chunk: int = 0  # new constraints between such visits; 0: all at once
    process: bool = True  # a step on each new constraint before them
