"""Stored data sets: opening one, and reading its shards."""

import hashlib
import json
import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray
from zarr.core.sync import sync

from distdual.data.layout import Layout
from distdual.data.layout_schema import check_tables
from distdual.data.shard import Read, Runs, Shard, no_features
from distdual.data.shard_checks import check_norm, check_shard_arrays
from distdual.data.storage.chunks import SPARSE_COLUMNS, Chunks
from distdual.data.storage.joined_crc import joined_crc
from distdual.data.storage.location import Location, clear_errors
from distdual.data.zarr_description import (
    TABLES,
    UNREADABLE,
    DamagedError,
    codecs_of,
    damaged,
    open_group,
    read_layout,
    separator_of,
    stored_as,
    text_array,
)
from distdual.data.zarr_store import MissingChunkError, StrictStore, zarr_store
from distdual.errors import InputError
from distdual.kernels.rounding import value_norm_bound
from distdual.kernels.rows import CsrRows, DenseRows, Features, Floats, Ints

CHANGED_ON_THE_WAY = "FlexibleChecksumError"  # raised by botocore if an object differs from its server's checksum


@dataclass(frozen=True, eq=False)
class Dataset:
    """An open data set: metadata of all shards, and a method to read each."""

    location: Location
    layout: Layout
    lengths: Ints  # (n_shards, len(layout.axes))
    largest_norm: Floats  # (n_shards,)
    checksum: NDArray[np.uint32]  # (n_shards,)
    chunks: Chunks = field(repr=False)
    text_arrays: Mapping[str, Any] = field(repr=False)  # asynchronous Zarr arrays, by the names of texts
    largest: dict[int, float] = field(default_factory=dict, repr=False)  # |feature| of shards that were read, intact

    def open(self) -> "Dataset":
        return self

    @property
    def n_features(self) -> int:
        return self.layout.n_features

    @property
    def ragged(self) -> bool:
        return self.layout.ragged

    @property
    def structured(self) -> bool:
        return self.layout.structured

    @property
    def n_shards(self) -> int:
        return len(self.lengths)

    @property
    def n_examples(self) -> int:
        return int(self.lengths[:, 0].sum())

    @cached_property
    def first(self) -> Ints:
        """(n_shards + 1,) number of the first example of each shard, and of the one after the last."""
        return np.concatenate([[0], np.cumsum(self.lengths[:, 0])])

    @property
    def nbytes(self) -> int:
        """Bytes of all shards in memory."""
        total = 0
        for spec in self.layout.arrays:
            entries = int(self.lengths[:, self.layout.axes.index(spec.axis)].sum()) + spec.extra * self.n_shards
            total += entries * max(spec.width, 1) * np.dtype(spec.dtype).itemsize
        return total

    @property
    def shard_bytes(self) -> int:
        """Bytes of a shard in memory, on average."""
        return self.nbytes // self.n_shards

    @property
    def n_values(self) -> int:
        return int(self.lengths[:, 1].sum()) if self.layout.sparse else self.n_rows * self.layout.n_features

    @property
    def n_rows(self) -> int:
        """Rows of features: tokens where examples are sequences, else examples."""
        return int(self.lengths[:, 2].sum()) if self.layout.ragged else self.n_examples

    @property
    def rows_of_shards(self) -> Ints:
        """(n_shards,) rows of features."""
        return self.lengths[:, 2 if self.layout.ragged else 0]

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The labels in their natural order: numbers by value, words by spelling."""
        return tuple(sorted(self.layout.labels, key=natural))

    @cached_property
    def _rank(self) -> NDArray[np.int32]:
        """The index in `classes` of each stored label code."""
        return np.array([self.classes.index(label) for label in self.layout.labels], dtype=np.int32)

    @cached_property
    def fingerprint(self) -> str:
        """Changes when any byte of any shard does, or the meaning of one: labels, columns, width, kind."""
        layout = self.layout
        meaning = [layout.kind, layout.n_features, layout.sparse, layout.labels, layout.columns]
        meaning += [layout.runs, layout.texts] if layout.runs or layout.texts else []
        meaning += [layout.structured] if layout.structured else []
        meaning += ["unlabelled"] if layout.unlabelled else []
        digest = hashlib.sha256(json.dumps(meaning).encode())
        digest.update(self.lengths.tobytes())
        digest.update(self.checksum.tobytes())
        return digest.hexdigest()

    def head(self, n: int) -> "Dataset":
        """The first n shards as a data set."""
        return replace(self, lengths=self.lengths[:n], largest_norm=self.largest_norm[:n], checksum=self.checksum[:n])

    @property
    def texts(self) -> "Texts":
        return Texts(self)

    def read(self, number: int, *, check: bool = True) -> Read:
        """Shard `number` and the cost of reading it: one GET for each array, all at the same time.

        A shard that differs from what `prepare` wrote is an error, unless `check` is off. Values with which kernels
        could crash are always an error: a checksum protects against accidents only. Features are searched for NaN and
        infinity when a shard is read first; a run takes what has the same checksum later to be the same anyway.
        """
        lengths = dict(zip(self.layout.axes, self.lengths[number].tolist(), strict=True))
        chunks = self.chunks.read(number, lengths)
        arrays = {name: chunk.values for name, chunk in chunks.items()}
        crc = joined_crc((chunks[spec.name].crc, arrays[spec.name].nbytes) for spec in self.layout.arrays)
        intact = crc == self.checksum[number]
        where = f"{self.location}: shard {number}"
        if check and not intact:
            raise InputError(f"{where} is not what was prepared: its checksum differs; prepare it again")
        falls = chunks[SPARSE_COLUMNS].falls if SPARSE_COLUMNS in chunks else None
        largest = self.largest.get(number) if intact else None
        largest = check_shard_arrays(where, self.layout, arrays, largest, falls)
        if intact:
            self.largest[number] = largest
        if check:
            check_norm(where, largest, float(self.largest_norm[number]))
        n_bytes = sum(chunk.n_bytes for chunk in chunks.values())
        n_gets = sum(chunk.n_gets for chunk in chunks.values())
        return Read(self._shard(number, arrays, largest), n_bytes, n_gets, intact)

    def _shard(self, number: int, arrays: dict[str, NDArray[Any]], largest: float) -> Shard:
        x: Features
        if self.layout.structured:
            x = no_features(int(self.lengths[number, 0]))
        elif self.layout.sparse:
            x = CsrRows(arrays["indptr"], arrays["indices"], arrays["values"])
        else:
            x = DenseRows(arrays["x"])
        y: NDArray[Any]
        if self.layout.unlabelled:
            y = np.zeros(x.n_rows, dtype=np.int32)
        elif self.layout.structured:
            y = np.zeros(x.n_rows)  # what the runs hold instead is for the problem to read
        else:
            y = self._rank[arrays["y"]] if self.layout.labels else arrays["y"]
        cost, margin, tokens = (arrays.get(name) for name in ("cost", "margin", "tokens"))
        runs = {name: Runs(arrays[f"{name}_indptr"], arrays[name]) for name in self.layout.runs}
        norm = value_norm_bound(x, largest)
        return Shard(number, int(self.first[number]), x, y, cost, margin, tokens, runs or None, norm=norm)


def check_labelled(dataset: Dataset) -> Dataset:
    """Refuse rows that were prepared for predictions alone."""
    if dataset.layout.unlabelled:
        raise InputError(f"{dataset.location}: was prepared without labels, so that it can be predicted, nothing else")
    return dataset


class Texts(Mapping[str, str]):
    """The texts of a data set, each read on access and checked against its checksum."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __getitem__(self, name: str) -> str:
        where = f"{self.dataset.location}: the text {name!r}"
        expected = self.dataset.layout.texts[name]
        try:
            with clear_errors(self.dataset.location.url):
                content = np.asarray(sync(self.dataset.text_arrays[name].getitem(slice(None)))).tobytes()
        except (MissingChunkError, *UNREADABLE) as error:
            raise damaged(error, f"{where} is missing or damaged ({{}}); prepare the data set again") from None
        if google_crc32c.extend(0, content) != expected:
            raise InputError(f"{where} is not what was prepared: its checksum differs; prepare the data set again")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise InputError(f"{where} is not UTF-8 text: {error}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.dataset.layout.texts)

    def __len__(self) -> int:
        return len(self.dataset.layout.texts)


def natural(label: str) -> tuple[float, str]:
    """A sort key: numbers by value, then everything else by spelling."""
    try:
        value = float(label)
    except ValueError:
        value = math.inf
    return (value if math.isfinite(value) else math.inf), label


def open_dataset(location: Location) -> Dataset:
    """Open the data set at `location`: one GET for what describes it, then one for each of three small tables.

    Storage that does not answer is an error at once, since the address may be wrong. Reads of shards are retried.
    """
    store = StrictStore(zarr_store(location, read_only=True))
    try:
        return dataset_at(location, store)
    except InputError as error:
        if not isinstance(error, DamagedError) and CHANGED_ON_THE_WAY not in str(error):
            raise
        return dataset_at(location, store)  # damage during transfer does not happen twice


def dataset_at(location: Location, store: StrictStore) -> Dataset:
    with clear_errors(location.url):
        return dataset_in(location.absolute(), store)


def dataset_in(location: Location, store: StrictStore) -> Dataset:
    group = open_group(location, store)
    layout = read_layout(location, group)
    try:
        layout = replace(layout, separator=separator_of(location, group, layout))
        codecs = {spec.name: codecs_of(location, group, layout, spec) for spec in layout.arrays}
        texts = {name: stored_as(location, group, text_array(name), "uint8").async_array for name in layout.texts}
        tables = {name: stored_as(location, group, name, *form) for name, form in TABLES.items()}
        lengths, largest_norm, checksum = (np.asarray(each[:]) for each in tables.values())
        check_tables(str(location), layout, lengths, largest_norm, checksum)
    except (MissingChunkError, *UNREADABLE) as error:
        raise damaged(error, f"{location}: an array is missing or damaged ({{}}); prepare it again") from None
    return Dataset(location, layout, lengths, largest_norm, checksum, Chunks(location, layout, codecs), texts)


KEPT_OPEN = 4  # data sets that a process keeps open
_opened: dict[str, Dataset] = {}
_opening = threading.Lock()


def open_once(location: Location, fingerprint: str, n_shards: int) -> Dataset:
    """The first shards of a data set with this fingerprint, opened once per process and shared by its tasks.

    A run therefore continues with the shards it began with when others are appended.
    """
    key = json.dumps([location.url, dict(location.storage_options), location.retry_seconds, fingerprint], default=repr)
    with _opening:
        if key not in _opened:
            found, _ = location.patiently("", lambda: open_dataset(location))
            found = found.head(n_shards)
            if found.fingerprint != fingerprint:
                raise InputError(f"{location}: the data set has changed since the run began")
            if len(_opened) >= KEPT_OPEN:
                del _opened[next(iter(_opened))]
            _opened[key] = found
        return _opened[key]
