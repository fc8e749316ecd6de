"""The index of the cache: slots group by group, sorted by example and then by age."""

import numpy as np

from distdual.kernels.jit import kernel
from distdual.kernels.rows import Bools, Ints
from distdual.problems.constraint_hash import Identities


@kernel
def merge(example: Ints, members: Ints, new: Ints) -> Ints:
    """Merge two lists of slots, each sorted by example; of one example, members come first."""
    merged = np.empty(len(members) + len(new), dtype=np.int64)
    m = n = 0
    for at in range(len(merged)):
        if n == len(new) or (m < len(members) and example[members[m]] <= example[new[n]]):
            merged[at] = members[m]
            m += 1
        else:
            merged[at] = new[n]
            n += 1
    return merged


@kernel
def are_absent(
    example: Ints, ids: Identities, group_example: Ints, group_indptr: Ints, members: Ints, identity: Identities
) -> Bools:
    """Return True for each of `ids` that its example's group lacks; fast if examples ascend."""
    absent, n, group = np.ones(len(ids), dtype=np.bool_), len(group_example), 0
    for t in range(len(ids)):
        if group > 0 and group_example[group - 1] >= example[t]:
            group = 0
        step = 1
        while group + step < n and group_example[group + step] < example[t]:
            group += step
            step *= 2
        end = min(group + step, n)
        while group < end:
            middle = (group + end) // 2
            group, end = (middle + 1, end) if group_example[middle] < example[t] else (group, middle)
        if group < n and group_example[group] == example[t]:
            for s in range(group_indptr[group], group_indptr[group + 1]):
                absent[t] = absent[t] and identity[members[s]] != ids[t]
    return absent


@kernel
def group_up(example: Ints, members: Ints) -> tuple[Ints, Ints]:
    """Return where the members of each example begin, plus the end, and the examples."""
    indptr, groups, n = np.empty(len(members) + 1, dtype=np.int64), np.empty(len(members), dtype=np.int64), 0
    for at in range(len(members)):
        if at == 0 or example[members[at]] != example[members[at - 1]]:
            indptr[n], groups[n] = at, example[members[at]]
            n += 1
    indptr[n] = len(members)
    return indptr[: n + 1].copy(), groups[:n].copy()
