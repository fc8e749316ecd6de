"""How is a data set opened, and one shard of it read?"""

import hashlib
import json
import math
import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import google_crc32c
import numpy as np
import zarr
import zarr.errors
from numpy.typing import NDArray
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import FsspecStore, LocalStore, WrapperStore

from distdual.data.layout import ATTRIBUTES, AXES, CHECKSUMS, FORMAT, LENGTHS, NORMS, ArraySpec, Axis, Layout
from distdual.data.location import Location, clear_errors
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.rows import CsrRows, DenseRows, Floats, Ints, Rows


class MissingChunkError(Exception):
    """Zarr would read a chunk that is not there as fill values; for us a lost chunk is lost data."""


class StrictStore(WrapperStore[Store]):
    """A Zarr store that refuses to make up lost chunks and remembers how many bytes each chunk had on disk."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.sizes: dict[str, int] = {}

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        found = await super().get(key, prototype, byte_range)
        if "/c/" in key:
            if found is None:
                raise MissingChunkError(key)
            self.sizes[key] = len(found)
        return found


def zarr_store(location: Location, *, read_only: bool) -> Store:
    if not location.remote:
        _, path = location.filesystem()
        return LocalStore(path, read_only=read_only)
    return FsspecStore.from_url(location.url, storage_options=dict(location.storage_options), read_only=read_only)


@dataclass(frozen=True)
class Dataset:
    """An open data set: what is known about all shards, and a way to read each."""

    location: Location
    layout: Layout
    lengths: Ints  # (n_shards, len(AXES))
    largest_norm: Floats  # (n_shards,)
    checksum: NDArray[np.uint32]  # (n_shards,)
    group: zarr.Group = field(repr=False, compare=False)
    store: StrictStore = field(repr=False, compare=False)

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
            entries = int(self.lengths[:, AXES.index(spec.axis)].sum()) + spec.extra * self.n_shards
            total += entries * max(spec.width, 1) * np.dtype(spec.dtype).itemsize
        return total

    @property
    def n_values(self) -> int:
        return int(self.lengths[:, 1].sum()) if self.layout.sparse else self.n_examples * self.layout.n_features

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The labels in their natural order: numbers by value, words by spelling."""
        return tuple(sorted(self.layout.labels, key=natural))

    @cached_property
    def _rank(self) -> NDArray[np.int32]:
        """Place in `classes` of each stored label code."""
        return np.array([self.classes.index(label) for label in self.layout.labels], dtype=np.int32)

    @cached_property
    def fingerprint(self) -> str:
        """Changes when any byte of any shard, the labels or the width of the data set does."""
        digest = hashlib.sha256(json.dumps([self.layout.n_features, *self.layout.labels]).encode())
        digest.update(self.lengths.tobytes())
        digest.update(self.checksum.tobytes())
        return digest.hexdigest()

    def read(self, number: int, *, check: bool = True) -> tuple[Shard, int]:
        """Shard `number` and the bytes read for it: one GET an array.

        Unless `check` is off, a shard that is not what `prepare` wrote is an error.
        """
        arrays: dict[str, NDArray[Any]] = {}
        n_bytes = 0
        for spec in self.layout.arrays:
            arrays[spec.name], size = self._read_array(spec, number)
            n_bytes += size
        if check and checksum_of(arrays, self.layout) != self.checksum[number]:
            raise InputError(
                f"{self.location}: shard {number} is not what was prepared: its checksum differs; prepare it again"
            )
        return self._shard(number, arrays), n_bytes

    def is_intact(self, shard: Shard) -> bool:
        """Whether a shard read without `check` is what `prepare` wrote."""
        codes = np.argsort(self._rank).astype(np.int32)[shard.y] if self.layout.labels else shard.y
        return checksum_of(shard_arrays(shard.x, codes, shard.cost, shard.margin), self.layout) == int(
            self.checksum[shard.number]
        )

    def _read_array(self, spec: ArraySpec, number: int) -> tuple[NDArray[Any], int]:
        length = int(self.lengths[number, AXES.index(spec.axis)]) + spec.extra
        where = f"{self.location}: shard {number}, array {spec.name!r}"
        key = f"{spec.name}/c/{number}" + ("/0" if spec.width else "")
        try:
            with clear_errors(f"{self.location}/{key}"):
                chunk = self.group[spec.name].blocks[number]  # type: ignore[union-attr]
        except MissingChunkError:
            raise InputError(f"{where}: the chunk is missing; prepare the data set again") from None
        except (ValueError, RuntimeError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{where}: the chunk is damaged ({error}); prepare the data set again") from None
        return np.asarray(chunk)[:length], self.store.sizes.pop(key, 0)

    def _shard(self, number: int, arrays: dict[str, NDArray[Any]]) -> Shard:
        x: Rows
        if self.layout.sparse:
            x = CsrRows(arrays["indptr"], arrays["indices"], arrays["values"])
        else:
            x = DenseRows(arrays["x"])
        y = self._rank[arrays["y"]] if self.layout.labels else arrays["y"]
        return Shard(number, int(self.first[number]), x, y, arrays.get("cost"), arrays.get("margin"))


def shard_arrays(x: Rows, y: NDArray[Any], cost: Floats | None, margin: Floats | None) -> dict[str, NDArray[Any]]:
    """The arrays of a shard under their names in the data set."""
    features = {"x": x.values} if isinstance(x, DenseRows) else x._asdict()
    columns = {"y": y, "cost": cost, "margin": margin}
    return {**features, **{name: column for name, column in columns.items() if column is not None}}


def checksum_of(arrays: dict[str, NDArray[Any]], layout: Layout) -> int:
    """crc32c over the arrays of a shard, without padding."""
    crc = 0
    for spec in layout.arrays:
        flat = np.ascontiguousarray(arrays[spec.name], dtype=spec.dtype).reshape(-1)
        crc = google_crc32c.extend(crc, flat.view(np.uint8))
    return crc


def natural(label: str) -> tuple[float, str]:
    """A sort key: numbers by value, then everything else by spelling."""
    try:
        return float(label), ""
    except ValueError:
        return math.inf, label


def open_dataset(location: Location) -> Dataset:
    """Open the data set at `location`: two GETs for what describes it, then one for each of three small tables."""
    with clear_errors(location.url):
        store = StrictStore(zarr_store(location, read_only=True))
        try:
            group = zarr.open_group(store, mode="r", zarr_format=3)
        except (zarr.errors.GroupNotFoundError, FileNotFoundError, zarr.errors.NodeTypeValidationError):
            raise InputError(f"{location}: there is no data set; make one with `distdual prepare`") from None
        attributes = check_attributes(location, dict(group.attrs).get(ATTRIBUTES))
        try:
            lengths, largest_norm, checksum = (np.asarray(group[name][:]) for name in (LENGTHS, NORMS, CHECKSUMS))  # type: ignore[index]
        except (KeyError, MissingChunkError, ValueError, RuntimeError) as error:
            raise InputError(f"{location}: the tables of shards are damaged ({error}); prepare it again") from None
    return Dataset(location, Layout.from_attributes(attributes), lengths, largest_norm, checksum, group, store)


def check_attributes(location: Location, attributes: Any) -> dict[str, Any]:
    if not isinstance(attributes, dict) or "format" not in attributes:
        raise InputError(f"{location}: this Zarr group is not a distdual data set")
    if attributes["format"] > FORMAT:
        raise InputError(
            f"{location}: data format {attributes['format']} is newer than {FORMAT}, "
            "the newest this version reads; upgrade distdual"
        )
    if not attributes.get("complete"):
        raise InputError(f"{location}: the data set is incomplete: its `prepare` was interrupted; run it again")
    return attributes


_opened: dict[str, Dataset] = {}
_opening = threading.Lock()


def open_once(location: Location, fingerprint: str) -> Dataset:
    """The data set with this fingerprint, opened once a process; workers use it for every shard they read."""
    key = json.dumps([location.url, dict(location.storage_options), fingerprint], default=repr)
    with _opening:
        if key not in _opened:
            found = open_dataset(location)
            if found.fingerprint != fingerprint:
                raise InputError(f"{location}: the data set has changed since the run began")
            _opened.clear()  # a process works on one data set at a time; older ones need not stay open
            _opened[key] = found
        return _opened[key]


def axis_length(x: Rows, axis: Axis) -> int:
    if axis == "value":
        return int(x.indptr[-1]) if isinstance(x, CsrRows) else 0
    return len(x.indptr) - 1 if isinstance(x, CsrRows) else len(x.values)
