"""What is behind each cached row of a group? Rows that workers wrote down, and mixtures of rows.

A row that a worker found is named by the file its members are in and its place there. A coalesced row is a mixture
Σ weight · row of others, which is written to a temporary file: memory does not grow with the length of a run. Once it
has ended, the mixtures are resolved from the last to the first, until only rows of workers are left.
"""

import tempfile
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from distdual.data.storage.npy_io import load
from distdual.kernels.rows import Floats, Ints

PLACES = 32  # bits of a reference that say which row of its file it is


def references(number: int, n_rows: int) -> Ints:
    """References to the rows of a file of members."""
    return (number << PLACES) + np.arange(n_rows)


class Ledger:
    def __init__(self) -> None:
        self.file: Any = None  # opened once there is something to write
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
        """What was written from this byte on; what stands before it never changes."""
        if self.file is None:
            return b""
        self.file.seek(offset)
        content: bytes = self.file.read()
        return content

    def restore(self, content: Iterable[bytes], batches: Ints, offsets: Ints, n_mixtures: int) -> None:
        """Go on where another ledger was, with its file in pieces."""
        for piece in content:
            self._open()
            self.file.write(piece)
        self.batches, self.offsets, self.n_mixtures = batches.tolist(), offsets.tolist(), n_mixtures

    def _open(self) -> None:
        if self.file is None:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the run
            weakref.finalize(self, self.file.close)

    def resolve(self, rows: Ints, alpha: Floats) -> tuple[Ints, Floats]:
        """The rows of workers that Σ α · row consists of, ascending, and their share in it."""
        share = np.zeros(self.n_mixtures)
        np.add.at(share, -1 - rows[rows < 0], alpha[rows < 0])
        found, shares = [rows[rows >= 0]], [alpha[rows >= 0]]
        for first, offset in zip(reversed(self.batches), reversed(self.offsets), strict=True):
            self.file.seek(offset)
            indptr, parts, weight = (load(self.file) for _ in range(3))
            of_part = np.repeat(share[first : first + len(indptr) - 1], np.diff(indptr)) * weight
            mixed = (parts < 0) & (of_part > 0)
            np.add.at(share, -1 - parts[mixed], of_part[mixed])
            plain = (parts >= 0) & (of_part > 0)
            found.append(parts[plain])
            shares.append(of_part[plain])
        names, place = np.unique(np.concatenate(found), return_inverse=True)
        total: Floats = np.bincount(place, np.concatenate(shares), minlength=len(names)).astype(np.float64)
        return names, total
