"""Cross-validation folds: the examples that a run leaves out and is tested on; no data is copied.

Each block of n_folds neighbouring examples puts one example into each fold, starting with a fold given by a hash of the
seed and the block's number. Fold sizes differ by at most one, and any worker can compute an example's fold.
"""

from dataclasses import dataclass

import numpy as np

from distdual.kernels.rows import Bools, Ints
from distdual.problems.base import Keys
from distdual.problems.constraint_hash import identities


@dataclass(frozen=True, slots=True)
class Fold:
    """Fold `number` of `n_folds`."""

    number: int
    n_folds: int
    seed: int

    def holds(self, example: Ints) -> Bools:
        """Return which of these examples, numbered over the whole data set, are in the fold."""
        held: Bools = folds_of(example, self.n_folds, self.seed) == self.number
        return held


def folds_of(example: Ints, n_folds: int, seed: int) -> Ints:
    """Return the fold of each example."""
    run = example // n_folds
    values = np.full(len(run), seed & 0x7FFFFFFF, dtype=np.int32)
    hashed = identities(run, Keys(np.arange(len(run) + 1), values))
    found: Ints = (example + (hashed % np.uint64(n_folds)).astype(np.int64)) % n_folds
    return found
