"""How do examples become shards, in bounded memory, so that a data set is either whole or not there?"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.group import ConsolidatedMetadata, GroupMetadata
from zarr.core.sync import sync

from distdual.data.layout import (
    ATTRIBUTES,
    CHECKSUMS,
    LENGTHS,
    NORMS,
    TABLE_CHUNK,
    TEXT_CHUNK,
    ArraySpec,
    Axis,
    Layout,
)
from distdual.data.location import Location, clear_errors
from distdual.data.shard import Block, Runs, join_blocks
from distdual.data.store import (
    DamagedError,
    IncompleteError,
    axis_length,
    checksum_of,
    open_dataset,
    shard_arrays,
    text_array,
    zarr_store,
)
from distdual.errors import InputError
from distdual.rows import CsrRows, DenseRows, Features, Floats, Ints, n_rows

MANY = 1 << 30  # shards an array has room for until the real number is known; Zarr's metadata does not grow with it
SHARD_BYTES = 16 << 20
SEQUENCES = ("chain", "cfg", "latent", "latent_chain")  # the problems whose examples are runs of rows


@dataclass(frozen=True, slots=True)
class Attached:
    """What a data set keeps beside its shards."""

    recipe: dict[str, Any] = field(default_factory=dict)  # as Layout.recipe
    texts: dict[str, str] = field(default_factory=dict)  # by name; they may be large
    labels: tuple[str, ...] = ()  # known beforehand; they have the first codes


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
        attached: Attached | None = None,
    ) -> None:
        if shard_bytes < 1:
            raise InputError(f"--shard-bytes must be positive, got {shard_bytes}")
        self.location = location
        self.kind = kind
        self.shard_bytes = shard_bytes
        self.n_features = n_features
        self.compress = compress
        self.layout: Layout | None = None
        self.form: Form | None = None  # what the first block looked like
        self.attached = attached or Attached()
        self.codes = {label: code for code, label in enumerate(self.attached.labels)}  # as stored
        self.widest = 0  # 1 + the largest column number seen in sparse features
        self.pending: list[Block] = []
        self.pending_bytes = 0
        self.n_examples = 0
        self.table: list[tuple[list[int], float, int]] = []  # lengths, largest norm, checksum of each shard
        claim(location, overwrite=overwrite)

    def __enter__(self) -> "DatasetWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None and self.layout is not None:
            with contextlib.suppress(InputError):  # the first error is the one to tell
                self.location.remove()

    def append(self, block: Block) -> None:
        """Add examples; writes every shard that is full."""
        if not block.n_examples:
            return
        check_kind(block, self.kind, str(self.location))
        first = self.n_examples + self.n_pending
        block = normal_block(block, f"{self.location}: block at example {first}")
        if self.kind == "latent":
            check_bags(block, str(self.location), first)
        self._check_form(block)
        self.pending.append(block)
        self.pending_bytes += sum(part.nbytes for part in block.x)
        if self.pending_bytes >= self.shard_bytes:
            self._write_full_shards(last=False)

    @property
    def n_pending(self) -> int:
        return sum(block.n_examples for block in self.pending)

    def finish(self) -> None:
        """Write what is left, then the tables, then the mark that the data set is complete."""
        self._write_full_shards(last=True)
        if self.layout is None:
            raise InputError(f"{self.location}: the source holds no examples")
        self._check_labels()
        width = self.n_features if self.n_features is not None else self.widest
        contents = {name: text.encode() for name, text in self.attached.texts.items()}
        sums = {name: google_crc32c.extend(0, content) for name, content in contents.items()}
        layout = replace(self.layout, n_features=width, labels=tuple(self.codes), texts=sums)
        with clear_errors(self.location.url):
            for spec in layout.arrays:
                chunk = layout.chunk_shape(spec)
                shape = (chunk[0] * len(self.table), *chunk[1:])
                sync(self.arrays[spec.name].async_array.resize(shape, delete_outside_chunks=False))
            tables = self._write_tables()
            for name, content in contents.items():
                array = np.frombuffer(content, dtype=np.uint8)
                tables[text_array(name)] = self._write_table(text_array(name), array, TEXT_CHUNK)
        self.location.write("zarr.json", description(layout, {**self.arrays, **tables}))

    def _check_form(self, block: Block) -> None:
        """All blocks are alike: dense or sparse, of one width, with labels of one type and the same columns."""
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
                    f"{self.location}: example {self.n_examples} alone is larger than a shard; raise --shard-bytes"
                )
            self._write_shard(block.take(slice(begin, end)))
            begin = end
        rest = block.take(slice(begin, None))
        self.pending = [rest] if rest.n_examples else []
        self.pending_bytes = sum(part.nbytes for part in rest.x) if rest.n_examples else 0

    def _start(self, block: Block, *, last: bool) -> None:
        """Fix the chunk lengths, now that the first examples are known, and create the arrays."""
        form = form_of(block)
        sparse = form.width is None
        if form.width is not None:
            self.n_features = form.width
        self.layout = Layout(
            kind=self.kind,
            n_features=self.n_features or 0,
            sparse=sparse,
            index_dtype=index_dtype(block.x, self.n_features),
            labels=("",) if is_classification(self.kind) else (),
            columns=form.columns,
            chunk=chunk_lengths(block.x, self.shard_bytes, block.tokens, block.runs, last=last),
            compress=sparse if self.compress is None else self.compress,
            ragged=block.tokens is not None,
            recipe=self.attached.recipe,
            runs={name: column.values.dtype.name for name, column in (block.runs or {}).items()},
        )
        store = zarr_store(self.location, read_only=False)
        with clear_errors(self.location.url):
            attributes = {ATTRIBUTES: {**self.layout.attributes(), "complete": False}}
            self.group = zarr.create_group(store, zarr_format=3, attributes=attributes)
            self.arrays = {spec.name: self._create(spec) for spec in self.layout.arrays}

    def _create(self, spec: ArraySpec) -> "zarr.Array[Any]":
        assert self.layout is not None
        chunk = self.layout.chunk_shape(spec)
        dense = spec.width > 0
        lz4 = [BloscCodec(cname="lz4", clevel=5, shuffle="shuffle")] if self.layout.compress or not dense else []
        return self.group.create_array(
            spec.name,
            shape=(chunk[0] * MANY, *chunk[1:]),
            chunks=chunk,
            dtype=spec.dtype,
            compressors=[*lz4, Crc32cCodec()],
            fill_value=0,
            config={"write_empty_chunks": True},  # lives in this object alone: an array opened anew would skip zeros
        )

    def _write_shard(self, block: Block) -> None:
        assert self.layout is not None
        number = len(self.table)
        where = f"{self.location}: shard {number}"
        check_block(block, where, self.n_examples, self.layout)
        if isinstance(block.x, CsrRows):
            self._check_width(block.x, where)
        y = self._encode(block.y, where)
        arrays = shard_arrays(block, y)
        with clear_errors(self.location.url):
            sync(self._write_chunks(number, arrays))
        lengths = [axis_length(block, axis) for axis in self.layout.axes]
        self.table.append((lengths, largest_norm(block.x), checksum_of(arrays, self.layout)))
        self.n_examples += block.n_examples

    async def _write_chunks(self, number: int, arrays: dict[str, NDArray[Any]]) -> None:
        """Write chunk `number` of each array, all at the same time; returns or raises when none is under way."""
        assert self.layout is not None
        writes = []
        for spec in self.layout.arrays:
            padded = np.zeros(self.layout.chunk_shape(spec), dtype=spec.dtype)
            padded[: len(arrays[spec.name])] = arrays[spec.name]
            where = slice(number * len(padded), (number + 1) * len(padded))
            writes.append(self.arrays[spec.name].async_array.setitem(where, padded))
        for result in await asyncio.gather(*writes, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def _check_width(self, x: CsrRows, where: str) -> None:
        assert self.layout is not None
        widest = int(x.indices.max(initial=-1)) + 1
        self.widest = max(self.widest, widest)
        # Where no width was named, the first block decided how wide column numbers are stored.
        limit = int(np.iinfo(self.layout.index_dtype).max) if self.n_features is None else self.n_features
        if widest > limit:
            row, last = row_of(x, int(np.argmax(x.indices))), widest - 1
            raise InputError(f"{where}, row {row}: feature {last} (counted from 0) is beyond the {limit} features")

    def _encode(self, y: NDArray[Any], where: str) -> NDArray[Any]:
        """Label codes in order of first appearance, or the regression targets themselves."""
        if not is_classification(self.kind):
            return y.astype(np.float64)
        values, at, inverse = np.unique(y, return_index=True, return_inverse=True)
        for k in np.argsort(at):
            self.codes.setdefault(label_name(values[k].item()), len(self.codes))
            if self.kind in ("binary", "latent") and len(self.codes) > 2:
                names = ", ".join(self.codes)
                raise InputError(f"{where}, row {at[k]}: a {self.kind} problem has two labels, found a third: {names}")
        return np.array([self.codes[label_name(value.item())] for value in values], dtype=np.int32)[inverse]

    def _check_labels(self) -> None:
        if is_classification(self.kind) and len(self.codes) < 2:
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

    def _write_table(self, name: str, table: NDArray[Any], chunk: int = TABLE_CHUNK) -> "zarr.Array[Any]":
        array = self.group.create_array(
            name,
            shape=table.shape,
            chunks=(chunk, *table.shape[1:]),
            dtype=table.dtype,
            compressors=[BloscCodec(cname="lz4"), Crc32cCodec()],
            config={"write_empty_chunks": True},
        )
        array[:] = table
        return array


def description(layout: Layout, arrays: "dict[str, zarr.Array[Any]]") -> bytes:
    """zarr.json of a complete data set: our attributes and the metadata of all arrays.

    zarr.consolidate_metadata would list the folder, and trip over what an object store has not yet forgotten.
    """
    members = ConsolidatedMetadata(metadata={name: array.metadata for name, array in arrays.items()})
    attributes = {ATTRIBUTES: {**layout.attributes(), "complete": True}}
    group = GroupMetadata(attributes=attributes, zarr_format=3, consolidated_metadata=members)
    return group.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()


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
    if not is_ours(location, complete=overwrite):
        raise InputError(f"{location}: already holds something; choose an empty destination")
    location.remove()


def is_ours(location: Location, *, complete: bool) -> bool:
    """Whether an unfinished data set is there, or with `complete` any data set that this version knows."""
    try:
        open_dataset(location)
    except IncompleteError:
        return True
    except DamagedError:
        return complete
    except InputError:
        return False
    return complete


class Form(NamedTuple):
    """What all blocks of a source have in common."""

    width: int | None  # of dense features; None for sparse ones
    labels: str
    columns: tuple[str, ...]
    runs: tuple[str, ...] = ()

    def __str__(self) -> str:
        features = "sparse features" if self.width is None else f"{self.width} dense features"
        return ", ".join([features, f"{self.labels} as labels", *self.columns, *self.runs])


def form_of(block: Block) -> Form:
    width = block.x.values.shape[1] if isinstance(block.x, DenseRows) else None
    labels = {"i": "numbers", "u": "numbers", "f": "numbers", "b": "booleans"}.get(block.y.dtype.kind, "words")
    columns = tuple(name for name in ("cost", "margin") if getattr(block, name) is not None)
    return Form(width, labels, columns, tuple(block.runs or ()))


def normal_block(block: Block, where: str) -> Block:
    """The block in the types it is stored in, once its parts fit together."""
    n = n_rows(block.x)
    if block.tokens is not None:
        check_tokens(block.tokens, n, where)
    for name, expected in (("y", n), ("cost", block.n_examples), ("margin", block.n_examples)):
        column = getattr(block, name)
        if column is not None and column.shape != (expected,):
            what = "rows of features" if expected == n else "sequences"
            raise InputError(f"{where}: {expected} {what}, but {name} has the shape {column.shape}")
    if isinstance(block.x, DenseRows) and not block.x.values.shape[1]:
        raise InputError(f"{where}: rows without any feature")
    if isinstance(block.x, CsrRows):
        check_csr(block.x, where)
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is reported as such
        x = block.x._replace(values=block.x.values.astype(np.float32, copy=False))
    cost, margin = (None if column is None else column.astype(np.float64) for column in (block.cost, block.margin))
    return Block(x, block.y, cost, margin, block.tokens, block.runs)


def check_tokens(tokens: Ints, n: int, where: str) -> None:
    """Refuse bounds of sequences that do not cover all rows, and sequences without tokens."""
    if tokens[0] != 0 or tokens[-1] != n or (np.diff(tokens) < 1).any():
        raise InputError(f"{where}: tokens must rise from 0 to the {n} rows of features, one token a sequence at least")


def check_kind(block: Block, kind: str, where: str) -> None:
    if (block.tokens is not None) != (kind in SEQUENCES):
        found, needed = ("single rows", "sequences") if kind in SEQUENCES else ("sequences", "single rows")
        raise InputError(f"{where}: the source holds {found}, but a {kind} problem needs {needed}")
    if block.tokens is not None and block.margin is not None:
        raise InputError(f"{where}: a margin for each sequence has no meaning in a {kind} problem; leave it out")
    if kind == "cfg" and not block.runs:
        raise InputError(f"{where}: a cfg problem needs trees; prepare it from bracketed text")


def check_bags(block: Block, where: str, first: int) -> None:
    """A bag has one label, which stands on each of its rows."""
    assert block.tokens is not None
    differ = block.y != np.repeat(block.y[block.tokens[:-1]], np.diff(block.tokens))
    if differ.any():
        row = int(np.argmax(differ))
        bag = int(np.searchsorted(block.tokens, row, side="right")) - 1
        labels = f"{block.y[block.tokens[bag]]} and {block.y[row]}"
        raise InputError(f"{where}, bag {first + bag}: rows with the labels {labels}; a bag has one label, on each row")


def check_csr(x: CsrRows, where: str) -> None:
    """Refuse row ends that are no row ends, columns below zero, and a column named twice in a row."""
    lengths = np.diff(x.indptr)
    ends_well = x.indptr[0] == 0 and x.indptr[-1] == len(x.indices) == len(x.values)
    if not ends_well or (lengths < 0).any():
        raise InputError(f"{where}: indptr does not describe rows of {len(x.values)} values")
    if x.indices.min(initial=0) < 0:
        raise InputError(f"{where}, row {row_of(x, int(np.argmin(x.indices)))}: a feature number is negative")
    row = np.repeat(np.arange(len(lengths)), lengths)
    at = x.indices
    if not ((np.diff(at) > 0) | (np.diff(row) > 0)).all():
        at = at[np.lexsort((at, row))]  # sorted within each row; `row` itself stays as it is
    again = (np.diff(at) == 0) & (np.diff(row) == 0)
    if again.any():
        k = int(np.argmax(again))
        raise InputError(f"{where}, row {row[k]}: feature {at[k]} (counted from 0) is named twice")


def row_of(x: CsrRows, k: int) -> int:
    """The row that stored value `k` belongs to."""
    return int(np.searchsorted(x.indptr, k, side="right")) - 1


def index_dtype(x: Features, n_features: int | None) -> str:
    """int32 unless a column lies, or may lie, beyond it."""
    last = n_features - 1 if n_features else int(x.indices.max(initial=0)) if isinstance(x, CsrRows) else 0
    return "int32" if last <= np.iinfo(np.int32).max else "int64"


def is_classification(kind: str) -> bool:
    return kind != "regression"


def label_name(label: Any) -> str:
    """A label as people write it: 1, not 1.0."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def chunk_lengths(
    x: Features,
    shard_bytes: int,
    tokens: Ints | None = None,
    runs: Mapping[str, Runs] | None = None,
    *,
    last: bool,
) -> dict[Axis, int]:
    """The longest axes a shard may have, from the first examples; exact if these are all there are."""
    chunk = row_chunk(x, shard_bytes, last=last)
    n_examples = n_rows(x)
    if tokens is not None:
        n, n_examples = chunk["example"], len(tokens) - 1
        fit = n_examples if last and n >= tokens[-1] else max(1, int(1.25 * n * n_examples / tokens[-1]))
        chunk = {"example": fit, "value": chunk["value"], "token": n}
    for name, column in (runs or {}).items():
        most = max(1, len(column.values))
        whole = last and chunk["example"] >= n_examples
        chunk[name] = most if whole else max(1, -(-most * chunk["example"] // n_examples), longest_run(column))
    return chunk


def longest_run(column: Runs) -> int:
    return int(np.diff(column.indptr).max(initial=0))


def row_chunk(x: Features, shard_bytes: int, *, last: bool) -> dict[Axis, int]:
    """The same where each row is an example."""
    n = n_rows(x)
    if isinstance(x, DenseRows):
        fit = max(1, shard_bytes // max(1, x.values.shape[1] * x.values.itemsize))
        return {"example": min(fit, n) if last else fit, "value": 1}
    n_values = int(x.indptr[-1])
    per_value = x.indices.itemsize + x.values.itemsize
    if last and n_values * per_value <= shard_bytes:
        return {"example": n, "value": max(1, n_values)}
    fit = max(1, shard_bytes // per_value)
    # A quarter more examples than the first ones suggest, so that values, not examples, usually close a shard; but
    # never so many that their row ends alone are larger than a shard.
    many = min(int(1.25 * fit * n / max(1, n_values)), shard_bytes // x.indptr.itemsize)
    return {"example": max(1, many), "value": fit}


def shard_ends(
    x: Features,
    chunk: dict[Axis, int],
    tokens: Ints | None = None,
    runs: Mapping[str, Runs] | None = None,
    *,
    last: bool,
) -> Iterator[int]:
    """Cut examples into shards: the end of each that is full, and of the rest if it is the last."""
    n = n_rows(x) if tokens is None else len(tokens) - 1
    limits = [] if tokens is None else [(tokens, chunk["token"])]
    limits += [(column.indptr, chunk[name]) for name, column in (runs or {}).items()]
    if isinstance(x, CsrRows):
        limits.append((x.indptr if tokens is None else x.indptr[tokens], chunk["value"]))
    begin = 0
    while begin < n:
        end = min(n, begin + chunk["example"])
        for total, most in limits:
            end = min(end, int(np.searchsorted(total, total[begin] + most, side="right")) - 1)
        if end == n and end - begin < chunk["example"] and not last:
            return  # the next block may still fill it
        yield end
        if end == begin:
            return
        begin = end


def check_block(block: Block, where: str, first: int, layout: Layout) -> None:
    """Refuse features, targets, costs and margins that are not finite, and costs below zero."""
    bad_rows(by_example(~finite_rows(block.x), block), where, first, "a feature is NaN or infinite as float32")
    if not layout.labels and block.y.dtype.kind not in "fiub":
        raise InputError(f"{where}: regression needs numbers to predict, found {block.y[0]!r}")
    if block.y.dtype.kind == "f":
        bad_rows(by_example(~np.isfinite(block.y), block), where, first, "the label is NaN or infinite")
    for name in layout.columns:
        column = getattr(block, name)
        bad_rows(~np.isfinite(column), where, first, f"the {name} is NaN or infinite")
    if block.cost is not None:
        bad_rows(block.cost < 0, where, first, "the cost is negative")


def by_example(bad: NDArray[np.bool_], block: Block) -> NDArray[np.bool_]:
    """Which examples have a bad row."""
    return bad if block.tokens is None else np.logical_or.reduceat(bad, block.tokens[:-1])


def bad_rows(bad: NDArray[np.bool_], where: str, first: int, what: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(f"{where}, row {row} (example {first + row}): {what}")


def finite_rows(x: Features) -> NDArray[np.bool_]:
    if isinstance(x, DenseRows):
        return np.asarray(np.isfinite(x.values).all(axis=1))
    good = np.isfinite(x.values)
    if good.all():
        return np.ones(n_rows(x), dtype=np.bool_)
    return ~np.isin(np.arange(n_rows(x)), np.searchsorted(x.indptr, np.flatnonzero(~good), side="right") - 1)


def largest_norm(x: Features) -> float:
    squares = x.values.astype(np.float64) ** 2
    if isinstance(x, DenseRows):
        per_row: Floats = squares.sum(axis=1)
    else:
        at = np.repeat(np.arange(n_rows(x)), np.diff(x.indptr))
        per_row = np.bincount(at, squares, minlength=1).astype(np.float64)
    return float(np.sqrt(per_row.max(initial=0.0)))
