"""The row and the loss of a right and a wrong path through a linear chain.

    row     = φ(x, right) − φ(x, found)
    φ(x, z) = Σ_t features_t ⊗ e_{z_t}  +  Σ_t (1, first features_t) ⊗ e_{z_{t−1} z_t}
              +  Σ_t e_{z_{t−2} z_{t−1} z_t}  +  e_{z_1}  +  e_{z_T}

States and tags are as in `viterbi`. Rows are sums of features in double precision, kept in single
where that changes nothing.
"""

from typing import Any, NamedTuple

import numpy as np

from distdual.kernels.jit import bare_kernel, inner_bare_kernel, inner_kernel, kernel, specialise
from distdual.kernels.row_copies import narrowed
from distdual.kernels.rows import CsrRows, DenseRows, Features, Floats, Int32s, Ints, is_dense

DIGIT_BITS = 8  # of a column, by which rows are sorted at a time: counts of all digits stay in the nearest cache
DIGITS = 1 << DIGIT_BITS


class Paths(NamedTuple):
    """The two paths that each constraint compares, as runs of states, and the sequence they go through."""

    first: Ints  # (n,) its first token
    size: Ints  # (n,) how many it has
    right: Int32s
    right_at: Ints  # (n,) where the run of each begins
    found: Int32s
    found_at: Ints


