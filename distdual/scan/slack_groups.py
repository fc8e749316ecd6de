"""Slack groups: examples that share a slack, and the constraint of such a group.

    Σ_{i of G} cost_i ξ_i(w) = max over choices of  Σ_i cost_i (l_ij − ⟨w, x_ij⟩)

A group's row and margin are the sums over its members' offenders, weighted by cost; members without a violated one
add nothing. Its slack costs C. The optimum is the same for every partition (Joachims et al., Theorem 1, applied to each
group). Sums stay in float64: rounded ones would not be constraints of the problem.
"""

from typing import NamedTuple

import numpy as np

from distdual.data.shard import Shard, join_rows
from distdual.kernels.jit import bare_kernel, kernel
from distdual.kernels.rows import (
    CsrRows,
    DenseRows,
    Features,
    Floats,
    Ints,
    OuterRows,
    Rows,
    add,
    as_csr,
    as_dense,
    n_rows,
)
from distdual.problems.base import Constraints, Keys, Problem
from distdual.problems.constraint_hash import Identities, identities
from distdual.scan.slack import Slack
from distdual.schema import below

CHUNK = 4096  # examples whose rows are built at a time


def groups_of(example: Ints, slack: Slack, first: Ints) -> Ints:
    """Return the group of each example: the number of its first member. `first` holds each shard's first example."""
    if slack.is_all:
        return np.zeros_like(example)
    begin = first[np.searchsorted(first, example, side="right") - 1]
    return begin + slack.first_member(example - begin)


def runs_of(group: Ints) -> tuple[Ints, Ints]:
    """The groups of an ascending list and the start of each."""
    starts = np.flatnonzero(np.append(True, group[1:] != group[:-1])[: len(group)])
    return group[starts], np.append(starts, len(group))


class Members(NamedTuple):
    """The examples of a shard that each group's row combines, and the keys of their constraints."""

    indptr: Ints  # (n_rows + 1,) into the others
    example: Ints  # within the shard, ascending within a row
    keys: Keys

    def take(self, rows: Ints) -> "Members":
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        at = np.repeat(self.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        return Members(indptr, self.example[at], self.keys.take(at))


def group_members(chosen: Ints, keys: Keys, slack: Slack) -> Members:
    """Group the chosen examples of a shard, given in ascending order; empty groups are left out."""
    return Members(runs_of(slack.first_member(chosen))[1], chosen, keys)


def fingerprints(first: int, members: Members, slack: Slack) -> tuple[Ints, Keys]:
    """Return the group of each row and, as its key, a 64-bit hash of its members and their constraints."""
    n = len(members.indptr) - 1
    folded = np.empty(n, dtype=np.uint64)
    fold(identities(first + members.example, members.keys), members.indptr, folded)
    group = first + slack.first_member(members.example[members.indptr[:-1]])
    return group, Keys(np.arange(0, 2 * n + 1, 2), folded.view(np.int32))


def sum_members(problem: Problem, shard: Shard, members: Members) -> tuple[Floats, Features]:
    """Return the margins and rows of groups, built CHUNK examples at a time."""
    n = len(members.indptr) - 1
    margin, parts = np.zeros(n), []
    for begin, end in runs(members.indptr, CHUNK):
        part = members.indptr[begin : end + 1]
        if part[-1] - part[0] <= CHUNK:
            built = build(problem, shard, members, int(part[0]), int(part[-1]))
            add_margins(built.margin, built.cost, part - part[0], margin[begin:end])
            parts.append(sum_rows(built.rows, built.cost, part - part[0], problem.n_weights))
        else:
            total = np.zeros((1, problem.n_weights))
            for at in range(int(part[0]), int(part[-1]), CHUNK):
                built = build(problem, shard, members, at, min(at + CHUNK, int(part[-1])))
                whole = np.array([0, len(built.margin)])
                add_margins(built.margin, built.cost, whole, margin[begin:end])
                add_runs(built.rows, built.cost, whole, total)
            parts.append(smaller(DenseRows(total), problem.n_weights))
    return margin, join_smaller(parts, problem.n_weights)


def build(problem: Problem, shard: Shard, members: Members, begin: int, end: int) -> Constraints:
    """Build the constraints of members begin … end − 1 from the piece of the shard that holds them."""
    chosen = members.example[begin:end]
    low, high = int(chosen.min()), int(chosen.max()) + 1
    return problem.constraints(shard.piece(low, high), chosen - low, members.keys.take(slice(begin, end)))


def build_stored(problem: Problem, shard: Shard, members: Members, begin: int, end: int) -> Constraints:
    """The same for members that come from storage, once they and their keys are checked."""
    chosen = members.example[begin:end]
    below(f"shard {shard.number}: an example of a stored constraint", chosen, shard.n_examples)
    low, high = int(chosen.min()), int(chosen.max()) + 1
    return problem.rebuilt(shard.piece(low, high), chosen - low, members.keys.take(slice(begin, end)))


def runs(indptr: Ints, most: int) -> list[tuple[int, int]]:
    """Split rows into ranges of at most `most` members; a row that has more is a range of its own."""
    found, begin = [], 0
    while begin < len(indptr) - 1:
        end = int(np.searchsorted(indptr, indptr[begin] + most, side="right")) - 1
        found.append((begin, max(end, begin + 1)))
        begin = found[-1][1]
    return found


def sum_rows(rows: Rows, weight: Floats, indptr: Ints, n_weights: int) -> Features:
    """Sum rows: row g is Σ weight_k x_k over k in indptr_g … indptr_{g + 1} − 1, dense or CSR, whichever is smaller."""
    n = len(indptr) - 1
    lengths = row_lengths(rows)
    if isinstance(rows, DenseRows) or 12 * int(lengths.sum()) >= 8 * n * n_weights:
        total = np.zeros((n, n_weights))
        add_runs(rows, weight, indptr, total)
        return smaller(DenseRows(total), n_weights)
    sparse = expand(rows)
    most = int(lengths.sum())
    out = CsrRows(np.zeros(n + 1, dtype=np.int64), np.empty(most, dtype=sparse.indices.dtype), np.empty(most))
    used = add_sparse_runs(sparse, weight, indptr, np.zeros(n_weights), np.zeros(n_weights, dtype=np.bool_), out)
    return CsrRows(out.indptr, out.indices[:used].copy(), out.values[:used].copy())


def row_lengths(rows: Rows) -> Ints:
    """Return an upper bound on the non-zero values of each row."""
    if isinstance(rows, OuterRows):
        lengths: Ints = 2 * row_lengths(rows.x)[rows.at]
        return lengths
    if isinstance(rows, DenseRows):
        return np.full(len(rows.values), rows.values.shape[1])
    return np.diff(rows.indptr)


def expand(rows: Rows) -> CsrRows:
    """Return rows in CSR form, with columns in any order."""
    if not isinstance(rows, OuterRows):
        return as_csr(rows, np.int32)
    n_weights = rows.width * (1 + int(max(rows.plus.max(initial=0), rows.minus.max(initial=0))))
    x = as_csr(rows.x, np.int32)
    lengths = np.diff(x.indptr)[rows.at]
    ends = np.cumsum(lengths)
    at = np.repeat(x.indptr[rows.at] - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)
    index_type = np.int32 if n_weights < 2**31 else np.int64
    indices, values = x.indices[at].astype(index_type), x.values[at] * np.repeat(rows.scale, lengths)
    sides = [np.repeat(side.astype(index_type) * rows.width, lengths) + indices for side in (rows.plus, rows.minus)]
    order = np.argsort(np.tile(np.repeat(np.arange(len(lengths)), lengths), 2), kind="stable")
    indptr = np.concatenate([[0], 2 * ends])
    return CsrRows(indptr, np.concatenate(sides)[order], np.concatenate([values, -values])[order])


def smaller(rows: Features, n_weights: int) -> Features:
    """Return rows as dense or CSR, whichever takes fewer bytes."""
    n_values = np.count_nonzero(rows.values) if isinstance(rows, DenseRows) else len(rows.values)
    index_type = np.int32 if n_weights < 2**31 else np.int64
    if 12 * n_values + 8 < 8 * n_rows(rows) * n_weights:
        return as_csr(rows, index_type)
    return as_dense(rows, n_weights)


def join_smaller(parts: list[Features], n_weights: int) -> Features:
    """Stack all parts, in the format that is smaller for the whole."""
    if not parts:
        return CsrRows(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0))
    if len({type(part) for part in parts}) == 1:
        return join_rows(parts)
    n_values = sum(int(np.count_nonzero(part.values)) for part in parts)
    n = sum(n_rows(part) for part in parts)
    if 12 * n_values < 8 * n * n_weights:
        return join_rows([as_csr(part, np.int32 if n_weights < 2**31 else np.int64) for part in parts])
    return join_rows([as_dense(part, n_weights) for part in parts])


