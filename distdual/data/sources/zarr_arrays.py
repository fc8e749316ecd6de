"""Blocks of examples from plain Zarr arrays: n × d features, and n labels beside them, read some chunks at a time."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import zarr
import zarr.errors
from numpy.typing import NDArray

from distdual.data.shard import Block
from distdual.data.sources.arrays import Stream, assemble, check_real, dense_rows
from distdual.data.sources.open_file import BLOCK_BYTES
from distdual.data.sources.source_files import ZARR_FILES
from distdual.data.storage.location import Location, clear_errors
from distdual.data.zarr_description import UNREADABLE
from distdual.data.zarr_store import zarr_store
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows

X, Y = "x", "y"  # the arrays of a group, if no others are named


def blocks_from_zarr(place: Location, labels: Location | None, x: str | None, y: str | None) -> Iterator[Block]:
    """Rows of an array with labels in a .npy file or another array; or of two arrays of one group."""
    found = open_zarr(place)
    with clear_errors(place.url):
        features, name = member(found, x or X, place), f"{place}: the array"
        if features.ndim != 2 or not features.shape[1]:
            raise InputError(f"{name} of features must have 2 dimensions, found the shape {features.shape}")
        check_real(features.dtype, name)
        columns = {"y": label_stream(found, place, labels, y)} if labels or y or isinstance(found, zarr.Group) else {}
        if not columns:
            raise InputError(f"{place}: a Zarr array has no labels; name a .npy file or an array of them with --labels")
        yield from assemble(rows_from(features, name), features.shape[0], columns, name)


def rows_of_zarr(place: Location, x: str | None) -> Iterator[Block]:
    """The rows alone, for prediction."""
    with clear_errors(place.url):
        features, name = member(open_zarr(place), x or X, place), f"{place}: the array"
        yield from assemble(rows_from(features, name), features.shape[0], {}, name)


def label_stream(found: Any, place: Location, labels: Location | None, y: str | None) -> Stream:
    if labels is None:
        array, name = member(found, y or Y, place), f"{place}: the array {y or Y!r}"
    else:
        array, name = member(open_zarr(labels), y or Y, labels), f"{labels}: the array"
    if array.ndim != 1:
        raise InputError(f"{name} of labels must have 1 dimension, found the shape {array.shape}")
    return Stream(name, array.shape[0], pieces(array))


def open_zarr(place: Location) -> Any:
    for name in ZARR_FILES:
        if place.exists(name):
            place.read(name)  # which refuses what is no file: Zarr would wait for a pipe
    try:
        with clear_errors(place.url):
            return zarr.open(zarr_store(place, read_only=True), mode="r")
    except (zarr.errors.GroupNotFoundError, zarr.errors.NodeTypeValidationError, *UNREADABLE) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{place}: is not a Zarr array or group ({error})") from None


def member(found: Any, name: str, place: Location) -> Any:
    """The array itself, or that of a group with this name."""
    if isinstance(found, zarr.Array):
        return found
    names = sorted(found.array_keys())
    if name not in names:
        raise InputError(
            f"{place}: there is no array {name!r}, only {', '.join(names) or 'none'}; choose with --x and --y"
        )
    return found[name]


def pieces(array: Any) -> Iterator[NDArray[Any]]:
    """Runs of entries along the first axis: whole chunks, about as many as a block holds."""
    chunk = max(1, array.chunks[0])
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    step = max(1, BLOCK_BYTES // max(1, row_bytes * chunk)) * chunk
    for begin in range(0, array.shape[0], step):
        yield np.asarray(array[begin : begin + step])


def rows_from(array: Any, name: str) -> Iterator[DenseRows]:
    first = 0
    for piece in pieces(array):
        yield dense_rows(piece, name, first)
        first += len(piece)
