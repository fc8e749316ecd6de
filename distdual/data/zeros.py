"""Which features are read faster if their zeros are left out?"""

from dataclasses import replace

import numpy as np

from distdual.data.shard import Shard
from distdual.kernel import bare_kernel
from distdual.rows import CsrRows, DenseRows, Int32s, Ints, Singles

WIDE = 256  # features: a narrower row is there at once, zeros or not
SPARSE = 0.25  # share of all features that is not 0, at most: an index takes as much memory as a value
SAMPLE = 16  # rows that are looked at first


def without_zeros(shard: Shard) -> Shard:
    """The same shard with sparse features, if they are wide and mostly 0; else as it is."""
    x = shard.x
    if not isinstance(x, DenseRows) or not len(x.values) or x.values.shape[1] < WIDE:
        return shard
    some = x.values[:: -(-len(x.values) // SAMPLE)]
    if np.count_nonzero(some) > SPARSE * some.size:
        return shard
    room = int(SPARSE * x.values.size) + x.values.shape[1]
    indptr, indices = np.zeros(len(x.values) + 1, dtype=np.int64), np.empty(room, dtype=np.int32)
    values = np.empty(room, dtype=np.float32)
    if not leave_out(np.ascontiguousarray(x.values), indptr, indices, values):
        return shard
    return replace(shard, x=CsrRows(indptr, indices[: indptr[-1]], values[: indptr[-1]]))


@bare_kernel
def leave_out(dense: Singles, indptr: Ints, indices: Int32s, values: Singles) -> bool:
    """Fill the rest with what is not 0 in `dense`; False if there is no room for a row that may have no zero."""
    at = np.uint64(0)  # unsigned: no test for negative places
    width = np.uint64(dense.shape[1])
    for i in range(len(dense)):
        if at + width > np.uint64(len(values)):
            return False
        row = dense[i]
        for j in range(len(row)):  # without a branch, which nobody could foretell: what is 0 is written over
            indices[at] = j
            values[at] = row[j]
            at += np.uint64(row[j] != 0.0)
        indptr[i + 1] = at
    return True
