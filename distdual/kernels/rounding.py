"""Rounding: how far sums and products in float64 can be from their exact values.

A sum of n products, added in any order, is off by at most γ_n Σ |a_k b_k| with γ_n = n u / (1 − n u) (Higham, "Accuracy
and Stability of Numerical Algorithms", section 3.1); each product below the normal numbers adds at most `TINY`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.kernels.jit import bare_kernel
from distdual.kernels.rows import DenseRows, Features, Floats, Ints, norm2

UNIT = 2.0**-53  # relative error of a rounded float64 operation
TINY = 2.0**-1074  # absolute error of a product too small for a normal number
MARGIN = 1.0 + 2.0**-20  # covers the rounding of the error terms themselves
SUM_BLOCK = 512  # products added up in float64; the sums of blocks are added exactly


def gamma(n: float) -> float:
    """γ_n, for n roundings in a row or a sum of n terms."""
    return math.inf if n * UNIT > 0.25 else MARGIN * n * UNIT / (1.0 - n * UNIT)


class Enclosed(NamedTuple):
    """A real number that differs from `value` by at most `error`."""

    value: float
    error: float = 0.0

    @property
    def low(self) -> float:
        return self.value if self.error == 0.0 else math.nextafter(self.value - self.error, -math.inf)

    @property
    def high(self) -> float:
        return self.value if self.error == 0.0 else math.nextafter(self.value + self.error, math.inf)

    def plus(self, other: "Enclosed", sign: float = 1.0) -> "Enclosed":
        """The sum, or with sign −1 the difference."""
        value = self.value + sign * other.value
        return Enclosed(value, MARGIN * (self.error + other.error + UNIT * abs(value)))

    def times(self, factor: float) -> "Enclosed":
        """The product with an exact factor; powers of 2 add no error."""
        value = factor * self.value
        rounded = 0.0 if abs(math.frexp(factor)[0]) == 0.5 else UNIT * abs(value) + TINY
        return Enclosed(value, MARGIN * (abs(factor) * self.error + rounded) if self.error or rounded else 0.0)

    def wider(self, error: float) -> "Enclosed":
        return Enclosed(self.value, MARGIN * (self.error + error)) if error else self


UNKNOWN_VALUE = Enclosed(math.nan, math.inf)


def enclosed_product(a: Floats, b: Floats, roundings: float = 0.0) -> Enclosed:
    """⟨a, b⟩ where each product has `roundings` relative errors already."""
    n_blocks = -(-len(a) // SUM_BLOCK)
    sums, sizes = np.empty(n_blocks), np.empty(n_blocks)
    fill_block_sums(a, b, sums, sizes)
    if not sizes.any():
        return Enclosed(0.0, len(a) * TINY if a.any() and b.any() else 0.0)
    if not np.isfinite(sizes).all():
        return UNKNOWN_VALUE
    try:
        value, size = math.fsum(sums.tolist()), math.fsum(sizes.tolist())
    except OverflowError:
        return UNKNOWN_VALUE
    return Enclosed(value, gamma(SUM_BLOCK + 2 + roundings) * size + len(a) * TINY)


@bare_kernel
def fill_block_sums(a: Floats, b: Floats, sums: Floats, sizes: Floats) -> None:
    """Σ a_k b_k and Σ |a_k b_k| over each block; fills `sums` and `sizes`."""
    for block in range(len(sums)):
        begin, end = block * SUM_BLOCK, min((block + 1) * SUM_BLOCK, len(a))
        own, other = a[begin:end], b[begin:end]
        total, size = 0.0, 0.0
        for k in range(len(own)):
            total += own[k] * other[k]
            size += abs(own[k] * other[k])
        sums[block], sizes[block] = total, size


def sum_of(parts: list[Enclosed]) -> Enclosed:
    """Σ parts; the values are added exactly and rounded once."""
    if not all(math.isfinite(part.value) and math.isfinite(part.error) for part in parts):
        return UNKNOWN_VALUE
    value, error = math.fsum(part.value for part in parts), math.fsum(part.error for part in parts)
    return Enclosed(value, MARGIN * (error + UNIT * abs(value)))


def root(square: float) -> float:
    """An upper bound of √square."""
    return MARGIN * math.sqrt(square) if square >= 0 else math.inf


def norm_bound(w: Floats) -> float:
    """An upper bound of ||w||."""
    return root(enclosed_product(w, w).high)


def row_norm_bound(x: Features) -> float:
    """An upper bound of the largest ||x_i||; infinity if a value is NaN or infinite."""
    found = largest_norm2(x, x.n_rows)
    return root(found * (1.0 + gamma(longest_row(x) + 2))) if found < np.inf else math.inf


def value_norm_bound(x: Features, largest: float | None = None) -> float:
    """An upper bound of the largest ||x_i|| from the largest |value|, which is cheaper than norms, or known already."""
    if largest is None:
        if x.values.dtype != np.float32:
            return row_norm_bound(x)
        largest = largest_value(own_values(x))
    return root(float(longest_row(x))) * MARGIN * largest if largest > 0.0 else 0.0


def own_values(x: Features) -> NDArray[Any]:
    """The values of these rows alone; sparse rows may share those of others."""
    values: NDArray[Any] = x.values if isinstance(x, DenseRows) else x.values[x.indptr[0] : x.indptr[-1]]
    return values


def largest_value(values: NDArray[np.float32]) -> float:
    """max |x|; infinity if a value is NaN or infinite. One comparison of bits a value, which SIMD does."""
    found = float(np.int32(greatest_bits(values.reshape(-1).view(np.int32))).view(np.float32))
    return found if math.isfinite(found) else math.inf


@bare_kernel
def greatest_bits(bits: NDArray[np.int32]) -> int:
    """The bits of the largest |x| of these float32, those of a NaN or an infinity if there are any."""
    worst = np.int32(0)
    for k in range(len(bits)):
        worst = max(worst, bits[k] & np.int32(0x7FFFFFFF))
    return int(worst)


def longest_row(x: Features) -> int:
    """The most values that a row stores."""
    return int(x.values.shape[1]) if isinstance(x, DenseRows) else longest_run(x.indptr)


@bare_kernel
def longest_run(indptr: Ints) -> int:
    most = 0
    for k in range(len(indptr) - 1):
        most = max(most, indptr[k + 1] - indptr[k])
    return most


@bare_kernel
def largest_norm2(x: Features, n: int) -> float:
    """max ||x_i||² of n rows; NaN stays."""
    largest = 0.0
    for k in range(n):
        found = norm2(x, k)
        if not found <= largest:
            largest = found
            if not found < np.inf:
                break
    return largest
