"""NDCG, MAP, MRR and the accuracy over pairs, as sums over queries.

Documents with equal scores share a rank as if in random order for pairs, and in the order of the data elsewhere. A
measure leaves out the queries in which it is not defined: those without a relevant document, that is one whose label is
above 0, or without a pair of documents to order.
"""

import numpy as np

from distdual.kernels.jit import inner_kernel, kernel
from distdual.kernels.rows import Floats, Int32s, Ints
from distdual.problems.ranking.swapped_pairs import find_ranks, insert, prefix

NDCG, MAP, MRR, PAIRS = range(4)


def ranking_sums(relevance: Floats, scores: Floats, bounds: Ints, cutoff: int) -> dict[str, float]:
    """Sums of the measures, each with the number of queries under "n:"."""
    rank = np.empty(len(relevance), dtype=np.int32)
    find_ranks(relevance, bounds, rank)
    sums = np.zeros((4, 2))
    add_measures(relevance, rank, scores, bounds, cutoff, sums)
    names = (f"ndcg@{cutoff}", "map", "mrr", "pairwise_accuracy")
    found = dict(zip(names, sums[:, 0].tolist(), strict=True))
    return found | {f"n:{name}": float(n) for name, n in zip(names, sums[:, 1], strict=True)}


def pair_sums(relevance: Floats, scores: Floats) -> tuple[float, float]:
    """How many pairs of documents of one query are in the right order, and how many there are."""
    if not len(relevance):
        return 0.0, 0.0
    rank = np.empty(len(relevance), dtype=np.int32)
    find_ranks(relevance, np.array([0, len(relevance)]), rank)
    right, pairs = ordered_pairs(rank, scores, np.argsort(-scores, kind="stable"))
    return float(right), float(pairs)


@kernel
def add_measures(relevance: Floats, rank: Int32s, scores: Floats, bounds: Ints, cutoff: int, sums: Floats) -> None:
    """Adds each measure and 1 for each query that has it to `sums`."""
    for q in range(len(bounds) - 1):
        begin, end = bounds[q], bounds[q + 1]
        own, order = relevance[begin:end], np.argsort(-scores[begin:end], kind="mergesort")
        relevant = 0
        for r in own:
            relevant += r > 0.0
        if relevant:
            ideal = own[np.argsort(-own, kind="mergesort")]
            most = min(cutoff, len(own))
            sums[NDCG, 0] += discounted(own[order], most, ideal[0]) / discounted(ideal, most, ideal[0])
            precision, first, hits = 0.0, 0, 0
            for k in range(len(order)):
                if own[order[k]] > 0.0:
                    hits += 1
                    precision += hits / (k + 1.0)
                    first = k + 1 if first == 0 else first
            sums[MAP, 0] += precision / relevant
            sums[MRR, 0] += 1.0 / first
            for measure in (NDCG, MAP, MRR):
                sums[measure, 1] += 1.0
        right, pairs = ordered_pairs(rank[begin:end], scores[begin:end], order)
        if pairs:
            sums[PAIRS, 0] += right / pairs
            sums[PAIRS, 1] += 1.0


@inner_kernel
def discounted(relevance: Floats, most: int, top: float) -> float:
    """2^−top Σ_k (2^r_k − 1) / log2(k + 1) over the first documents, k from 1; labels below 0 count as 0."""
    total = 0.0
    for k in range(most):
        total += (2.0 ** (max(0.0, relevance[k]) - top) - 2.0**-top) / np.log2(k + 2.0)
    return total


@kernel
def ordered_pairs(rank: Int32s, scores: Floats, order: Ints) -> tuple[float, float]:
    """How many pairs of documents have their scores in the right order, a tie counting half, and how many there are."""
    n, n_ranks = len(rank), rank.max() + 1
    number, sums = np.zeros(n_ranks + 1), np.zeros(n_ranks + 1)
    right = pairs = 0.0
    k = n - 1
    while k >= 0:  # from the lowest score up; those with equal scores together
        first = k
        while first > 0 and scores[order[first - 1]] == scores[order[k]]:
            first -= 1
        for d in order[first : k + 1]:
            below, _ = prefix(number, sums, rank[d])
            right += 0.5 * below
        for d in order[first : k + 1]:
            insert(number, sums, rank[d], 0.0)
        for d in order[first : k + 1]:
            below, _ = prefix(number, sums, rank[d])
            right += 0.5 * below
        k = first - 1
    for d in range(n):
        below, _ = prefix(number, sums, rank[d])
        pairs += below
    return right, pairs
