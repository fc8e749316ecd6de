"""Sums Σ_j β_j k(x_i, s_j) over support rows, in float64 and by tiles of blocked BLAS, with a bound on rounding."""

from typing import Any

import numpy as np

from distdual.feature_maps.blas import one_blas_thread
from distdual.feature_maps.kernel_function import KernelFunction, Landmarks
from distdual.kernels.rounding import UNIT, gamma
from distdual.kernels.rows import Features, Floats
from distdual.memory import check_room

ROWS, COLUMNS = 256, 1024  # of a tile: 2 MB of kernel values, which stay in the processor's cache


class KernelSums:
    """Support rows, ready to be compared with others."""

    def __init__(self, function: KernelFunction, support: Features, width: int, dtype: Any = np.float64) -> None:
        self.function = function
        self.n_support = support.n_rows
        check_room("the support rows in full", self.n_support * width * np.dtype(dtype).itemsize)
        begins = range(0, self.n_support, COLUMNS)
        self.tiles = [Landmarks(support.piece(k, min(k + COLUMNS, self.n_support)), width, dtype) for k in begins]
        self.largest_norm = max((tile.largest_norm for tile in self.tiles), default=0.0)
        self.width = width

    def of(self, x: Features, beta: Floats) -> Floats:
        """(n, c) the sums for each column of β (m, c)."""
        n = x.n_rows
        found = np.zeros((n, beta.shape[1]))
        with one_blas_thread():
            for begin in range(0, n, ROWS):
                rows = x.piece(begin, min(begin + ROWS, n))
                for k, tile in enumerate(self.tiles):
                    at = slice(k * COLUMNS, k * COLUMNS + len(tile.rows))
                    found[begin : begin + ROWS] += self.function.between(rows, tile) @ beta[at].astype(
                        tile.rows.dtype, copy=False
                    )
        return found

    def error(self, beta: Floats, largest_norm: float) -> float:
        """How far rounding can have put a sum of these β off, for rows of at most this norm."""
        value = self.function.rounding(largest_norm, self.largest_norm, self.width)
        size = self.function.largest(largest_norm, self.largest_norm)
        return float(np.abs(beta).sum()) * (value + gamma(self.n_support + len(self.tiles) + 4) * size + UNIT * size)
