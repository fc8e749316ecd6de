"""The constraints of a loss over the whole data set that some weights violate most, found by workers.

A pair of examples is wrong by their difference alone, so negatives are counted where they are: workers send the scores
of positives, get those of all, sorted, and send how many of their negatives lie below how many positives. The other
losses need the order of all examples: workers send all scores.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from distdual.cluster.base import Executor
from distdual.kernels.rows import Floats, product
from distdual.problems.base import Magnitude
from distdual.problems.multivariate.problem import Multivariate
from distdual.scan.whole_data import Cost, Participants, ShardScores, score_whole_shard, sum_whole_shard
from distdual.scan.whole_pairs import PairCounts, count_pairs, score_positives, sum_positives

EVERYTHING = Participants()


class FoundRows(NamedTuple):
    rows: Floats  # (n_weight_vectors, n_weights)
    costs: list[list[Cost]]  # of each phase, those of all shards


class WholeFound(NamedTuple):
    """The offender at each of some weights."""

    slack: Floats  # (n_weight_vectors,) in units of C n
    margin: Floats
    n: int  # examples that take part
    magnitude: Magnitude
    intact: list[bool]  # of each shard
    costs: list[list[Cost]]
    rows: Callable[[], FoundRows]  # takes one more phase


@dataclass(frozen=True, slots=True)
class WholeOracle(ABC):
    executor: Executor
    problem: Multivariate
    n_shards: int
    publish: Callable[[Floats], Any]
    """Sends a table to the workers."""

    wanted: Participants = EVERYTHING
    keep: bool = True
    """Whether shards may stay in memory."""

    @abstractmethod
    def find(self, weights: Floats) -> WholeFound:
        """The offenders at each line of `weights`."""

    def _map(self, function: Any, *parts: Sequence[Any]) -> Iterator[Any]:
        shards = range(self.n_shards)
        return self.executor.map_shards(function, shards, *parts, [self.wanted] * len(shards), keep=self.keep)

    def _summed(self, function: Any, parts: Sequence[Any], start: Floats) -> FoundRows:
        """The rows of all shards, added to `start` in their order."""
        total, costs = start.copy(), list[Cost]()
        for each in self._map(function, parts):
            total += each.rows
            costs.append(each.cost)
        return FoundRows(total, [costs])

    def _found(
        self, shards: list[ShardScores], slack: Floats, margin: Floats, more: list[list[Cost]], rows: Any
    ) -> WholeFound:
        size = reduce(Magnitude.joined, (each.magnitude for each in shards))
        n = sum(each.n for each in shards)
        costs = [[each.cost for each in shards], *more]
        intact = [each.intact for each in shards]
        return WholeFound(slack, margin, n, self.problem.whole_magnitude(size, n), intact, costs, rows)


class ScoreOracle(WholeOracle):
    """Sorts the scores of all examples here."""

    def find(self, weights: Floats) -> WholeFound:
        self.publish(weights)
        shards: list[ShardScores] = list(self._map(score_whole_shard))
        positive = np.concatenate([each.positive for each in shards])
        scores = np.concatenate([each.scores for each in shards], axis=1)
        offenders = [self.problem.find_offender(line, positive) for line in scores]
        slack, margin = (np.array([getattr(each, name) for each in offenders]) for name in ("slack", "margin"))
        ends = np.cumsum([each.n for each in shards])[:-1]

        def rows() -> FoundRows:
            signs = np.stack([offender.sign for offender in offenders])
            return self._summed(sum_whole_shard, np.split(signs, ends, axis=1), np.zeros(weights.shape))

        return self._found(shards, slack, margin, [], rows)


class PairOracle(WholeOracle):
    """Sorts the scores of positives here; workers count their negatives."""

    def find(self, weights: Floats) -> WholeFound:
        self.publish(weights)
        shards: list[ShardScores] = list(self._map(score_positives))
        scores = np.concatenate([each.scores for each in shards], axis=1)
        n, n_positive = sum(each.n for each in shards), scores.shape[1]
        self.problem.check_classes(n_positive, n)
        order = np.argsort(scores, axis=1, kind="stable")
        rising = np.take_along_axis(scores, order, axis=1)
        self.publish(np.hstack([weights, rising]))
        above, score_sum = np.zeros((len(weights), n_positive)), np.zeros(len(weights))
        total, costs = np.zeros((len(weights), self.problem.n_weights)), list[Cost]()
        for each in self._map(count_pairs):
            add_counts(above, each)
            score_sum += each.score_sum
            total += each.rows
            costs.append(each.cost)
        above = np.cumsum(above[:, ::-1], axis=1)[:, ::-1]  # negatives with s_j > s_i − 1, for each positive i
        scale = n / (float(n_positive) * (n - n_positive))
        pairs = above.sum(axis=1)
        inner = [product(own, line) for own, line in zip(above, rising, strict=True)]
        slack = np.maximum(scale * (pairs - np.array(inner) + score_sum), 0.0)
        ends = np.cumsum([each.scores.shape[1] for each in shards])[:-1]

        def rows() -> FoundRows:
            weight = np.empty_like(above)
            np.put_along_axis(weight, order, above, axis=1)
            found = self._summed(sum_positives, np.split(weight, ends, axis=1), total)
            return found._replace(rows=scale * found.rows)

        return self._found(shards, slack, scale * pairs, [costs], rows)


def add_counts(table: Floats, found: PairCounts) -> None:
    """Add a shard's numbers of negatives, each at the last of the positives that are below it."""
    for line, places, numbers in zip(table, found.places, found.numbers, strict=True):
        line[places - 1] += numbers


def oracle_of(problem: Multivariate) -> type[WholeOracle]:
    return PairOracle if problem.loss == "auc" else ScoreOracle
