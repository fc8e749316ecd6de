"""What a worker does with one shard for a loss over all examples: scores first, then its part of a row."""

import time
from typing import NamedTuple

import numpy as np

from distdual.errors import InputError
from distdual.kernels.rows import Bools, Floats
from distdual.problems.base import Magnitude
from distdual.problems.multivariate.problem import Multivariate
from distdual.scan.cv_folds import Fold
from distdual.scan.shard_reader import Loaded, Openable, streamed


class Cost(NamedTuple):
    """What the scan of a shard took."""

    bytes_read: int = 0
    gets: int = 0
    read_seconds: float = 0.0
    compute_seconds: float = 0.0

    @staticmethod
    def of(loaded: Loaded, begin: float) -> "Cost":
        return Cost(loaded.bytes_read, loaded.gets, loaded.read_seconds, time.perf_counter() - begin)


class ShardScores(NamedTuple):
    scores: Floats  # (n_weight_vectors, n) of the examples that are not left out
    positive: Bools  # (n,)
    magnitude: Magnitude
    intact: bool
    cost: Cost


class ShardRows(NamedTuple):
    rows: Floats  # (n_rows, n_weights) this shard's part of each
    cost: Cost


def score_whole_shard(
    source: Openable, problem: Multivariate, w: Floats, shard: int, weights: Floats | None, fold: Fold | None
) -> ShardScores:
    """Scores at w, or at each of `weights`, of the examples outside a fold."""
    with streamed(source, shard, check=weights is None) as loaded:
        begin, found = time.perf_counter(), loaded.shard
        if found.cost is not None:
            raise InputError(f"shard {shard}: a {problem.kind} problem has no costs of examples; prepare without them")
        kept = kept_of(loaded, fold)
        each = [problem.shard_scores(one, found)[kept] for one in (w[np.newaxis] if weights is None else weights)]
        scores = np.stack(each)
        if not np.isfinite(scores).all():
            what = "features are NaN, infinite or too large" if weights is None else "weights or features are too large"
            raise InputError(f"shard {shard}: a score is not finite; {what}")
        return ShardScores(
            scores,
            (found.y == 1)[kept],
            problem.shard_magnitude(found),
            loaded.intact,
            Cost.of(loaded, begin),
        )


def sum_whole_shard(
    source: Openable, problem: Multivariate, w: Floats, shard: int, coefficients: Floats, fold: Fold | None
) -> ShardRows:
    """Σ c_i (features_i, bias) for each row of coefficients, one for each example outside the fold."""
    del w
    with streamed(source, shard, check=False) as loaded:
        begin, found = time.perf_counter(), loaded.shard
        kept, rows = kept_of(loaded, fold), np.empty((len(coefficients), problem.n_weights))
        for row, own in zip(rows, coefficients, strict=True):
            all_of = np.zeros(found.n_examples)
            all_of[kept] = own
            row[:] = problem.sum_shard(found, all_of)
        return ShardRows(rows, Cost.of(loaded, begin))


def kept_of(loaded: Loaded, fold: Fold | None) -> Bools:
    """Which examples of a shard are not left out."""
    first, n = loaded.shard.first, loaded.shard.n_examples
    return np.ones(n, dtype=np.bool_) if fold is None else ~fold.holds(np.arange(first, first + n))
