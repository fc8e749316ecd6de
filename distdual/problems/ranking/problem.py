"""Ranking the documents of queries: one constraint for each set S of pairs of documents that may be swapped.

    l_S = 1/Z Σ_S g_ij,   x_S = 1/Z Σ_S g_ij (features_i − features_j),   r_i > r_j for all (i, j) of S
    ξ   = 1/Z Σ_{r_i > r_j} g_ij max(0, 1 − ⟨w, features_i − features_j⟩)

    g_ij = 1                    gain = "none"
         = r_i − r_j            gain = "linear"
         = 2^r_i − 2^r_j        gain = "exponential", the gains of NDCG

Z is the weight of all pairs of the query, Σ g_ij, or 1 if normalise = false. The key of a constraint is S, two numbers
a document: see swapped_pairs.py. The offender is found by sorting the scores, in O(m log m) for m documents.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.config import check_choice
from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard, take_runs
from distdual.errors import InputError
from distdual.kernels.rounding import MARGIN, gamma, longest_row
from distdual.kernels.row_sums import sum_rows
from distdual.kernels.rows import Features, Floats, Ints
from distdual.problems.base import Constraints, Keys, Magnitude, Offenders, Problem
from distdual.problems.linear import find_scores
from distdual.problems.ranking.measures import ranking_sums
from distdual.problems.ranking.swapped_pairs import Grades, find_ranks, find_totals, find_violated, sum_pairs

LARGEST_LABEL = 60.0  # the largest label whose exponential gain leaves room to add up pairs exactly enough


@dataclass(frozen=True, kw_only=True)
class Ranking(Problem):
    kind: ClassVar[str] = "ranking"
    data_spec: ClassVar[DataSpec] = DataSpec(examples="queries", labels="targets")
    estimator: ClassVar[str | None] = "SVMRank"
    takes_map: ClassVar[bool] = True
    oracle_work: ClassVar[float] = 32.0

    n_features: int
    classes: tuple[str, ...] = ()

    gain: str = "none"
    """What a swapped pair costs: "none", 1; "linear", the difference of labels; "exponential", that of 2^label."""

    normalise: bool = True
    """Divide the loss of a query by the weight of all its pairs, so that each query counts as much as any other."""

    cutoff: int = 10
    """Documents that count for the score ndcg@cutoff."""

    def __post_init__(self) -> None:
        if self.classes:
            raise InputError("a ranking problem needs a data set with numbers for labels, the relevance of documents")
        check_choice("problem.gain", self.gain, ["none", "linear", "exponential"])
        if self.cutoff < 1:
            raise InputError(f"problem.cutoff must be at least 1, got {self.cutoff}")

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.n_features

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        bounds, grades, scores = queries_of(shard), self._grades(shard), self.predict(w, shard)
        keys = np.empty(2 * len(shard.y), dtype=np.int32)
        find_violated(scores, bounds, keys)
        named, every = Keys(2 * bounds, keys), np.arange(shard.n_examples)
        net, margin = self._sums(grades, every, named)
        slack = margin - np.add.reduceat(net * scores, bounds[:-1])
        return Offenders(np.where(slack > 0.0, slack, 0.0 * slack) / self._divisor(grades), named)

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:  # noqa: ARG002 - known from the shard alone
        grades = self._grades(shard)
        _, size = totals(grades)
        largest = MARGIN * float((size / self._divisor(grades)).max(initial=0.0))
        longest = longest_row(shard.x)
        terms = longest + 2.0 * float(np.diff(grades.bounds).max(initial=0)) + 8.0
        return Magnitude(terms, 2.0 * shard.norm_bound() * largest, largest, largest, gamma(longest + 4))

    def costs(self, shard: Shard) -> Floats:
        return np.ones(shard.n_examples) if shard.cost is None else shard.cost.copy()

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        grades = self._grades(shard)
        net, margin = self._sums(grades, chosen, keys)
        divisor = self._divisor(grades)[chosen]
        weight = net / np.repeat(divisor, np.diff(grades.bounds)[chosen])
        rows = sum_documents(shard.x, grades.bounds, chosen, weight, self.n_features)
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], margin / divisor, rows, keys)

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        sizes, lengths = np.diff(queries_of(shard))[chosen], np.diff(keys.indptr)
        wrong = lengths != 2 * sizes
        if not wrong.any():
            beyond = (keys.values < 0) | (keys.values > np.repeat(sizes, lengths))
            wrong = np.isin(np.arange(len(chosen)), np.repeat(np.arange(len(chosen)), lengths)[beyond])
        if wrong.any():
            query = shard.first + chosen[np.argmax(wrong)]
            raise InputError(f"the key of a constraint of query {query} lacks a place and a reach for each document")

    def predict(self, w: Floats, shard: Shard) -> Floats:
        """(n_documents,) scores: the higher, the better the rank."""
        found = np.empty(len(shard.y))
        find_scores(shard.x, w, 0.0, found)
        return found

    def decision(self, w: Floats, shard: Shard) -> Floats:
        return self.predict(w, shard)

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:  # noqa: ARG002
        """Nothing but the number of documents: what measures a ranking needs to know the queries."""
        return {"n": float(len(y))}

    def score_shard(self, shard: Shard, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        return {**self.score(y, predicted), **ranking_sums(y, predicted, queries_of(shard), self.cutoff)}

    def _grades(self, shard: Shard) -> Grades:
        bounds, rank = queries_of(shard), np.empty(len(shard.y), dtype=np.int32)
        find_ranks(shard.y, bounds, rank)
        gain = np.zeros(len(shard.y)) if self.gain == "none" else shard.y
        if self.gain == "exponential":
            if float(gain.max(initial=0.0)) > LARGEST_LABEL:
                raise InputError(
                    f"shard {shard.number}: problem.gain = 'exponential' takes labels up to {LARGEST_LABEL:g}, "
                    f"found {gain.max():g}; use 'linear', or other labels"
                )
            gain = np.exp2(gain)
        least = np.minimum.reduceat(gain, bounds[:-1])
        return Grades(bounds, rank, gain - np.repeat(least, np.diff(bounds)), self.gain == "none")

    def _sums(self, grades: Grades, chosen: Ints, keys: Keys) -> tuple[Floats, Floats]:
        """Σ g of each document, where it is the better one less where it is the worse one, and Σ g of each set."""
        at = np.concatenate([[0], np.cumsum(np.diff(grades.bounds)[chosen])])
        net, margin = np.empty(at[-1]), np.empty(len(chosen))
        sum_pairs(grades, chosen, *keys, at, net, margin)
        return net, margin

    def _divisor(self, grades: Grades) -> Floats:
        """Z of each query; 1 where no documents can be swapped."""
        total, _ = totals(grades)
        return np.where(total > 0.0, total, 1.0) if self.normalise else np.ones_like(total)


def queries_of(shard: Shard) -> Ints:
    assert shard.tokens is not None  # checked when the data set was opened
    return shard.tokens


def totals(grades: Grades) -> tuple[Floats, Floats]:
    """The weight of all pairs of each query, and the sum of what these weights are differences of."""
    total, size = np.empty(len(grades.bounds) - 1), np.empty(len(grades.bounds) - 1)
    find_totals(grades, total, size)
    return total, size


def sum_documents(x: Features, bounds: Ints, chosen: Ints, weight: Floats, n_weights: int) -> Features:
    """Σ weight_d features_d over the documents of each chosen query; without copies where queries come in order."""
    documents, indptr = take_runs(bounds, chosen)
    if not len(chosen) or (np.diff(chosen) <= 0).any():
        return sum_rows(x.take(documents), weight, indptr, n_weights)
    first, end = int(bounds[chosen[0]]), int(bounds[chosen[-1] + 1])
    among = np.zeros(end - first)  # 0 for the documents of queries in between
    among[documents - first] = weight
    return sum_rows(x.piece(first, end), among, np.append(bounds[chosen], end) - first, n_weights)
