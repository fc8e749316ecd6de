"""Reads of chunk s of every array: one GET each, all at the same time, without a copy.

Zarr describes and writes the arrays. A chunk is one object: little-endian values, compressed by Blosc or not, then
their crc32c. Zarr itself would decode it into an array and copy that into another.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numcodecs import blosc
from numpy.typing import NDArray

from distdual.data.layout import ArraySpec, Layout
from distdual.data.shard_checks import count_falls
from distdual.data.storage.location import Location
from distdual.data.storage.object_get import Bytes, Fetch, fetch_from
from distdual.errors import InputError

log = logging.getLogger(__name__)

CRC_BYTES = 4  # bytes of the checksum at the end of a chunk
SPARSE_COLUMNS = "indices"  # the array of the columns of sparse rows
SURVEY_BYTES = 1 << 19  # read twice in a row, the second time from the processor's cache


class DamagedChunkError(ValueError):
    """A chunk that `prepare` cannot have written."""


class Chunk(NamedTuple):
    values: NDArray[Any]  # without padding
    crc: int  # crc32c of their bytes
    falls: int  # places where columns of sparse rows do not rise; 0 for other arrays
    n_bytes: int  # in the storage
    n_gets: int


class Chunks:
    """The chunks of one data set."""

    def __init__(self, location: Location, layout: Layout, codecs: dict[str, Any]) -> None:
        self.location = location
        self.layout = layout
        self.compressed = {name: is_compressed(found) for name, found in codecs.items()}

    @cached_property
    def _fetch(self) -> Fetch:
        return fetch_from(self.location)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(len(self.layout.arrays), thread_name_prefix="fetch")

    def read(self, number: int, lengths: dict[str, int]) -> dict[str, Chunk]:
        """Chunk `number` of each array; `lengths` are those of the shard's axes."""
        specs = self.layout.arrays
        wanted = [(spec, number, lengths[spec.axis] + spec.extra) for spec in specs]
        map_all = self._pool.map if self.location.remote else map  # parallel reads from a disk are no faster
        chunks = list(map_all(self._chunk, wanted))
        return {spec.name: chunk for spec, chunk in zip(specs, chunks, strict=True)}

    def _chunk(self, wanted: tuple[ArraySpec, int, int]) -> Chunk:
        spec, number, length = wanted
        where = f"{self.location}: shard {number}, array {spec.name!r}"
        key = spec.chunk_key(number)

        def fetch() -> Bytes:
            try:
                return self._fetch(key)
            except FileNotFoundError:
                raise InputError(
                    f"{where}: the chunk is missing: the data set was replaced after it was opened, or it is damaged; "
                    "start again, or prepare it again"
                ) from None

        n_bytes = total = 0
        for last in (False, True):  # what was damaged on its way only is whole the second time
            content, n_gets = self.location.patiently(key, fetch)
            n_bytes, total = n_bytes + len(content), total + n_gets
            try:
                values, crc, falls = self._decoded(content, spec, length)
                if last:
                    log.warning("%s: the chunk arrived damaged and was read once more, whole this time", where)
                return Chunk(values, crc, falls, n_bytes, total)
            except DamagedChunkError as error:
                if last:
                    raise InputError(f"{where}: the chunk is damaged ({error}); prepare the data set again") from None
                log.debug("%s: the chunk is damaged (%s); it is read once more", where, error)
        raise AssertionError

    def _decoded(self, content: Bytes, spec: ArraySpec, length: int) -> tuple[NDArray[Any], int, int]:
        """The first `length` entries, with what `surveyed` finds."""
        shape = self.layout.chunk_shape(spec)
        dtype = np.dtype(spec.dtype).newbyteorder("<")
        size = int(np.prod(shape)) * dtype.itemsize
        inner = content[:-CRC_BYTES]
        compressed = self.compressed[spec.name]
        if compressed:
            check_crc(content, google_crc32c.extend(0, inner))
            inner = decompressed(inner, size)
        if len(inner) != size:
            raise DamagedChunkError(f"{len(inner)} bytes, expected {size}")
        used = length * (size // shape[0])
        values = inner[:used].view(dtype)
        crc, falls = surveyed(values, columns=self.layout.sparse and spec.name == SPARSE_COLUMNS)
        if not compressed:
            check_crc(content, google_crc32c.extend(crc, inner[used:]))
        return values.reshape(length, *shape[1:]), crc, falls


def surveyed(values: NDArray[Any], *, columns: bool) -> tuple[int, int]:
    """The crc32c of the bytes of `values` and, for columns of rows, the places where they do not rise."""
    crc, falls, step = 0, 0, SURVEY_BYTES // values.itemsize
    for begin in range(0, len(values), step):
        crc = google_crc32c.extend(crc, values[begin : begin + step].view(np.uint8))
        if columns:
            falls += count_falls(values[max(begin - 1, 0) : begin + step])
    return crc, falls


def check_crc(content: Bytes, found: int) -> None:
    if content[-CRC_BYTES:].tobytes() != found.to_bytes(CRC_BYTES, "little"):
        raise DamagedChunkError("its checksum differs")


def decompressed(inner: Bytes, size: int) -> Bytes:
    """Blosc's own header says how long the result is; the caller has verified its checksum."""
    if len(inner) < blosc.MAX_OVERHEAD:
        raise DamagedChunkError(f"{len(inner)} bytes cannot be decompressed")
    if (found := int.from_bytes(inner[4:8].tobytes(), "little")) != size:
        raise DamagedChunkError(f"{found} bytes, expected {size}")
    values = np.empty(size, dtype=np.uint8)
    try:
        blosc.decompress(inner, values)
    except RuntimeError as error:
        raise DamagedChunkError(str(error)) from None
    return values


def is_compressed(codecs: Any) -> bool:
    """From the codecs of an array, as Zarr describes them, which are known to be among ours."""
    return "blosc" in [codec["name"] for codec in codecs]
