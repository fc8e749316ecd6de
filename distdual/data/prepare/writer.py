"""The writer of a data set: examples become shards in bounded memory, and the description is written last.

A data set that replaces another is written beside it, in the same arrays under other names of chunks, and one
conditional write of zarr.json makes it visible. Until then the old one is as it was.
"""

import contextlib
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any

import google_crc32c
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.core.sync import sync

from distdual.data.data_spec import DataSpec
from distdual.data.layout import (
    CHECKSUMS,
    LENGTHS,
    NORMS,
    SEPARATORS,
    TABLE_CHUNK,
    TABLE_DIMENSIONS,
    TEXT_CHUNK,
    Layout,
)
from distdual.data.prepare.destination import found_at
from distdual.data.prepare.shard_cuts import SHARD_BYTES, chunk_lengths, index_dtype, shard_ends
from distdual.data.prepare.zarr_arrays import description, json_of, new_array, new_arrays, resized, write_chunks
from distdual.data.shard import Block, join_blocks, run_arrays
from distdual.data.shard_arrays import axis_length, checksum_of, shard_arrays
from distdual.data.sources.base import Attached
from distdual.data.storage.claim import Claim
from distdual.data.storage.conditional import ChangedError, version_of, write_if
from distdual.data.storage.location import Location, clear_errors
from distdual.data.validate import (
    Form,
    check_bags,
    check_block,
    check_examples,
    form_of,
    label_name,
    normal_block,
    row_of,
)
from distdual.data.zarr_description import text_array
from distdual.data.zarr_store import zarr_store
from distdual.errors import InputError, Superseded
from distdual.kernels.rows import CsrRows, Features
from distdual.problems.registry import spec_of

TableRow = tuple[list[int], float, int]  # lengths, largest norm and checksum of a shard


