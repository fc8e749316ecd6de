"""The crc32c of bytes in several parts, from those of the parts: none of them is read again.

A crc32c is a polynomial over bits modulo POLYNOMIAL, whose coefficient of x^k is bit 31 − k. More bytes shift it.
"""

from collections.abc import Iterable
from functools import cache, reduce

POLYNOMIAL = 0x82F63B78  # without x^32
ONE = 1 << 31


def joined_crc(parts: Iterable[tuple[int, int]]) -> int:
    """The crc32c of all parts in a row; each is its own crc32c and its number of bytes."""
    return reduce(lambda crc, part: modular_product(crc, power_of_x(8 * part[1])) ^ part[0], parts, 0)


def modular_product(a: int, b: int) -> int:
    """a · b modulo the polynomial."""
    total = 0
    for k in range(31, -1, -1):
        if a >> k & 1:
            total ^= b
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
    return total


@cache
def power_of_x(n: int) -> int:
    """x^n modulo the polynomial."""
    if n == 0:
        return ONE
    half = power_of_x(n // 2)
    square = modular_product(half, half)
    return modular_product(square, ONE >> 1) if n % 2 else square
