"""Slack groups: examples that share a slack, and the constraint of such a group.

    Σ_{i of G} cost_i ξ_i(w) = max over choices of  Σ_i cost_i (l_ij − ⟨w, x_ij⟩)

A group's row and margin are the sums over its members' offenders, weighted by cost; members without a violated one
add nothing. Its slack costs C. The optimum is the same for every partition (Joachims et al., Theorem 1, applied to each
group). Sums stay in float64: rounded ones would not be constraints of the problem.
"""

from typing import NamedTuple

import numpy as np

from distdual.data.shard import Shard, join_rows
from distdual.kernels.jit import bare_kernel
from distdual.kernels.row_sums import add_runs, smaller, sum_rows
from distdual.kernels.rows import (
    CsrRows,
    DenseRows,
    Features,
    Floats,
    Ints,
    as_csr,
    as_dense,
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


def group_rows(problem: Problem, shard: Shard, members: Members) -> tuple[Floats, Features]:
    """Return the margins and rows of groups, built CHUNK examples at a time."""
    n = len(members.indptr) - 1
    margin, parts = np.zeros(n), []
    for begin, end in member_ranges(members.indptr, CHUNK):
        part = members.indptr[begin : end + 1]
        if part[-1] - part[0] <= CHUNK:
            built = build_members(problem, shard, members, int(part[0]), int(part[-1]))
            add_margins(built.margin, built.cost, part - part[0], margin[begin:end])
            parts.append(sum_rows(built.rows, built.cost, part - part[0], problem.n_weights))
        else:
            total = np.zeros((1, problem.n_weights))
            for at in range(int(part[0]), int(part[-1]), CHUNK):
                built = build_members(problem, shard, members, at, min(at + CHUNK, int(part[-1])))
                whole = np.array([0, len(built.margin)])
                add_margins(built.margin, built.cost, whole, margin[begin:end])
                add_runs(built.rows, built.cost, whole, total)
            parts.append(smaller(DenseRows(total), problem.n_weights))
    return margin, join_smaller(parts, problem.n_weights)


def build_members(problem: Problem, shard: Shard, members: Members, begin: int, end: int) -> Constraints:
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


def member_ranges(indptr: Ints, most: int) -> list[tuple[int, int]]:
    """Split rows into ranges of at most `most` members; a row that has more is a range of its own."""
    found, begin = [], 0
    while begin < len(indptr) - 1:
        end = int(np.searchsorted(indptr, indptr[begin] + most, side="right")) - 1
        found.append((begin, max(end, begin + 1)))
        begin = found[-1][1]
    return found


def join_smaller(parts: list[Features], n_weights: int) -> Features:
    """Stack all parts, in the format that is smaller for the whole."""
    if not parts:
        return CsrRows(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0))
    if len({type(part) for part in parts}) == 1:
        return join_rows(parts)
    n_values = sum(int(np.count_nonzero(part.values)) for part in parts)
    n = sum(part.n_rows for part in parts)
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
