"""Zarr arrays whose descriptions are written apart from their chunks, and the chunks of a shard."""

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import Store
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.core.array import AsyncArray
from zarr.core.buffer import default_buffer_prototype
from zarr.core.group import ConsolidatedMetadata, GroupMetadata
from zarr.storage import MemoryStore, StorePath

from distdual.data.layout import ATTRIBUTES, Layout

MANY = 1 << 30  # shards an array has room for until the real number is known; Zarr's metadata does not grow with it

WRITE_ZEROS: Any = {"write_empty_chunks": True}  # of array objects: one that is opened again would skip zeros


def new_arrays(layout: Layout, store: Store) -> "dict[str, zarr.Array[Any]]":
    """The arrays of a new data set, by name."""
    made = {}
    for spec in layout.arrays:
        chunk = layout.chunk_shape(spec)
        lz4 = [BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")] if layout.compress or not spec.width else []
        made[spec.name] = new_array(
            store,
            spec.name,
            layout.separator,
            shape=(chunk[0] * MANY, *chunk[1:]),
            chunks=chunk,
            dtype=spec.dtype,
            compressors=[*lz4, Crc32cCodec()],
            fill_value=0,
            dimension_names=spec.dimensions,
        )
    return made


def new_array(store: Store, name: str, separator: str, **described: Any) -> "zarr.Array[Any]":
    """An array whose chunks go to the storage, but whose description is not written yet."""
    naming: Any = {"name": "default", "separator": separator}
    elsewhere = zarr.create_group(MemoryStore(), zarr_format=3)
    made: Any = elsewhere.create_array(name, chunk_key_encoding=naming, config=WRITE_ZEROS, **described)
    return zarr.Array(AsyncArray(made.metadata, StorePath(store, name), WRITE_ZEROS))


async def write_chunks(
    layout: Layout, arrays: "Mapping[str, zarr.Array[Any]]", number: int, contents: Mapping[str, NDArray[Any]]
) -> None:
    """Write chunk `number` of each array, all at the same time; returns or raises when none is under way."""
    writes = []
    for spec in layout.arrays:
        padded = np.zeros(layout.chunk_shape(spec), dtype=spec.dtype)
        padded[: len(contents[spec.name])] = contents[spec.name]
        where = slice(number * len(padded), (number + 1) * len(padded))
        writes.append(arrays[spec.name].async_array.setitem(where, padded))
    for result in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def resized(array: "zarr.Array[Any]", length: int) -> "zarr.Array[Any]":
    """The same array with another length; nothing is written yet."""
    inner: Any = array.async_array
    metadata = inner.metadata.update_shape((length, *array.shape[1:]))
    return zarr.Array(AsyncArray(metadata, inner.store_path, WRITE_ZEROS))


def description(layout: Layout, arrays: "dict[str, zarr.Array[Any]]", *, complete: bool = True) -> bytes:
    """zarr.json of a data set: our attributes and, once it is complete, the metadata of all arrays.

    zarr.consolidate_metadata would list the folder, and trip over what an object store has not yet forgotten.
    """
    members = ConsolidatedMetadata(metadata={name: array.metadata for name, array in arrays.items()})
    attributes = {ATTRIBUTES: {**layout.attributes(), "complete": complete}}
    group = GroupMetadata(attributes=attributes, zarr_format=3, consolidated_metadata=members if complete else None)
    return json_of(group)


def json_of(metadata: Any) -> bytes:
    """The zarr.json of a group or an array."""
    content: bytes = metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    return content
