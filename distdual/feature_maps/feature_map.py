"""The contract of a feature map: raw rows to mapped rows, a block at a time, in float64.

Blocks have one size, the last one filled up with zeros: so the features of a row do not depend on the rows around it,
to the last bit, and a scan of a piece of a shard sees what a scan of the whole shard does.
"""

import hashlib
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.errors import InputError
from distdual.feature_maps.blas import one_blas_thread
from distdual.feature_maps.kernel_function import KernelFunction
from distdual.kernels.rows import CsrRows, DenseRows, Features, Floats

BLOCK = 256  # rows at a time: their kernel values stay in the processor's cache


class FeatureMap(ABC):
    """See nystroem.py."""

    kind: ClassVar[str]
    function: KernelFunction

    n_inputs: int
    """Raw features a row."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Mapped features a row."""

    @abstractmethod
    def block(self, x: Features) -> Floats:
        """(n, width) the features of a block of rows, in float64."""

    derived: ClassVar[tuple[str, ...]] = ()
    """Arrays that follow from the others."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the arrays, without those that follow from others."""
        found = hashlib.sha256()
        for name, array in sorted(self.arrays().items()):
            if name not in self.derived:
                found.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return found.hexdigest()

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that make up the map, under the names of their files in a model folder."""

    def rows(self, x: Features, threads: int = 1) -> DenseRows:
        """The mapped features of all rows, in single precision like all features; raises where it cannot hold one."""
        n = x.n_rows
        mapped = np.empty((n, self.width), dtype=np.float32)

        def fill(begin: int) -> None:
            end = min(begin + BLOCK, n)
            with np.errstate(over="ignore", invalid="ignore"):
                mapped[begin:end] = self.block(filled(x.piece(begin, end)))[: end - begin]

        with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
            list((map if threads == 1 else pool.map)(fill, range(0, n, BLOCK)))
        if not np.isfinite(mapped).all():
            raise InputError(
                f"the {self.kind} map gives a number that is NaN or above {np.finfo(np.float32).max:.2g}; scale the "
                "features, or take another gamma or basis"
            )
        return DenseRows(mapped)


def filled(x: Features) -> Features:
    """A block of BLOCK rows, the missing ones zero."""
    missing = BLOCK - x.n_rows
    if not missing:
        return x
    if isinstance(x, DenseRows):
        return DenseRows(np.concatenate([x.values, np.zeros((missing, x.values.shape[1]), dtype=x.values.dtype)]))
    return CsrRows(np.concatenate([x.indptr, np.full(missing, x.indptr[-1])]), x.indices, x.values)
