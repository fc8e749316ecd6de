"""Rows of a data set drawn by seed, for landmarks and for the sample that judges a map; read in one pass."""

from typing import Any, NamedTuple

import numpy as np

from distdual.feature_maps.blas import one_blas_thread
from distdual.feature_maps.kernel_function import Landmarks
from distdual.kernels.rows import DenseRows, Features, Floats, Ints

CANDIDATES = 10  # for each landmark that k-means++ chooses


class Moments(NamedTuple):
    """Sums over all values of some rows, zeros included."""

    n: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def plus(self, other: "Moments") -> "Moments":
        return Moments(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def variance(self) -> float:
        mean = self.total / self.n
        return self.squares / self.n - mean * mean


def moments_of(x: Features, width: int) -> Moments:
    values = x.trimmed().values.astype(np.float64)
    return Moments(float(x.n_rows * width), float(values.sum()), float((values * values).sum()))


def drawn(counts: Ints, size: int, seed: int, stream: int) -> list[Ints]:
    """`size` different rows at random, as row numbers within each of several shards of `counts` rows, ascending."""
    total = int(counts.sum())
    chosen = np.random.default_rng([seed, stream]).choice(total, min(size, total), replace=False)
    chosen.sort()
    first = np.concatenate([[0], np.cumsum(counts)])
    cut = np.searchsorted(chosen, first)
    return [chosen[cut[s] : cut[s + 1]] - first[s] for s in range(len(counts))]


class RowDraw:
    """`size` different rows at random of a stream of unknown length: those with the smallest of random keys."""

    def __init__(self, size: int, seed: int, stream: int) -> None:
        self.size = size
        self.draw = np.random.default_rng([seed, stream])
        self.limit = np.inf if size else 0.0  # keys above it are not among the smallest
        self.keys: Floats = np.empty(0)  # of the rows held, in the order of the stream
        self.held: list[Any] = []

    def add(self, x: Features) -> None:
        keys = self.draw.random(x.n_rows)
        chosen = np.flatnonzero(keys < self.limit)
        if len(chosen) or not self.held:
            self.held.append(x.take(chosen))
            self.keys = np.concatenate([self.keys, keys[chosen]])
        if len(self.keys) > 2 * self.size:
            self._shrink()

    def _shrink(self) -> None:
        every = self.held[0].joined(self.held)
        if len(self.keys) > self.size:
            smallest = np.sort(np.argpartition(self.keys, self.size)[: self.size])
            every, self.keys = every.take(smallest), self.keys[smallest]
            self.limit = float(self.keys.max())
        self.held = [every]

    def rows(self) -> Features:
        """The rows drawn, in the order of the stream; some rows have been added."""
        self._shrink()
        found: Features = self.held[0]
        return found


def kmeans_plus_plus(candidates: Features, size: int, width: int, seed: int) -> Features:
    """Rows far from each other: each is drawn with probability proportional to its squared distance to those before.

    (Arthur and Vassilvitskii, 2007.)
    """
    n = candidates.n_rows
    if n <= size:
        return candidates
    draw = np.random.default_rng([seed, 7])
    chosen = np.empty(size, dtype=np.int64)
    nearest = np.full(n, np.inf)
    with one_blas_thread():
        every = Landmarks(candidates, width)
        chosen[0] = draw.integers(n)
        for k in range(1, size):
            np.minimum(nearest, distances(every, int(chosen[k - 1])), out=nearest)
            total = np.cumsum(nearest)
            if not total[-1] > 0:  # all others are copies of those chosen
                return candidates.take(np.sort(chosen[:k]))
            chosen[k] = min(int(np.searchsorted(total, draw.random() * total[-1], side="right")), n - 1)
    return candidates.take(np.sort(chosen))


def distances(every: Landmarks, k: int) -> Floats:
    """(n,) ||z_j − z_k||²."""
    one: Any = DenseRows(every.rows[k : k + 1])
    found: Floats = every.squared_norms + every.squared_norms[k] - 2.0 * every.products(one)[0]
    return np.maximum(found, 0.0)
