"""How do examples become shards, in bounded memory, so that a data set is either whole or not there?"""

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, Crc32cCodec

from distdual.data.layout import (
    ATTRIBUTES,
    AXES,
    CHECKSUMS,
    LENGTHS,
    NORMS,
    TABLE_CHUNK,
    ArraySpec,
    Axis,
    Layout,
)
from distdual.data.location import Location, clear_errors
from distdual.data.shard import Block, join_blocks
from distdual.data.store import axis_length, checksum_of, shard_arrays, zarr_store
from distdual.errors import InputError
from distdual.rows import CsrRows, DenseRows, Floats, Rows, n_rows

MANY = 1 << 40  # shards an array has room for until the real number is known; Zarr's metadata does not grow with it
SHARD_BYTES = 16 << 20


class DatasetWriter:
    """Takes blocks of examples, writes a shard whenever one is full, and the `complete` mark last.

    Use as a context manager: leaving it by an exception deletes what was written.
    """

    def __init__(
        self,
        location: Location,
        kind: str,
        *,
        shard_bytes: int = SHARD_BYTES,
        n_features: int | None = None,
        compress: bool | None = None,
        overwrite: bool = False,
    ) -> None:
        if shard_bytes < 1:
            raise InputError(f"--shard-bytes must be positive, got {shard_bytes}")
        self.location = location
        self.kind = kind
        self.shard_bytes = shard_bytes
        self.n_features = n_features
        self.compress = compress
        self.layout: Layout | None = None
        self.codes: dict[Any, int] = {}  # label as the source spells it -> stored code
        self.widest = 0  # 1 + the largest column number seen in sparse features
        self.pending: list[Block] = []
        self.pending_bytes = 0
        self.n_examples = 0
        self.table: list[tuple[list[int], float, int]] = []  # lengths, largest norm, checksum of each shard
        claim(location, overwrite=overwrite)

    def __enter__(self) -> "DatasetWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            with contextlib.suppress(InputError):  # the first error is the one to tell
                self.location.remove()

    def append(self, block: Block) -> None:
        """Add examples; writes every shard that is full."""
        if not len(block.y):
            return
        self.pending.append(block)
        self.pending_bytes += sum(part.nbytes for part in block.x)
        if self.pending_bytes >= self.shard_bytes:
            self._write_full_shards(last=False)

    def finish(self) -> None:
        """Write what is left, then the tables, then the mark that the data set is complete."""
        self._write_full_shards(last=True)
        if self.layout is None:
            raise InputError(f"{self.location}: the source holds no examples")
        self._check_labels()
        width = self.n_features if self.n_features is not None else self.widest
        labels = tuple(label_name(label) for label in self.codes)
        layout = replace(self.layout, n_features=width, labels=labels)
        with clear_errors(self.location.url), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
            for spec in layout.arrays:
                shape = (layout.chunk_shape(spec)[0] * len(self.table), *layout.chunk_shape(spec)[1:])
                array = self.group[spec.name].async_array  # type: ignore[union-attr]
                zarr.core.sync.sync(array.resize(shape, delete_outside_chunks=False))
            self._write_tables()
            self.group.attrs[ATTRIBUTES] = {**layout.attributes(), "complete": True}
            zarr.consolidate_metadata(self.group.store)

    def _write_full_shards(self, *, last: bool) -> None:
        if not self.pending:
            return
        block = join_blocks(self.pending)
        if self.layout is None:
            self._start(block, last=last)
        assert self.layout is not None
        begin = 0
        for end in shard_ends(block.x, self.layout.chunk, last=last):
            if end == begin:
                raise InputError(
                    f"{self.location}: example {self.n_examples} alone is larger than a shard; raise --shard-bytes"
                )
            self._write_shard(block.take(slice(begin, end)))
            begin = end
        rest = block.take(slice(begin, None))
        self.pending = [rest] if len(rest.y) else []
        self.pending_bytes = sum(part.nbytes for part in rest.x) if len(rest.y) else 0

    def _start(self, block: Block, *, last: bool) -> None:
        """Fix the chunk lengths, now that the first examples are known, and create the arrays."""
        sparse = isinstance(block.x, CsrRows)
        if isinstance(block.x, DenseRows):
            self.n_features = block.x.values.shape[1]
        columns = tuple(name for name in ("cost", "margin") if getattr(block, name) is not None)
        self.layout = Layout(
            kind=self.kind,
            n_features=self.n_features or 0,
            sparse=sparse,
            index_dtype=str(block.x.indices.dtype) if isinstance(block.x, CsrRows) else "int32",
            labels=("",) if is_classification(self.kind) else (),
            columns=columns,
            chunk=chunk_lengths(block.x, self.shard_bytes, last=last),
            compress=sparse if self.compress is None else self.compress,
        )
        with clear_errors(self.location.url):
            store = zarr_store(self.location, read_only=False)
            attributes = {ATTRIBUTES: {**self.layout.attributes(), "complete": False}}
            self.group = zarr.create_group(store, zarr_format=3, attributes=attributes)
            for spec in self.layout.arrays:
                self._create(spec)

    def _create(self, spec: ArraySpec) -> None:
        assert self.layout is not None
        chunk = self.layout.chunk_shape(spec)
        dense = spec.width > 0
        lz4 = [BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")] if self.layout.compress or not dense else []
        self.group.create_array(
            spec.name,
            shape=(chunk[0] * MANY, *chunk[1:]),
            chunks=chunk,
            dtype=spec.dtype,
            compressors=[*lz4, Crc32cCodec()],
            fill_value=0,
            config={"write_empty_chunks": True},
        )

    def _write_shard(self, block: Block) -> None:
        assert self.layout is not None
        number = len(self.table)
        where = f"{self.location}: shard {number}"
        check_block(block, where, self.n_examples, self.layout)
        if isinstance(block.x, CsrRows):
            self._check_width(block.x, where)
        y = self._encode(block.y, where)
        arrays = shard_arrays(block.x, y, block.cost, block.margin)
        with clear_errors(self.location.url):
            for spec in self.layout.arrays:
                padded = np.zeros(self.layout.chunk_shape(spec), dtype=spec.dtype)
                padded[: len(arrays[spec.name])] = arrays[spec.name]
                self.group[spec.name].blocks[number] = padded  # type: ignore[union-attr]
        lengths = [axis_length(block.x, axis) for axis in AXES]
        self.table.append((lengths, largest_norm(block.x), checksum_of(arrays, self.layout)))
        self.n_examples += len(y)

    def _check_width(self, x: CsrRows, where: str) -> None:
        widest = int(x.indices.max(initial=-1)) + 1
        self.widest = max(self.widest, widest)
        if self.n_features is not None and widest > self.n_features:
            row = int(np.searchsorted(x.indptr, np.argmax(x.indices), side="right")) - 1
            raise InputError(
                f"{where}, row {row}: feature {widest - 1} (counted from 0) is beyond the {self.n_features} features"
            )

    def _encode(self, y: NDArray[Any], where: str) -> NDArray[Any]:
        """Label codes in order of first appearance, or the regression targets themselves."""
        if not is_classification(self.kind):
            return y.astype(np.float64)
        values, at, inverse = np.unique(y, return_index=True, return_inverse=True)
        for k in np.argsort(at):
            self.codes.setdefault(values[k].item(), len(self.codes))
            if self.kind == "binary" and len(self.codes) > 2:
                names = ", ".join(sorted(map(label_name, self.codes)))
                raise InputError(f"{where}, row {at[k]}: a binary problem has two labels, found a third: {names}")
        return np.array([self.codes[value.item()] for value in values], dtype=np.int32)[inverse]

    def _check_labels(self) -> None:
        if is_classification(self.kind) and len(self.codes) < 2:
            only = label_name(next(iter(self.codes)))
            raise InputError(f"{self.location}: all examples have the label {only}; two classes are needed")

    def _write_tables(self) -> None:
        lengths, norms, checksums = zip(*self.table, strict=True)
        tables: dict[str, NDArray[Any]] = {
            LENGTHS: np.array(lengths, dtype=np.int64),
            NORMS: np.array(norms, dtype=np.float64),
            CHECKSUMS: np.array(checksums, dtype=np.uint32),
        }
        for name, table in tables.items():
            array = self.group.create_array(
                name,
                shape=table.shape,
                chunks=(TABLE_CHUNK, *table.shape[1:]),
                dtype=table.dtype,
                compressors=[BloscCodec(cname="lz4"), Crc32cCodec()],
                config={"write_empty_chunks": True},
            )
            array[:] = table


def write_dataset(location: Location, kind: str, blocks: Iterable[Block], **options: Any) -> None:
    """Write all of `blocks` as one data set; see DatasetWriter for the options."""
    with DatasetWriter(location, kind, **options) as writer:
        for block in blocks:
            writer.append(block)
        writer.finish()


def claim(location: Location, *, overwrite: bool) -> None:
    """Make sure that a data set may be written here: nothing is there, or only what an interrupted `prepare` left."""
    if location.is_empty():
        return
    if location.exists("zarr.json"):
        from distdual.data.store import open_dataset

        try:
            open_dataset(location)
        except InputError as error:
            unfinished = "incomplete" in str(error)
        else:
            unfinished = overwrite
        if unfinished:
            location.remove()
            return
    raise InputError(f"{location}: already holds something; choose an empty destination")


def is_classification(kind: str) -> bool:
    return kind != "regression"


def label_name(label: Any) -> str:
    """A label as people write it: 1, not 1.0."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def chunk_lengths(x: Rows, shard_bytes: int, *, last: bool) -> dict[Axis, int]:
    """The longest axes a shard may have, from the first examples; exact if these are all there are."""
    n = n_rows(x)
    if isinstance(x, DenseRows):
        fit = max(1, shard_bytes // max(1, x.values.shape[1] * x.values.itemsize))
        return {"example": min(fit, n) if last else fit, "value": 1}
    n_values = int(x.indptr[-1])
    per_value = x.indices.itemsize + x.values.itemsize
    if last and n_values * per_value <= shard_bytes:
        return {"example": n, "value": max(1, n_values)}
    fit = max(1, shard_bytes // per_value)
    # A quarter more examples than the first ones suggest, so that values, not examples, usually close a shard.
    return {"example": max(1, int(1.25 * fit * n / max(1, n_values))), "value": fit}


def shard_ends(x: Rows, chunk: dict[Axis, int], *, last: bool) -> Iterator[int]:
    """Cut rows into shards: the end of each that is full, and of the rest if it is the last."""
    n = n_rows(x)
    begin = 0
    while begin < n:
        end = min(n, begin + chunk["example"])
        if isinstance(x, CsrRows):
            fits = int(np.searchsorted(x.indptr, x.indptr[begin] + chunk["value"], side="right")) - 1
            end = min(end, fits)
        if end == n and end - begin < chunk["example"] and not last:
            return  # the next block may still fill it
        yield end
        if end == begin:
            return
        begin = end


def check_block(block: Block, where: str, first: int, layout: Layout) -> None:
    """Refuse features, targets, costs and margins that are not finite, and costs below zero."""
    bad_rows(~finite_rows(block.x), where, first, "a feature is NaN or infinite")
    if block.y.dtype.kind == "f":
        bad_rows(~np.isfinite(block.y), where, first, "the label is NaN or infinite")
    for name in layout.columns:
        column = getattr(block, name)
        bad_rows(~np.isfinite(column), where, first, f"the {name} is NaN or infinite")
    if block.cost is not None:
        bad_rows(block.cost < 0, where, first, "the cost is negative")


def bad_rows(bad: NDArray[np.bool_], where: str, first: int, what: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{where}, row {row} (example {first + row}): {what}")


def finite_rows(x: Rows) -> NDArray[np.bool_]:
    if isinstance(x, DenseRows):
        return np.asarray(np.isfinite(x.values).all(axis=1))
    good = np.isfinite(x.values)
    if good.all():
        return np.ones(n_rows(x), dtype=np.bool_)
    return ~np.isin(np.arange(n_rows(x)), np.searchsorted(x.indptr, np.flatnonzero(~good), side="right") - 1)


def largest_norm(x: Rows) -> float:
    squares = x.values.astype(np.float64) ** 2
    if isinstance(x, DenseRows):
        per_row: Floats = squares.sum(axis=1)
    else:
        at = np.repeat(np.arange(n_rows(x)), np.diff(x.indptr))
        per_row = np.bincount(at, squares, minlength=1).astype(np.float64)
    return float(np.sqrt(per_row.max(initial=0.0)))
