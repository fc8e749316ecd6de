"""Members files: which examples and constraints each row of a slack group combines.

The worker that finds rows writes one file for them. The coordinator keeps only a reference, so its memory does not grow
with the data, and `verify` rebuilds the rows from the data set. A file NUMBER.npz holds plain arrays:

    begin, end   (n_rows,) the range of the shard's examples that each row's bits cover
    bits         one bit per example in that range, set for members; each row is padded to whole bytes
    lengths      the length of each member's key; a single number if all are equal
    keys         the keys, member by member, in the smallest type that holds them
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdual.data.storage.location import Location
from distdual.data.storage.npy_io import BAD_ZIP, unzip
from distdual.errors import InputError
from distdual.problems.base import Keys
from distdual.scan.slack_groups import Members
from distdual.schema import MOST, array


@dataclass(frozen=True, slots=True)
class Notes:
    """The members file of a given number, in the folder of a run."""

    folder: Location
    number: int

    @property
    def name(self) -> str:
        return f"{self.number:08d}.npz"

    def write(self, members: Members) -> None:
        """Write the file, unless there are no rows."""
        if len(members.indptr) > 1:
            self.folder.write(self.name, pack_members(members))

    def read(self) -> Members:
        try:
            return unpack_members(unzip(self.folder.read(self.name)))
        except BAD_ZIP as error:
            if isinstance(error, InputError) and str(error).startswith(str(self.folder)):
                raise
            raise InputError(f"{self.folder}/{self.name}: not a members file: {error}") from None


def pack_members(members: Members) -> bytes:
    begin = members.example[members.indptr[:-1]]
    end = members.example[members.indptr[1:] - 1] + 1
    n_bytes = (end - begin + 7) // 8
    starts = np.concatenate([[0], np.cumsum(n_bytes)])
    row = np.repeat(np.arange(len(begin)), np.diff(members.indptr))
    bits = np.zeros(8 * starts[-1], dtype=np.bool_)
    bits[8 * starts[row] + members.example - begin[row]] = True
    lengths = np.diff(members.keys.indptr)
    same = not len(lengths) or bool((lengths == lengths[0]).all())
    buffer = io.BytesIO()
    np.savez(
        buffer,
        begin=begin,
        end=end,
        bits=np.packbits(bits, bitorder="little"),
        lengths=(lengths[:1] if same else lengths).astype(np.int32),
        keys=smallest(members.keys.values),
    )
    return buffer.getvalue()


def unpack_members(arrays: Mapping[str, NDArray[Any]]) -> Members:
    """Return the members that `pack` packed; raise ValueError if the arrays are inconsistent."""
    begin, end, bits, lengths, values = (arrays[name] for name in ("begin", "end", "bits", "lengths", "keys"))
    n = len(array("begin", begin, np.int64, (None,), low=0))
    array("end", end, np.int64, (n,), low=1)
    array("bits", bits, np.uint8, (None,))
    array("lengths", lengths, np.int32, (None,), low=0)
    array("keys", values, (np.int8, np.int16, np.int32), (None,))
    if (end <= begin).any() or end.max(initial=0) > MOST:
        raise ValueError("a row begins after its end")
    size = (end - begin + 7) // 8
    starts = np.concatenate([[0], np.cumsum(size)])
    if size.max(initial=0) > len(bits) or len(bits) != starts[-1]:
        raise ValueError(f"{len(bits)} bytes of bits, expected {starts[-1]}")
    place = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
    row = np.searchsorted(8 * starts, place, side="right") - 1
    example = (begin[row] + place - 8 * starts[row]).astype(np.int64)
    if (example >= end[row]).any():
        raise ValueError("a bit is set after the end of its row")
    if len(lengths) not in (1, len(example)):
        raise ValueError(f"keys of {len(lengths)} members, expected {len(example)}")
    each = np.full(len(example), lengths[0], dtype=np.int64) if len(lengths) == 1 else lengths.astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(each)]).astype(np.int64)
    if indptr[-1] != len(values):
        raise ValueError(f"{len(values)} numbers in keys, expected {indptr[-1]}")
    rows = np.searchsorted(row, np.arange(len(begin) + 1)).astype(np.int64)
    if (np.diff(rows) < 1).any():
        raise ValueError("a row without members")
    return Members(rows, example, Keys(indptr, values.astype(np.int32)))


def smallest(values: NDArray[np.int32]) -> NDArray[Any]:
    """Return the numbers in the smallest signed type that holds them."""
    for dtype in (np.int8, np.int16):
        limits = np.iinfo(dtype)
        if not len(values) or (values.min() >= limits.min and values.max() <= limits.max):
            return values.astype(dtype)
    return values