@bare_kernel
def fold(ids: Identities, indptr: Ints, out: Identities) -> None:
    """Hash each run of identities, in order, into 64 bits; fills `out`."""
    for g in range(len(out)):
        state = np.uint64(indptr[g + 1] - indptr[g])
        for k in range(indptr[g], indptr[g + 1]):
            state = (state ^ ids[k]) * np.uint64(0xBF58476D1CE4E5B9)
            state ^= state >> np.uint64(29)
        out[g] = state


@bare_kernel
def add_margins(margin: Floats, weight: Floats, indptr: Ints, out: Floats) -> None:
    """out_g += Σ weight_k margin_k over the run of g.

    Sums in a local variable: else the order of summation could depend on where the arrays lie in memory.
    """
    for g in range(len(out)):
        total = 0.0
        for k in range(indptr[g], indptr[g + 1]):
            total += weight[k] * margin[k]
        out[g] += total


@bare_kernel
def add_runs(rows: Rows, weight: Floats, indptr: Ints, out: Floats) -> None:
    """out_g += Σ weight_k x_k over the run of g."""
    for g in range(len(out)):
        for k in range(indptr[g], indptr[g + 1]):
            add(rows, k, weight[k], out[g])


@kernel
def add_sparse_runs(rows: CsrRows, weight: Floats, indptr: Ints, total: Floats, touched: Floats, out: CsrRows) -> int:
    """Sum runs of rows into CSR rows with ascending columns; fills `out` and returns its number of values.

    `total` and `touched`, one entry per weight, are all zero before and after.
    """
    used = 0
    for g in range(len(indptr) - 1):
        begin = used
        for k in range(indptr[g], indptr[g + 1]):
            for j in range(rows.indptr[k], rows.indptr[k + 1]):
                column = rows.indices[j]
                total[column] += weight[k] * rows.values[j]
                if not touched[column]:
                    touched[column] = True
                    out.indices[used] = column
                    used += 1
        out.indices[begin:used].sort()
        for j in range(begin, used):
            column = out.indices[j]
            out.values[j] = total[column]
            total[column] = 0.0
            touched[column] = False
        out.indptr[g + 1] = used
    return used
