"""How long an ascent on the cached problem lasts."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Ascent:
    """How long to work on the cached problem."""

    tolerance: float  # until its gap is at most this …
    max_sweeps: int  # … or so many sweeps are done …
    slope: bool = False  # … or, if set, until a sweep gains less per unit of work than the round did, its scan included
    patience: float = np.inf  # … or until so many times the work of the round's scan is spent
    confirm: bool = True  # whether a pass over the cache must show that gap, or UB′, which may be too low, will do
    trusting: bool = False  # … unless scans have shown how far off UB′ is
    revisits: int = 0  # instead of sweeps: so many visits to random groups for every new constraint
    chunk: int = 0  # new constraints between such visits; 0 for all at once
