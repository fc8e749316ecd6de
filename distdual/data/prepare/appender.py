"""The writer that appends shards to a data set atomically: readers see either the old or the new one.

What the old zarr.json describes is never touched: new shards are objects of their own, and the tables of shards keep
their first entries. The new zarr.json, written last and in one piece, makes the data set the longer one. What a killed
run has left before that is beyond the end of every array, and overwritten by the next.
"""

from typing import Any

import zarr
from numpy.typing import NDArray
from zarr.core.array import AsyncArray
from zarr.core.sync import sync

from distdual.data.dataset import array_of, open_dataset, open_group, text_array, zarr_store
from distdual.data.layout import TABLE_CHUNK
from distdual.data.prepare.writer import MANY, WRITE_ZEROS, DatasetWriter
from distdual.data.shard import Block
from distdual.data.sources.base import Attached
from distdual.data.storage.location import Location, clear_errors
from distdual.data.validate import form_of
from distdual.errors import InputError


class Appender(DatasetWriter):
    """A writer that continues a data set; features, labels and columns must match it."""

    too_large = "prepare the whole data set again, with larger --shard-bytes"

    def __init__(self, location: Location, kind: str, *, n_features: int | None = None) -> None:
        self.there = open_dataset(location)
        layout = self.there.layout
        for name, given, found in (("problem", kind, layout.kind), ("n_features", n_features, layout.n_features)):
            if given not in (None, found):
                raise InputError(f"{location}: {name} is {given}, but that of the data set is {found}")
        super().__init__(location, kind, n_features=layout.n_features, attached=Attached(labels=layout.labels))

    def _begin(self, *, overwrite: bool) -> None:  # noqa: ARG002 - nothing there is replaced
        there, layout = self.there, self.there.layout
        self.layout = layout
        columns = there.lengths.tolist(), there.largest_norm.tolist(), there.checksum.tolist()
        self.table = list(zip(*columns, strict=True))
        self.n_examples = there.n_examples
        with clear_errors(self.location.url):
            self.group = open_group(self.location, zarr_store(self.location, read_only=False), "r+")
            room = {spec.name: MANY * layout.chunk_shape(spec)[0] for spec in layout.arrays}
            self.arrays = {name: grown(array_of(self.group, name), length) for name, length in room.items()}

    def finish(self) -> None:
        if open_dataset(self.location).fingerprint != self.there.fingerprint:
            raise InputError(f"{self.location}: another process has changed the data set meanwhile; append again")
        super().finish()

    def _undo(self) -> None:
        """Remove the new shards, unless another process has appended some meanwhile."""
        assert self.layout is not None
        if open_dataset(self.location).fingerprint != self.there.fingerprint:
            return
        for number in range(self.there.n_shards, len(self.table) + 1):
            for spec in self.layout.arrays:
                self.location.remove_file(spec.chunk_key(number))

    def _check_form(self, block: Block) -> None:
        """Check that the first block has the form of the stored ones."""
        if self.form is None and self.layout is not None:
            found, layout = form_of(block), self.layout
            width = None if layout.sparse else layout.n_features
            stored = found._replace(width=width, columns=layout.columns, runs=tuple(layout.runs))
            if found != stored:
                raise InputError(f"{self.location}: the source has {found}, but the data set {stored}")
        super()._check_form(block)

    def _learn(self, label: str, where: str) -> None:
        if label not in self.codes:
            names = ", ".join(self.codes)
            raise InputError(f"{where}: the label {label!r} is none of those in the data set: {names}")

    def _write_texts(self) -> "tuple[dict[str, int], dict[str, zarr.Array[Any]]]":
        assert self.layout is not None
        names = map(text_array, self.layout.texts)
        return self.layout.texts, {name: array_of(self.group, name) for name in names}

    def _write_table(self, name: str, table: NDArray[Any], chunk: int = TABLE_CHUNK) -> "zarr.Array[Any]":  # noqa: ARG002
        array = grown(array_of(self.group, name), len(table))
        array[:] = table
        sync(array.async_array.resize(table.shape, delete_outside_chunks=False))  # writes down the shape
        return array


def grown(array: "zarr.Array[Any]", length: int) -> "zarr.Array[Any]":
    """The array with a larger shape; writes nothing."""
    inner: Any = array.async_array
    metadata = inner.metadata.update_shape((length, *array.shape[1:]))
    return zarr.Array(AsyncArray(metadata, inner.store_path, WRITE_ZEROS))
