"""A 64-bit hash of each constraint, by which equal ones are recognised."""

import numpy as np
from numpy.typing import NDArray

from distdual.kernels.jit import kernel
from distdual.kernels.rows import Bools, Ints
from distdual.problems.base import Keys

Identities = NDArray[np.uint64]


def identities(example: Ints, keys: Keys) -> Identities:
    """64-bit hashes. Constraints that collide are taken for one: slower, never wrong bounds."""
    out = np.empty(len(example), dtype=np.uint64)
    mix_identities(example, keys.indptr, keys.values, out)
    return out


@kernel
def are_new(ids: Identities, known: Identities) -> Bools:
    """True for each of `ids` that is neither known nor met before in `ids`: a hash table, as ids are hashes already."""
    size = 16
    while size < 2 * (len(ids) + len(known)):
        size *= 2
    mask = np.uint64(size - 1)
    table = np.zeros(size, dtype=np.uint64)
    new = np.zeros(len(ids), dtype=np.bool_)
    for t in range(len(known) + len(ids)):
        wanted = known[t] if t < len(known) else ids[t - len(known)]
        wanted = wanted | np.uint64(1)  # 0 marks an empty place
        at = wanted >> np.uint64(1) & mask
        while table[at] != 0 and table[at] != wanted:
            at = (at + np.uint64(1)) & mask
        if table[at] == 0:
            table[at] = wanted
            if t >= len(known):
                new[t - len(known)] = True
    return new


@kernel
def mix_identities(example: Ints, indptr: Ints, values: NDArray[np.int32], out: Identities) -> None:
    """Fold the example number and the key of each constraint with splitmix64's finaliser; fills `out`."""
    for k in range(len(example)):
        state = np.uint64(example[k]) + np.uint64(0x9E3779B97F4A7C15)
        for j in range(indptr[k], indptr[k + 1] + 1):
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state ^= state >> np.uint64(31)
            if j < indptr[k + 1]:
                state += np.uint64(values[j]) + np.uint64(0x9E3779B97F4A7C15)
        out[k] = state
