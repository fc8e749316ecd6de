"""Sets of swapped pairs of the documents of a query, and sums over them, in O(m log m).

A pair (i, j) has a better document i and a worse one j: r_i > r_j. It weighs g_ij = G(r_i) − G(r_j), or 1. A set of
pairs is written as two whole numbers a document, its place and its reach:

    S = { (i, j) :  r_i > r_j,  place_j < reach_i }

Any numbers stand for some set. With the place of j in the order of falling scores, and reach_i the number of documents
with s_j > s_i − 1, S has the pairs that w violates: no other set has a larger

    Σ_S g_ij (1 − s_i + s_j)  =  Σ_{(i, j)} g_ij max(0, 1 − s_i + s_j)

Sums over S are sums over dominated points, which a Fenwick tree over grades adds up while documents are visited in the
order of their places.
"""

from typing import NamedTuple

import numpy as np

from distdual.kernels.jit import inner_kernel, kernel
from distdual.kernels.rows import Floats, Int32s, Ints


class Grades(NamedTuple):
    """The relevance of documents, query after query."""

    bounds: Ints  # (n + 1,) where each query begins, and the end of the last
    rank: Int32s  # (n_documents,) the number of smaller distinct relevances within the query
    gain: Floats  # (n_documents,) G(r) less that of the worst document of the query
    counted: bool  # whether every pair weighs 1, whatever the gains


@kernel
def find_ranks(relevance: Floats, bounds: Ints, rank: Int32s) -> None:
    """The number of smaller distinct values within the query; fills `rank`."""
    for q in range(len(bounds) - 1):
        own, out = relevance[bounds[q] : bounds[q + 1]], rank[bounds[q] : bounds[q + 1]]
        order, found = np.argsort(own), 0
        for k in range(len(order)):
            if k > 0 and own[order[k]] != own[order[k - 1]]:
                found += 1
            out[order[k]] = found


@kernel
def find_totals(grades: Grades, total: Floats, size: Floats) -> None:
    """Σ g_ij over all pairs of each query, and Σ (G_i + G_j), by which sums of them are rounded; fills both."""
    for q in range(len(total)):
        begin, end = grades.bounds[q], grades.bounds[q + 1]
        rank, gain = grades.rank[begin:end], grades.gain[begin:end]
        n, n_ranks = end - begin, 0
        for k in range(n):
            n_ranks = max(n_ranks, rank[k] + 1)
        number, sums = np.zeros(n_ranks), np.zeros(n_ranks)
        for k in range(n):
            number[rank[k]] += 1.0
            sums[rank[k]] += gain[k]
        total[q] = size[q] = below = gained = 0.0
        for r in range(n_ranks):
            if grades.counted:
                total[q] += number[r] * below
                size[q] = total[q]
            else:
                total[q] += sums[r] * below - number[r] * gained
                size[q] += sums[r] * below + number[r] * gained
            below += number[r]
            gained += sums[r]


@kernel
def find_violated(scores: Floats, bounds: Ints, keys: Int32s) -> None:
    """place and reach of every document, the places of a query before its reaches; fills `keys`.

    A query in which a score is NaN has 0 everywhere.
    """
    for q in range(len(bounds) - 1):
        begin, n = bounds[q], bounds[q + 1] - bounds[q]
        s, place, reach = scores[begin : begin + n], keys[2 * begin :][:n], keys[2 * begin + n :][:n]
        place[:], reach[:] = 0, 0
        if np.isnan(s).any():
            continue
        order = np.argsort(-s)
        at = 0
        for k in range(n):
            place[order[k]] = k
            edge = s[order[k]] - 1.0
            while at < n and s[order[at]] > edge:
                at += 1
            reach[order[k]] = at


@kernel
def sum_pairs(
    grades: Grades, chosen: Ints, key_indptr: Ints, keys: Int32s, at: Ints, net: Floats, total: Floats
) -> None:
    """net_d = Σ_{(d, j) of S} g_dj − Σ_{(i, d) of S} g_id for each document d of the chosen queries, and Σ_S g_ij.

    The documents of chosen_k are at_k …; its set is key k, of places and reaches from 0 to the number of documents.
    """
    for k in range(len(chosen)):
        begin, end = grades.bounds[chosen[k]], grades.bounds[chosen[k] + 1]
        n = end - begin
        key = keys[key_indptr[k] : key_indptr[k] + 2 * n]
        rank, gain = grades.rank[begin:end], grades.gain[begin:end]
        total[k] = sum_query(rank, gain, grades.counted, key[:n], key[n:], net[at[k] : at[k] + n])


@inner_kernel
def sum_query(rank: Int32s, gain: Floats, counted: bool, place: Int32s, reach: Int32s, net: Floats) -> float:
    """The same for one query; returns Σ_S g_ij."""
    n, n_ranks, total = len(rank), 0, 0.0
    for d in range(n):
        n_ranks = max(n_ranks, rank[d] + 1)
        net[d] = 0.0
    by_place, by_reach = sorted_by(place, n), sorted_by(reach, n)
    number, sums = np.zeros(n_ranks + 1), np.zeros(n_ranks + 1)
    inserted = 0
    for k in range(
        n
    ):  # better documents, in the order of rising reach: worse ones with a smaller place are in the tree
        i = by_reach[k]
        while inserted < n and place[by_place[inserted]] < reach[i]:
            j = by_place[inserted]
            insert(number, sums, rank[j], gain[j])
            inserted += 1
        there, gained = prefix(number, sums, rank[i])
        above = there if counted else there * gain[i] - gained
        net[i] += above
        total += above
    number[:], sums[:] = 0.0, 0.0
    inserted = n - 1
    for k in range(n - 1, -1, -1):  # worse documents, in the order of falling place: better ones with a larger reach
        j = by_place[k]
        while inserted >= 0 and reach[by_reach[inserted]] > place[j]:
            i = by_reach[inserted]
            insert(number, sums, n_ranks - 1 - rank[i], gain[i])
            inserted -= 1
        there, gained = prefix(number, sums, n_ranks - 1 - rank[j])
        net[j] -= there if counted else gained - there * gain[j]
    return total


@inner_kernel
def sorted_by(values: Int32s, most: int) -> Ints:
    """The order of rising values from 0 to `most`, by counting them."""
    ends = np.zeros(most + 2, np.int64)
    for value in values:
        ends[value + 1] += 1
    for v in range(1, most + 2):
        ends[v] += ends[v - 1]
    order = np.empty(len(values), np.int64)
    for d in range(len(values)):
        order[ends[values[d]]] = d
        ends[values[d]] += 1
    return order


@kernel
def insert(number: Floats, sums: Floats, rank: int, gain: float) -> None:
    """Add a document to the tree."""
    at = rank + 1
    while at < len(number):
        number[at] += 1.0
        sums[at] += gain
        at += at & -at


@kernel
def prefix(number: Floats, sums: Floats, rank: int) -> tuple[float, float]:
    """How many documents of a smaller rank are in the tree, and the sum of their gains."""
    there = gained = 0.0
    at = rank
    while at > 0:
        there += number[at]
        gained += sums[at]
        at -= at & -at
    return there, gained