class DatasetWriter:
    """Takes blocks of examples, writes a shard whenever one is full, and the `complete` mark last.

    Use as a context manager: leaving it by an exception deletes what was written. `claim`, if given, is checked before
    each write.
    """

    too_large = "raise --shard-bytes"  # what to do about an example that is

    def __init__(
        self,
        location: Location,
        kind: str,
        *,
        shard_bytes: int = SHARD_BYTES,
        n_features: int | None = None,
        compress: bool | None = None,
        overwrite: bool = False,
        attached: Attached | None = None,
        unlabelled: bool = False,
        claim: Claim | None = None,
    ) -> None:
        if shard_bytes < 1:
            raise InputError(f"--shard-bytes must be positive, got {shard_bytes}")
        self.location = location
        self.claim = claim
        self.version: str | None = None  # of the zarr.json that the last write replaces
        self.separator: str = SEPARATORS[0]
        self.replaces = False  # whether a data set is there
        self.arrays: dict[str, zarr.Array[Any]] = {}
        self.kind = kind
        self.spec: DataSpec = spec_of(kind)
        self.shard_bytes = shard_bytes
        self.n_features = n_features
        self.compress = compress
        self.unlabelled = unlabelled
        self.has_classes = self.spec.labels == "classes" and not unlabelled
        self.layout: Layout | None = None
        self.form: Form | None = None  # what the first block looked like
        self.attached = attached or Attached()
        self.codes = {label: code for code, label in enumerate(self.attached.labels)}  # as stored
        self.widest = 0  # 1 + the largest column number seen in sparse features
        self.pending: list[Block] = []
        self.pending_bytes = 0
        self.n_examples = 0
        self.background = ThreadPoolExecutor(1, thread_name_prefix="write-shard")
        self.writing: Future[Any] | None = None
        self.table: list[TableRow] = []  # of each shard
        self._begin(overwrite=overwrite)

    def _begin(self, *, overwrite: bool) -> None:
        there = found_at(self.location, overwrite=overwrite)
        if there is None:
            self.location.clear()
        else:
            self.replaces, self.version = True, there.version
            self.separator = SEPARATORS[1 - SEPARATORS.index(there.separator)]

    def _undo(self) -> None:
        """After a failure: nothing is left of what was written, unless another process may have made use of it."""
        if self.claim is not None:
            self.claim.check()
        if version_of(self.location, "zarr.json") != self.version:
            return
        if self.replaces:
            self.location.clear(lambda name: not self._is_new(name))
        else:
            self.location.clear()

    def _is_new(self, name: str) -> bool:
        """Whether a file holds a chunk of this data set, not of the one that it replaces."""
        array, _, chunk = name.partition("/")
        return array in self.arrays and chunk.startswith(f"c{self.separator}")

    def __enter__(self) -> "DatasetWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None and self.layout is not None:
            with contextlib.suppress(InputError, Superseded):  # the first error is the one to tell
                with contextlib.suppress(Exception):
                    self._settle()  # what is still being written would otherwise be left
                self._undo()
        self.background.shutdown()

    def append(self, block: Block) -> None:
        """Add examples; writes every shard that is full."""
        if not block.n_examples:
            return
        check_examples(block, self.kind, self.spec, str(self.location))
        first = self.n_examples + self.n_pending
        block = normal_block(block, f"{self.location}: block at example {first}")
        if self.spec.examples == "bags":
            check_bags(block, str(self.location), first)
        self._check_form(block)
        self.pending.append(block)
        self.pending_bytes += pending_bytes(block)
        if self.pending_bytes >= self.shard_bytes:
            self._write_full_shards(last=False)

    @property
    def n_pending(self) -> int:
        return sum(block.n_examples for block in self.pending)

    def finish(self) -> None:
        """Write the remaining examples, then the tables, then the `complete` mark."""
        self._write_full_shards(last=True)
        self._settle()
        if self.layout is None:
            raise InputError(f"{self.location}: the source holds no examples")
        self._check_labels()
        self._check_claim()
        if version_of(self.location, "zarr.json") != self.version:
            raise InputError(changed(self.location))
        width = self.n_features if self.n_features is not None else self.widest
        with clear_errors(self.location.url):
            for spec in self.layout.arrays:
                chunk = self.layout.chunk_shape(spec)
                self.arrays[spec.name] = resized(self.arrays[spec.name], chunk[0] * len(self.table))
            sums, texts = self._write_texts()
            self.arrays = {**self.arrays, **self._write_tables(), **texts}
        layout = replace(self.layout, n_features=width, labels=tuple(self.codes), texts=sums)
        self._commit(description(layout, self.arrays))

    def _commit(self, content: bytes) -> None:
        """Make the data set visible by one write, then remove the one that it replaces."""
        self._check_claim()
        if not self.replaces:
            self._describe_arrays()
        try:
            self.version = write_if(self.location, "zarr.json", content, self.version)
        except ChangedError:
            raise InputError(changed(self.location)) from None
        if self.replaces:
            self._describe_arrays()
            self.location.clear(lambda name: name == "zarr.json" or self._is_new(name) or self._describes(name))

    def _describe_arrays(self) -> None:
        """Write the description of each array; distdual reads those in zarr.json, other programs may read these."""
        for name, array in self.arrays.items():
            self.location.write(f"{name}/zarr.json", json_of(array.metadata))

    def _describes(self, name: str) -> bool:
        array, _, rest = name.partition("/")
        return array in self.arrays and rest == "zarr.json"

    def _check_claim(self) -> None:
        if self.claim is not None:
            self.claim.check()

    def _check_form(self, block: Block) -> None:
        """Check that all blocks have one format, width, label type and set of columns."""
        form = form_of(block)
        if self.form is None:
            self.form = form
            if form.width is not None and self.n_features not in (None, form.width):
                raise InputError(f"{self.location}: {form.width} features in the source, {self.n_features} were named")
        if form != self.form:
            raise InputError(
                f"{self.location}: the source changes at example {self.n_examples + self.n_pending}: "
                f"{form} after {self.form}"
            )

    def _write_full_shards(self, *, last: bool) -> None:
        if not self.pending:
            return
        block = join_blocks(self.pending)
        if self.layout is None:
            self._start(block, last=last)
        assert self.layout is not None
        begin = 0
        for end in shard_ends(block.x, self.layout.chunk, block.tokens, block.runs, last=last):
            if end == begin:
                raise InputError(
                    f"{self.location}: example {self.n_examples} alone is larger than a shard; {self.too_large}"
                )
            self._write_shard(block.take(slice(begin, end)))
            begin = end
        rest = block.take(slice(begin, None))
        self.pending = [rest] if rest.n_examples else []
        self.pending_bytes = pending_bytes(rest) if rest.n_examples else 0

    def _start(self, block: Block, *, last: bool) -> None:
        """Fix the chunk lengths, now that the first examples are known, and create the arrays."""
        form = form_of(block)
        sparse = form.width is None
        if form.width is not None:
            self.n_features = form.width
        layout = Layout(
            kind=self.kind,
            n_features=self.n_features or 0,
            sparse=sparse,
            index_dtype=index_dtype(block.x, self.n_features),
            labels=("",) if self.has_classes else (),
            columns=form.columns,
            chunk=chunk_lengths(block.x, self.shard_bytes, block.tokens, block.runs, last=last),
            compress=sparse if self.compress is None else self.compress,
            ragged=block.tokens is not None,
            unlabelled=self.unlabelled,
            structured=block.structured,
            recipe=dict(self.attached.recipe),
            scale=self.attached.scale,
            runs={name: column.values.dtype.name for name, column in (block.runs or {}).items()},
            separator=self.separator,
        )
        self.create(layout)

    def create(self, layout: Layout) -> None:
        """Create the arrays; their shards may be written by other processes then."""
        self.layout = layout
        self.store = zarr_store(self.location, read_only=False)
        self.arrays = new_arrays(layout, self.store)
        if not self.replaces:
            self._mark_incomplete(layout)

    def _mark_incomplete(self, layout: Layout) -> None:
        try:
            self.version = write_if(self.location, "zarr.json", description(layout, {}, complete=False), None)
        except ChangedError:
            self.layout = None  # nothing is ours to remove
            raise InputError(changed(self.location)) from None

    def _write_shard(self, block: Block) -> None:
        assert self.layout is not None
        layout, number = self.layout, len(self.table)
        where = f"{self.location}: shard {number}"
        check_block(block, where, self.n_examples, layout)
        if isinstance(block.x, CsrRows):
            self._check_width(block.x, where)
        y = self._encode(block.y, where)
        arrays = shard_arrays(block, y)
        self._settle()
        self._check_claim()
        self.writing = self.background.submit(
            self.location.patiently, "", lambda: sync(write_chunks(layout, self.arrays, number, arrays))
        )
        self.table.append(written_row(block, arrays, layout))
        self.n_examples += block.n_examples

    def _settle(self) -> None:
        """Wait for the shard that is being written while the next one is made; raise what went wrong."""
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.result()

    def _check_width(self, x: CsrRows, where: str) -> None:
        assert self.layout is not None
        widest = x.n_columns
        self.widest = max(self.widest, widest)
        # Where no width was named, the first block decided how wide column numbers are stored.
        limit = int(np.iinfo(self.layout.index_dtype).max) if self.n_features is None else self.n_features
        if widest > limit:
            row, last = row_of(x, int(np.argmax(x.indices))), widest - 1
            raise InputError(f"{where}, row {row}: feature {last} (counted from 0) is beyond the {limit} features")

    def _encode(self, y: NDArray[Any], where: str) -> NDArray[Any]:
        """Label codes in order of first appearance, or the regression targets themselves."""
        if not self.has_classes:
            return y.astype(np.float64)
        values, at = np.unique(y, return_index=True)
        for k in np.argsort(at):
            self.learn(label_name(values[k].item()), f"{where}, row {at[k]}")
        return coded_labels(y, self.codes)

    def learn(self, label: str, where: str) -> None:
        """Assign a code to a new label."""
        self.codes.setdefault(label, len(self.codes))
        if self.spec.n_classes is not None and len(self.codes) > self.spec.n_classes:
            names = ", ".join(self.codes)
            raise InputError(f"{where}: a {self.kind} problem has {self.spec.n_classes} labels, found more: {names}")

    def _check_labels(self) -> None:
        if self.has_classes and len(self.codes) < 2:
            only = next(iter(self.codes))
            raise InputError(f"{self.location}: all examples have the label {only}; two classes are needed")

    def _write_tables(self) -> "dict[str, zarr.Array[Any]]":
        lengths, norms, checksums = zip(*self.table, strict=True)
        tables: dict[str, NDArray[Any]] = {
            LENGTHS: np.array(lengths, dtype=np.int64),
            NORMS: np.array(norms, dtype=np.float64),
            CHECKSUMS: np.array(checksums, dtype=np.uint32),
        }
        return {name: self._write_table(name, table) for name, table in tables.items()}

    def _write_texts(self) -> "tuple[dict[str, int], dict[str, zarr.Array[Any]]]":
        """Checksums of the texts, and their arrays."""
        contents = {name: np.frombuffer(text.encode(), dtype=np.uint8) for name, text in self.attached.texts.items()}
        sums = {name: google_crc32c.extend(0, content) for name, content in contents.items()}
        arrays = {text_array(name): content for name, content in contents.items()}
        return sums, {name: self._write_table(name, content, TEXT_CHUNK) for name, content in arrays.items()}

    def _write_table(self, name: str, table: NDArray[Any], chunk: int = TABLE_CHUNK) -> "zarr.Array[Any]":
        array = new_array(
            self.store,
            name,
            self.separator,
            shape=table.shape,
            chunks=(chunk, *table.shape[1:]),
            dtype=table.dtype,
            compressors=[BloscCodec(cname="lz4"), Crc32cCodec()],
            dimension_names=TABLE_DIMENSIONS.get(name, (f"{name}_byte",)),
        )
        self.location.patiently(name, lambda: array.__setitem__(slice(None), table))
        return array


def coded_labels(y: NDArray[Any], codes: Mapping[str, int]) -> NDArray[np.int32]:
    """The code of each label."""
    values, inverse = np.unique(y, return_inverse=True)
    return np.array([codes[label_name(value.item())] for value in values], dtype=np.int32)[inverse]


def written_row(block: Block, arrays: dict[str, NDArray[Any]], layout: Layout) -> TableRow:
    return [axis_length(block, axis) for axis in layout.axes], largest_norm(block.x), checksum_of(arrays, layout)


def pending_bytes(block: Block) -> int:
    """Bytes that count for the size of a shard."""
    parts = run_arrays(block.runs).values() if block.structured else block.x
    return sum(part.nbytes for part in parts)


def write_dataset(location: Location, kind: str, blocks: Iterable[Block], **options: Any) -> None:
    """Write all of `blocks` as one data set; see DatasetWriter for the options."""
    with DatasetWriter(location, kind, **options) as writer:
        for block in blocks:
            writer.append(block)
        writer.finish()


def changed(location: Location) -> str:
    return f"{location}: another process has changed the data set meanwhile; try again"


def largest_norm(x: Features) -> float:
    return float(np.sqrt(x.row_sums(x.values.astype(np.float64) ** 2).max(initial=0.0)))
