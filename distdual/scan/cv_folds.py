"""Which examples does a run leave out, to be tested on them later? Those of one fold; nothing is copied or moved.

The examples of every run of n_folds neighbours go to one fold each, beginning with a fold that a hash of the seed and
the number of the run tells: folds differ in size by one at most, and any worker knows an example's fold by its number.
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
        """Which of these examples, numbered through the whole data set, it consists of."""
        held: Bools = folds_of(example, self.n_folds, self.seed) == self.number
        return held


def folds_of(example: Ints, n_folds: int, seed: int) -> Ints:
    """The fold of each example."""
    run = example // n_folds
    values = np.full(len(run), seed & 0x7FFFFFFF, dtype=np.int32)
    hashed = identities(run, Keys(np.arange(len(run) + 1), values))
    found: Ints = (example + (hashed % np.uint64(n_folds)).astype(np.int64)) % n_folds
    return found
