"""Inner products of each constraint with the older ones that share its slack."""

from distdual.kernels.jit import bare_kernel
from distdual.kernels.rows import Bools, Floats, Ints, Rows, add, dot


@bare_kernel
def count_older(members: Ints, slots: Ints, start: Ints, older: Ints) -> None:
    """Count the members before each of these slots in its group, which starts at `start`; fills `older`."""
    for s in range(len(slots)):
        older[s] = 0
        while members[start[s] + older[s]] != slots[s]:
            older[s] += 1


@bare_kernel
def fill_gram(rows: Rows, members: Ints, slots: Ints, start: Ints, older: Ints, spread: Floats, values: Floats) -> None:
    """⟨x_k, x_j⟩ for each new slot k and the members j of its group that stand before it; fills `values`.

    `spread` are zeros, one a weight, and are so again afterwards: x_k is spread out there, so that sparse rows need
    not be compared value by value.
    """
    at = 0
    for s in range(len(slots)):
        if older[s]:
            add(rows, slots[s], 1.0, spread)
            for p in range(start[s], start[s] + older[s]):
                values[at] = dot(rows, members[p], spread)
                at += 1
            add(rows, slots[s], -1.0, spread)


@bare_kernel
def keep_gram(
    members: Ints, which: Ints, place: Ints, start: Ints, stays: Bools, old: Ints, gram: Floats, indptr: Ints
) -> None:
    """Moves the inner products between constraints that stay to the front of `gram`; fills `indptr`."""
    at = 0
    for s in range(len(which)):
        k = which[s]
        for p in range(start[k], place[k]):
            if stays[members[p]]:
                gram[at] = gram[old[k] + p - start[k]]
                at += 1
        indptr[s + 1] = at
