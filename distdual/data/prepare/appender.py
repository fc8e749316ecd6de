"""The writer that appends shards to a data set atomically: readers see either the old or the new one.

What the old zarr.json describes is never touched: new shards are objects of their own, and the tables of shards keep
their first entries. The new zarr.json, written last and in one piece, makes the data set the longer one. What a killed
run has left before that is beyond the end of every array, and overwritten by the next.
"""

from typing import Any

import zarr
from numpy.typing import NDArray

from distdual.data.dataset import check_labelled, open_dataset
from distdual.data.layout import TABLE_CHUNK
from distdual.data.prepare.writer import DatasetWriter
from distdual.data.prepare.zarr_arrays import MANY, resized
from distdual.data.shard import Block
from distdual.data.sources.base import Attached
from distdual.data.storage.claim import Claim
from distdual.data.storage.conditional import version_of
from distdual.data.storage.location import Location, clear_errors
from distdual.data.validate import form_of
from distdual.data.zarr_description import array_of, open_group, text_array
from distdual.data.zarr_store import zarr_store
from distdual.errors import InputError


class Appender(DatasetWriter):
    """A writer that continues a data set; features, labels and columns must match it."""

    too_large = "prepare the whole data set again, with larger --shard-bytes"

    def __init__(
        self, location: Location, kind: str, *, n_features: int | None = None, claim: Claim | None = None
    ) -> None:
        before = version_of(location, "zarr.json")
        self.there = check_labelled(open_dataset(location))
        layout = self.there.layout
        for name, given, found in (("problem", kind, layout.kind), ("n_features", n_features, layout.n_features)):
            if given not in (None, found):
                raise InputError(f"{location}: {name} is {given}, but that of the data set is {found}")
        attached = Attached(labels=layout.labels)
        super().__init__(location, kind, n_features=layout.n_features, attached=attached, claim=claim)
        self.version = before

    def _begin(self, *, overwrite: bool) -> None:  # noqa: ARG002 - nothing there is replaced
        there, layout = self.there, self.there.layout
        self.layout, self.separator = layout, layout.separator
        columns = there.lengths.tolist(), there.largest_norm.tolist(), there.checksum.tolist()
        self.table = list(zip(*columns, strict=True))
        self.n_examples = there.n_examples
        with clear_errors(self.location.url):
            self.group = open_group(self.location, zarr_store(self.location, read_only=False), "r+")
            room = {spec.name: MANY * layout.chunk_shape(spec)[0] for spec in layout.arrays}
            self.arrays = {name: resized(array_of(self.group, name), length) for name, length in room.items()}

    def _undo(self) -> None:
        """Remove the new shards, unless another process has appended some meanwhile."""
        assert self.layout is not None
        self._check_claim()
        if version_of(self.location, "zarr.json") != self.version:
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

    def learn(self, label: str, where: str) -> None:
        if label not in self.codes:
            names = ", ".join(self.codes)
            raise InputError(f"{where}: the label {label!r} is not one of those in the data set: {names}")

    def _write_texts(self) -> "tuple[dict[str, int], dict[str, zarr.Array[Any]]]":
        assert self.layout is not None
        names = map(text_array, self.layout.texts)
        return self.layout.texts, {name: array_of(self.group, name) for name in names}

    def _write_table(self, name: str, table: NDArray[Any], chunk: int = TABLE_CHUNK) -> "zarr.Array[Any]":  # noqa: ARG002
        array = resized(array_of(self.group, name), len(table))
        self.location.patiently(name, lambda: array.__setitem__(slice(None), table))
        return array
