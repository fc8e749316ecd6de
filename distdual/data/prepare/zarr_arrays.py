"""Zarr arrays whose descriptions are written apart from their chunks."""

from typing import Any

import zarr
from zarr.core.array import AsyncArray
from zarr.core.buffer import default_buffer_prototype
from zarr.core.group import ConsolidatedMetadata, GroupMetadata

from distdual.data.layout import ATTRIBUTES, Layout

WRITE_ZEROS: Any = {"write_empty_chunks": True}  # of array objects: one that is opened again would skip zeros


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
