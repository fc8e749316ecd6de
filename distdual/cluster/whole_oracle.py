"""The two phases of an oracle that needs all examples at once: scores of all shards, then sums of their rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from distdual.cluster.base import Executor
from distdual.kernels.rows import Bools, Floats
from distdual.problems.base import Magnitude
from distdual.problems.multivariate.problem import Multivariate, Offender
from distdual.scan.cv_folds import Fold
from distdual.scan.whole_data import Cost, ShardScores, score_whole_shard, sum_whole_shard


@dataclass(frozen=True, slots=True)
class WholeOracle:
    """Runs on the executor, at the weights published last; `fold` names examples to leave out."""

    executor: Executor
    problem: Multivariate
    n_shards: int
    fold: Fold | None = None

    def scores(self, weights: Floats | None = None) -> "WholeScores":
        """The scores of all examples at the published weights, or at each of the given ones."""
        shards = range(self.n_shards)
        told = ([weights] * len(shards), [self.fold] * len(shards))
        return WholeScores(list(self.executor.map_shards(score_whole_shard, shards, *told)))

    def rows(self, offenders: Sequence[Offender], found: "WholeScores") -> tuple[Floats, list[Cost]]:
        """(len(offenders), n_weights) the row of each, summed over shards in their order."""
        ends = np.cumsum([len(each.positive) for each in found.shards])
        table = np.stack([offender.coefficient for offender in offenders])
        parts = np.split(table, ends[:-1], axis=1)
        shards = range(self.n_shards)
        done = list(self.executor.map_shards(sum_whole_shard, shards, parts, [self.fold] * len(shards)))
        total = np.zeros((len(offenders), self.problem.n_weights))
        for each in done:
            total += each.rows
        return total, [each.cost for each in done]

    def offender(self, found: "WholeScores", which: int = 0) -> Offender:
        return self.problem.find_offender(found.row(which), found.positive)


@dataclass(frozen=True, slots=True)
class WholeScores:
    shards: list[ShardScores]

    @property
    def n(self) -> int:
        return sum(len(each.positive) for each in self.shards)

    @property
    def positive(self) -> Bools:
        return np.concatenate([each.positive for each in self.shards])

    def row(self, which: int) -> Floats:
        """The scores of all examples at one of the weights."""
        return np.concatenate([each.scores[which] for each in self.shards])

    def magnitude(self, problem: Multivariate) -> Magnitude:
        return problem.whole_magnitude(reduce(Magnitude.joined, (each.magnitude for each in self.shards)), self.n)
