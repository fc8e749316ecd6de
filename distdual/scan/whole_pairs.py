"""What a worker does with one shard for pairs of a positive and a negative: scores, counts of pairs, its part of rows.

`table` has a line for each of the weights that were published together: w, and after it what else the phase needs.
"""

import time
from typing import NamedTuple

import numpy as np

from distdual.kernels.rows import Floats, Int32s, product
from distdual.problems.multivariate.problem import Multivariate
from distdual.scan.shard_reader import Loaded, Openable
from distdual.scan.whole_data import Cost, Participants, ShardRows, ShardScores, at_hand, finite_scores
from distdual.scan.whole_positives import keep_positives, positives_at_hand


class PairCounts(NamedTuple):
    """How the negatives of a shard stand among the positives of all shards, for each of the weights."""

    places: list[Int32s]  # numbers of positives with s_i < s_j + 1, above 0, in rising order
    numbers: list[Int32s]  # of negatives j with that number
    score_sum: Floats  # (n_weight_vectors,) Σ_j s_j · that number
    rows: Floats  # (n_weight_vectors, n_weights) −Σ_j features_j · that number
    cost: Cost


def score_positives(
    given: Openable | Loaded, problem: Multivariate, table: Floats, shard: int, wanted: Participants
) -> ShardScores:
    """The scores of positives."""
    with positives_at_hand(given, problem, shard, wanted) as (own, loaded):
        begin = time.perf_counter()
        scores = np.stack([finite_scores(problem, w, own.rows) for w in table])
        return ShardScores(scores, None, own.n, own.magnitude, loaded.intact, Cost.of(loaded, begin, scores))


def count_pairs(
    given: Openable | Loaded, problem: Multivariate, table: Floats, shard: int, wanted: Participants
) -> PairCounts:
    """The pairs of this shard's negatives with positives of all shards, whose scores follow w in rising order."""
    with at_hand(given, problem, shard, check=wanted.check) as loaded:
        begin, found = time.perf_counter(), loaded.shard
        keep_positives(given, problem, shard, wanted, loaded)
        negative = wanted.of(found) & (found.y != 1)
        places, numbers, sums = list[Int32s](), list[Int32s](), np.zeros(len(table))
        rows, weight = np.zeros((len(table), problem.n_weights)), np.zeros(found.n_examples)
        for k, line in enumerate(table):
            w, positive_scores = np.split(line, [problem.n_weights])
            scores = finite_scores(problem, w, found)[negative]
            below = np.searchsorted(positive_scores, scores + 1.0)  # positives with s_i < s_j + 1
            counts = np.bincount(below, minlength=1)
            places.append(np.flatnonzero(counts[1:]).astype(np.int32) + np.int32(1))
            numbers.append(counts[places[-1]].astype(np.int32))
            weight[negative] = -below
            sums[k] = product(below.astype(np.float64), scores)
            rows[k] = problem.sum_shard(found, weight)
        return PairCounts(places, numbers, sums, rows, Cost.of(loaded, begin, *places, *numbers, sums, rows))


def sum_positives(
    given: Openable | Loaded, problem: Multivariate, table: Floats, shard: int, weights: Floats, wanted: Participants
) -> ShardRows:
    """Σ weight_i features_i over positives, for each row of weights."""
    del table
    with positives_at_hand(given, problem, shard, wanted) as (own, loaded):
        begin = time.perf_counter()
        rows = np.stack([problem.sum_shard(own.rows, weight) for weight in weights])
        return ShardRows(rows, Cost.of(loaded, begin, weights, rows))
