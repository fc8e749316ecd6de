"""The kernel matrix of the cached examples, which grows by rows and columns within a limit of bytes."""

import math
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdual.data.shard import join_rows
from distdual.errors import InputError
from distdual.feature_maps.blas import one_blas_thread
from distdual.feature_maps.kernel_function import KernelFunction, Landmarks
from distdual.kernels.jit import bare_kernel
from distdual.kernels.rows import Features

LINES = 16
TILE = 512  # rows and columns that are computed, and copied to the other side of the diagonal, at a time


class Gram:
    """k(x_i, x_j) + constant of the rows so far, in single precision until `widen`."""

    def __init__(self, function: KernelFunction, constant: float, width: int, most_rows: int, budget: float) -> None:
        self.function, self.constant, self.width = function, constant, width
        self.most_rows, self.budget = most_rows, budget
        self.parts: list[Features] = []
        self.n = 0
        self.memory = self._reserve(np.float32)

    @property
    def values(self) -> NDArray[Any]:
        """(n, n) the matrix, as a view."""
        return self.memory[: self.n, : self.n]

    @property
    def rows(self) -> Features:
        if len(self.parts) > 1:
            self.parts = [join_rows(self.parts)]
        return self.parts[0]

    @property
    def nbytes(self) -> int:
        return self.n * self.n * self.memory.itemsize

    def add(self, rows: Features) -> None:
        """Append rows."""
        k = rows.n_rows
        if self.n + k > len(self.memory):
            need = (self.n + k) ** 2 * self.memory.itemsize
            raise InputError(
                f"the kernel matrix of {self.n + k:,} cached examples takes {need / 2**30:,.1f} GiB, the limit is "
                f"{self.budget / 2**30:,.1f} GiB; give kernel.basis for a low-rank approximation, or "
                "a larger solver.cache_bytes"
            )
        self.parts.append(rows)
        self.n += k
        self._fill(self.n - k)

    def widen(self) -> None:
        """Compute all values again in double precision."""
        self.memory = np.empty((0, 0))  # there may not be room for both
        self.memory = self._reserve(np.float64)
        self._fill(0)

    @property
    def is_double(self) -> bool:
        return self.memory.dtype == np.float64

    def _reserve(self, dtype: Any) -> NDArray[Any]:
        """Address space for as many rows as may come; the system gives memory to what is written only."""
        side = min(self.most_rows, math.isqrt(int(self.budget) // np.dtype(dtype).itemsize))
        if side < self.n:
            need = self.n**2 * np.dtype(dtype).itemsize
            raise InputError(
                f"the kernel matrix of {self.n:,} cached examples takes {need / 2**30:,.1f} GiB in double precision, "
                f"which this gap needs; the limit is {self.budget / 2**30:,.1f} GiB; give kernel.basis for a low-rank "
                "approximation, or a larger solver.cache_bytes"
            )
        return untouched(side, dtype)

    def _fill(self, begin: int) -> None:
        """Rows and columns from `begin` on, by a thread for each core."""
        rows = self.rows
        tops = range(begin - begin % TILE, self.n, TILE)
        lefts = range(0, self.n, TILE)
        tiles = [Landmarks(rows.piece(k, min(k + TILE, self.n)), self.width, self.memory.dtype) for k in lefts]
        with one_blas_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda top: self._fill_row(rows.piece(top, min(top + TILE, self.n)), top, tiles), tops))

    def _fill_row(self, own: Features, top: int, tiles: list[Landmarks]) -> None:
        """A row of tiles up to the diagonal, and what mirrors them."""
        for k in range(top // TILE + 1):
            left, found = k * TILE, self.function.between(own, tiles[k])
            found += self.constant
            bottom, right = top + found.shape[0], left + found.shape[1]
            self.memory[top:bottom, left:right] = found
            mirror(found, self.memory[left:right, top:bottom])


@bare_kernel
def mirror(values: Any, into: Any) -> None:
    """Write the transpose, some lines of the processor's cache at a time."""
    n, m = values.shape
    for top in range(0, n, LINES):
        for left in range(0, m, LINES):
            for j in range(left, min(left + LINES, m)):
                for i in range(top, min(top + LINES, n)):
                    into[j, i] = values[i, j]


def untouched(side: int, dtype: Any) -> NDArray[Any]:
    """A (side, side) array in pages of the usual size: large ones would give memory to the unused ends of rows, too."""
    n_bytes = max(1, side * side * np.dtype(dtype).itemsize)
    found = np.frombuffer(mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype, side * side)
    return found.reshape(side, side)
