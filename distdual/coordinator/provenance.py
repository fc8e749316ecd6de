"""Provenance of cached group rows: rows that workers recorded, and mixtures of rows.

A row found by a worker is named by its members file and its position there. A coalesced row is a mixture
Σ weight · row, recorded in a temporary file so that memory does not grow with the length of a run. At the end,
mixtures are resolved from the last to the first, until only rows of workers are left.
"""

import tempfile
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from distdual.data.storage.npy_io import load_npy
from distdual.kernels.rows import Floats, Ints
from distdual.schema import array, below, rising

POSITION_BITS = 32  # low bits of a reference: the position of the row in its file


def references(number: int, n_rows: int) -> Ints:
    """References to the rows of a members file."""
    return (number << POSITION_BITS) + np.arange(n_rows)


class Ledger:
    """The mixtures of a run, on disk."""

    def __init__(self) -> None:
        self.file: Any = None  # opened on the first write
        self.batches: list[int] = []  # number of the first mixture in each
        self.offsets: list[int] = []
        self.n_mixtures = 0

    def mix(self, indptr: Ints, parts: Ints, weight: Floats) -> Ints:
        """References to new rows, each the sum of weight · row over its run of `parts`."""
        n = len(indptr) - 1
        if n:
            self._open()
            self.batches.append(self.n_mixtures)
            self.offsets.append(self.file.seek(0, 2))
            for array in (indptr, parts, weight):
                np.save(self.file, array, allow_pickle=False)
        made = -1 - np.arange(self.n_mixtures, self.n_mixtures + n)
        self.n_mixtures += n
        return made

    def since(self, offset: int) -> bytes:
        """The bytes from this offset on; earlier bytes never change."""
        if self.file is None:
            return b""
        self.file.seek(offset)
        content: bytes = self.file.read()
        return content

    def restore(self, content: Iterable[bytes], batches: Ints, offsets: Ints, n_mixtures: int) -> None:
        """Restore a ledger from the pieces of its file."""
        for piece in content:
            self._open()
            self.file.write(piece)
        self.batches, self.offsets, self.n_mixtures = batches.tolist(), offsets.tolist(), n_mixtures
        ends = [*self.batches, n_mixtures][1:]
        for first, end, offset in zip(self.batches, ends, self.offsets, strict=True):
            self._check(first, end, *self._read(offset))

    def _read(self, offset: int) -> tuple[Ints, Ints, Floats]:
        if self.file is None:
            raise ValueError("the ledger is missing")
        self.file.seek(offset)
        indptr, parts, weight = (load_npy(self.file) for _ in range(3))
        return indptr, parts, weight

    def _check(self, first: int, end: int, indptr: Ints, parts: Ints, weight: Floats) -> None:
        """Refuse a stored batch whose mixtures are not of rows and of earlier mixtures."""
        array("a mixture", parts, np.int64, (None,))
        array("the weights of a mixture", weight, np.float64, (len(parts),), low=0)
        rising("mixtures", array("mixtures", indptr, np.int64, (end - first + 1,)), len(parts))
        below("a mixture of a mixture", -1 - parts[parts < 0], first)

    def _open(self) -> None:
        if self.file is None:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the run
            weakref.finalize(self, self.file.close)

    def resolve(self, rows: Ints, alpha: Floats) -> tuple[Ints, Floats]:
        """The worker rows that make up Σ α · row, ascending, and the share of each."""
        share = np.zeros(self.n_mixtures)
        np.add.at(share, -1 - rows[rows < 0], alpha[rows < 0])
        found, shares = [rows[rows >= 0]], [alpha[rows >= 0]]
        for first, offset in zip(reversed(self.batches), reversed(self.offsets), strict=True):
            indptr, parts, weight = self._read(offset)
            of_part = np.repeat(share[first : first + len(indptr) - 1], np.diff(indptr)) * weight
            mixed = (parts < 0) & (of_part > 0)
            np.add.at(share, -1 - parts[mixed], of_part[mixed])
            plain = (parts >= 0) & (of_part > 0)
            found.append(parts[plain])
            shares.append(of_part[plain])
        names, place = np.unique(np.concatenate(found), return_inverse=True)
        total: Floats = np.bincount(place, np.concatenate(shares), minlength=len(names)).astype(np.float64)
        return names, total