class Shape(NamedTuple):
    """Which weights a chain has, in this order."""

    n_states: int
    n_features: int
    transitions: bool
    boundaries: bool
    n_observed: int = 0  # features, from the first on, with weights for pairs
    triples: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many weights of emissions, pairs, observed pairs, triples, starts and ends there are."""
        k = self.n_states
        ends = k * self.boundaries
        return (k * self.n_features, k * k * self.transitions, k * k * self.n_observed, k**3 * self.triples, ends, ends)

    @property
    def n_weights(self) -> int:
        return sum(self.sizes)


def path_rows(x: Features, paths: Paths, scale: Floats, shape: Shape) -> CsrRows:
    """scale · (φ(x, right) − φ(x, found)) of each, first into room for the longest they can be."""
    indptr = np.zeros(len(scale) + 1, dtype=np.int64)
    most = sum_of_most(x, paths, shape.n_observed > 0)
    indices = np.empty(most, dtype=np.int32 if shape.n_weights < 2**31 else np.int64)
    values = np.empty(most)
    fill_rows(x, paths, scale, shape, indptr, indices, values)
    return CsrRows(indptr, indices[: indptr[-1]].copy(), narrowed(values[: indptr[-1]]))


def losses_of(paths: Paths, tag_costs: Floats, m: int = 1) -> Floats:
    """(n,) Σ_t tag_costs[tag of right_t] [tag of found_t ≠ tag of right_t]."""
    loss = np.zeros(len(paths.first))
    find_losses(paths, tag_costs, m, loss)
    return loss


@kernel
def find_losses(paths: Paths, tag_costs: Floats, m: int, loss: Floats) -> None:
    """Adds to `loss`."""
    for c in range(len(loss)):
        for t in range(paths.size[c]):
            tag = paths.right[paths.right_at[c] + t] // m
            if paths.found[paths.found_at[c] + t] // m != tag:
                loss[c] += tag_costs[tag]


@kernel
def most_values(x: Features, paths: Paths, observed: bool, c: int) -> int:
    """How long a row can be: two of each feature of a token or pair that differs, and four a token for the rest."""
    most, before = 4 * paths.size[c] + 4, False
    for t in range(paths.size[c]):
        differs = paths.found[paths.found_at[c] + t] != paths.right[paths.right_at[c] + t]
        if differs:
            most += 2 * n_values(x, paths.first[c] + t)
        if observed and (differs or before):
            most += 2 * n_values(x, paths.first[c] + t)
        before = differs
    return int(most)


@kernel
def sum_of_most(x: Features, paths: Paths, observed: bool) -> int:
    most = 0
    for c in range(len(paths.first)):
        most += most_values(x, paths, observed, c)
    return most


def n_values(x: Features, row: int) -> int:
    """How many features a row stores."""
    return x.values.shape[1] if isinstance(x, DenseRows) else int(x.indptr[row + 1] - x.indptr[row])


@specialise(n_values)
def _n_values(x: Any, row: Any) -> Any:  # noqa: ARG001
    def dense(x: Any, row: Any) -> Any:  # noqa: ARG001
        return x.values.shape[1]

    def csr(x: Any, row: Any) -> Any:
        return x.indptr[row + 1] - x.indptr[row]

    return dense if is_dense(x) else csr


def feature_at(x: Features, row: int, p: int) -> tuple[int, float]:
    """The column and the value of the feature that a row stores at place p."""
    if isinstance(x, DenseRows):
        return p, float(x.values[row, p])
    return int(x.indices[x.indptr[row] + p]), float(x.values[x.indptr[row] + p])


@specialise(feature_at)
def _feature_at(x: Any, row: Any, p: Any) -> Any:  # noqa: ARG001
    def dense(x: Any, row: Any, p: Any) -> Any:
        return np.int64(p), np.float64(x.values[row, p])

    def csr(x: Any, row: Any, p: Any) -> Any:
        return np.int64(x.indices[x.indptr[row] + p]), np.float64(x.values[x.indptr[row] + p])

    return dense if is_dense(x) else csr


@kernel
def fill_rows(x: Features, paths: Paths, scale: Floats, shape: Shape, indptr: Ints, indices: Any, values: Any) -> None:
    """Rows with ascending columns, each named once, and no zeros; fills indptr, indices and values."""
    room = 0
    for c in range(len(scale)):
        room = max(room, most_values(x, paths, shape.n_observed > 0, c))
    columns, parts = np.empty(room, np.int64), np.empty(room)
    for c in range(len(scale)):
        first, n = paths.first[c], paths.size[c]
        right = paths.right[paths.right_at[c] : paths.right_at[c] + n]
        found = paths.found[paths.found_at[c] : paths.found_at[c] + n]
        size = add_emissions(x, first, right, found, shape.n_states, columns, parts)
        at = write_merged(columns[:size], parts[:size], scale[c], indptr[c], indices, values)
        size = add_pairs(x, first, right, found, shape, columns, parts)
        indptr[c + 1] = write_merged(columns[:size], parts[:size], scale[c], at, indices, values)


def add_emissions(
    x: Features, first: int, right: Int32s, found: Int32s, n_states: int, columns: Ints, parts: Floats
) -> int:
    """+features at the right state and −features at the one found, for tokens where they differ; returns how many.

    Those of a token come with rising columns, which spares work in sorting.
    """
    size = 0
    for t in np.flatnonzero(right != found):
        row = first + t
        if isinstance(x, DenseRows):
            which = np.flatnonzero(x.values[row])
            own = x.values[row][which]
        else:
            at = slice(x.indptr[row], x.indptr[row + 1])
            which, own = x.indices[at].astype(np.int64), x.values[at]
        for tag, sign in ((right[t], 1.0), (found[t], -1.0)):
            columns[size : size + len(which)] = which * n_states + tag
            parts[size : size + len(which)] = sign * own
            size += len(which)
    return size


@specialise(add_emissions)
def _add_emissions(x: Any, first: Any, right: Any, found: Any, n_states: Any, columns: Any, parts: Any) -> Any:  # noqa: ARG001
    def dense(x: Any, first: Any, right: Any, found: Any, n_states: Any, columns: Any, parts: Any) -> Any:
        size = 0
        for t in range(len(right)):
            if right[t] != found[t]:
                for j in range(x.values.shape[1]):
                    if x.values[first + t, j] != 0.0:
                        columns[size], parts[size] = j * n_states + right[t], x.values[first + t, j]
                        columns[size + 1], parts[size + 1] = j * n_states + found[t], -x.values[first + t, j]
                        size += 2
        return size

    def csr(x: Any, first: Any, right: Any, found: Any, n_states: Any, columns: Any, parts: Any) -> Any:
        size = 0
        for t in range(len(right)):
            if right[t] != found[t]:
                sign = 1.0 if right[t] < found[t] else -1.0
                low, high = min(right[t], found[t]), max(right[t], found[t])
                for p in range(x.indptr[first + t], x.indptr[first + t + 1]):
                    column, value = np.int64(x.indices[p]) * n_states, sign * x.values[p]
                    columns[size], parts[size] = column + low, value
                    columns[size + 1], parts[size + 1] = column + high, -value
                    size += 2
        return size

    return dense if is_dense(x) else csr


@inner_kernel
def add_pairs(x: Features, first: int, right: Int32s, found: Int32s, shape: Shape, columns: Ints, parts: Floats) -> int:
    """±1 at pairs, triples, the start and the end of both paths where they differ, ±features at pairs; how many."""
    n, k, size, base = len(right), shape.n_states, 0, shape.n_states * shape.n_features
    for t in range(1, n):
        if right[t] != found[t] or right[t - 1] != found[t - 1]:
            own, other = right[t - 1] * k + right[t], found[t - 1] * k + found[t]
            if shape.transitions:
                size = add_two(base + own, base + other, 1.0, size, columns, parts)
            for p in range(n_values(x, first + t) if shape.n_observed else 0):
                column, value = feature_at(x, first + t, p)
                if column < shape.n_observed and value != 0.0:
                    place = base + k * k * (1 + column)
                    size = add_two(place + own, place + other, value, size, columns, parts)
    base += k * k * (int(shape.transitions) + shape.n_observed)
    if shape.triples:
        for t in range(2, n):
            if right[t] != found[t] or right[t - 1] != found[t - 1] or right[t - 2] != found[t - 2]:
                own = (right[t - 1] * k + right[t - 2]) * k + right[t]
                other = (found[t - 1] * k + found[t - 2]) * k + found[t]
                size = add_two(base + own, base + other, 1.0, size, columns, parts)
        base += k * k * k
    if shape.boundaries:
        for t in (0, n - 1):
            if right[t] != found[t]:
                size = add_two(base + right[t], base + found[t], 1.0, size, columns, parts)
            base += k
    return size


@inner_bare_kernel
def add_two(right: int, found: int, value: float, size: int, columns: Ints, parts: Floats) -> int:
    """+value at one column and −value at another, at place `size`; returns the next place."""
    columns[size], parts[size] = right, value
    columns[size + 1], parts[size + 1] = found, -value
    return size + 2


@inner_kernel
def write_merged(columns: Ints, parts: Floats, scale: float, at: int, indices: Any, values: Any) -> int:
    """Sort by column, add up what names the same one, and write what is not 0 from place `at` on; returns the end.

    Changes `columns` and `parts`.
    """
    columns_there, parts_there = np.empty_like(columns), np.empty_like(parts)
    if sort_columns(columns, parts, columns_there, parts_there, np.empty(DIGITS, np.int64)):
        columns, parts = columns_there, parts_there
    k = 0
    while k < len(columns):
        column, total = columns[k], 0.0
        while k < len(columns) and columns[k] == column:
            total += parts[k]
            k += 1
        if total != 0.0:
            indices[at], values[at] = column, scale * total
            at += 1
    return at


@bare_kernel
def sort_columns(columns: Ints, parts: Floats, columns_there: Ints, parts_there: Floats, start: Ints) -> bool:
    """Sort both arrays by column, stably, digit by digit; the other arrays are scratch, `start` of `DIGITS` entries.

    Returns whether the result is in `…_there`. np.argsort does the same, and takes a second to compile.
    """
    there, shift, largest = False, 0, 0
    for k in range(len(columns)):
        largest = max(largest, columns[k])
    while largest >> shift > 0:
        start[:] = 0
        for k in range(len(columns)):
            start[(columns[k] >> shift) & (DIGITS - 1)] += 1
        total = 0
        for digit in range(DIGITS):
            total, start[digit] = total + start[digit], total
        for k in range(len(columns)):
            digit = (columns[k] >> shift) & (DIGITS - 1)
            columns_there[start[digit]], parts_there[start[digit]] = columns[k], parts[k]
            start[digit] += 1
        columns, parts, columns_there, parts_there = columns_there, parts_there, columns, parts
        there, shift = not there, shift + DIGIT_BITS
    return there
