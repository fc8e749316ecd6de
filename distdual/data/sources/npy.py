"""Blocks of examples from .npz and .npy files, which are never loaded whole.

An .npz file holds `x` (dense, one row an example) or `indptr`, `indices`, `values` (CSR, columns counted from 0) with
an optional `n_features`; `y`; and optionally `cost` and `margin`. Where examples are sequences, rows are tokens, and
`tokens` holds where each sequence begins, and the end of the last; or `qid` names the query of each row.

Nothing is ever unpickled.
"""

import bz2
import contextlib
import gzip
import lzma
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from distdual.data.shard import Block
from distdual.data.sources.arrays import Stream, assemble, csr_rows, cuts, dense_rows
from distdual.data.sources.open_file import BLOCK_BYTES, damage_named, open_decompressed
from distdual.data.sources.sequences import begins_at, check_bounds, lengths_of, whole_sequences
from distdual.data.storage.location import Location
from distdual.data.storage.npy_io import ONE_AT_A_TIME, read_header
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, DenseRows, Ints

CSR = ("indptr", "indices", "values")
EXAMPLE_COLUMNS = ("y", "cost", "margin")
RAGGED = ("tokens", "qid")
KNOWN = ("x", *CSR, "n_features", *EXAMPLE_COLUMNS, *RAGGED)
INDPTR_PIECE = 1 << 16  # rows whose lengths are checked together


class ArrayNames(NamedTuple):
    """Which arrays of a file hold features and labels; None for those that are named as usual."""

    x: str | None = None
    y: str | None = None


AS_USUAL = ArrayNames()


class Header(NamedTuple):
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]


def blocks_from_npz(source: Location, names: ArrayNames = AS_USUAL, *, labelled: bool = True) -> Iterator[Block]:
    """The examples of an archive; without labels, if wanted, where there are none."""
    with open_npz(source, names, labelled=labelled) as (archive, members), contextlib.ExitStack() as files:

        def stream(name: str, ndim: int = 1) -> Stream:
            file = cast(BinaryIO, files.enter_context(archive.open(members[name])))
            return array_stream(file, f"{source}: array {name!r}", ndim)

        columns = {name: stream(name) for name in EXAMPLE_COLUMNS if name in members}
        ragged = [name for name in RAGGED if name in members]
        cost = columns.pop("cost", None) if ragged else None  # an entry a sequence, not a row
        if "x" in members:
            x = stream("x", ndim=2)
            n, blocks = x.length, assemble(dense_from(x), x.length, columns, x.name)
        else:
            indptr, indices, values = map(stream, CSR)
            rows = csr_from(indptr, indices, values, declared_width(archive, members, source))
            n, blocks = row_count(indptr), assemble(rows, row_count(indptr), columns, indptr.name)
        if ragged:
            bounds = stream(ragged[0])
            given = bounds.take(bounds.length or 0)
            if ragged[0] == "qid":
                given = np.concatenate([[0], np.cumsum(lengths_of(given, bounds.name))])
            tokens = check_bounds(given, n, bounds.name)
            blocks = whole_sequences(begins_at(blocks, tokens), cost)
        yield from blocks


def blocks_from_npy(x: Location, y: Location | None) -> Iterator[Block]:
    """Dense features in one .npy file, labels in another, if there are any."""
    with open_decompressed(x) as x_file, contextlib.ExitStack() as files:
        features = array_stream(x_file, f"{x}: the array", ndim=2)
        columns = {}
        if y is not None:
            columns["y"] = array_stream(files.enter_context(open_decompressed(y)), f"{y}: the array", ndim=1)
        yield from assemble(dense_from(features), features.length, columns, features.name)


def npz_has(source: Location, name: str) -> bool:
    """Whether an archive has an array of this name."""
    with open_seekable(source) as file, damage_named(source), zipfile.ZipFile(file) as archive:
        return f"{name}.npy" in archive.namelist()


def npz_width(source: Location, names: ArrayNames = AS_USUAL, *, labelled: bool = True) -> int | None:
    """The `n_features` that a file of sparse rows declares."""
    with open_npz(source, names, labelled=labelled) as (archive, members):
        return declared_width(archive, members, source)


@contextlib.contextmanager
def open_npz(
    source: Location, names: ArrayNames, *, labelled: bool
) -> Iterator[tuple[zipfile.ZipFile, dict[str, str]]]:
    """The archive, and which of its members holds each array."""
    with open_seekable(source) as file, damage_named(source):
        try:
            with zipfile.ZipFile(file) as archive:
                yield archive, find_members(archive, source, names, labelled=labelled)
        except (RuntimeError, NotImplementedError) as error:  # encrypted, or packed in a way Python cannot undo
            raise InputError(f"{source}: the archive cannot be read: {error}") from None


@contextlib.contextmanager
def open_seekable(source: Location) -> Iterator[BinaryIO]:
    """The file itself, or a temporary copy of what a compressed one holds: an archive is not read from front to end."""
    with open_decompressed(source) as file:
        if not isinstance(file, gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile):
            yield file
            return
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
            yield cast(BinaryIO, copy)


def find_members(archive: zipfile.ZipFile, source: Location, names: ArrayNames, *, labelled: bool) -> dict[str, str]:
    """The member of each array that is known by its name, or that the user names; others are left out then."""
    there = {member.removesuffix(".npy"): member for member in archive.namelist()}
    named = {what: name for what, name in names._asdict().items() if name is not None}
    for name in named.values():
        if name not in there:
            raise InputError(f"{source}: there is no array {name!r}, only {', '.join(there)}")
    members: dict[str, str] = {what: there[name] for what, name in named.items()}
    for found, member in there.items():
        name = "x" if found == "X" else found
        if found in named.values() or name in named or ("x" in named and name in (*CSR, "n_features")):
            continue
        if named and name not in KNOWN:
            continue
        if name not in KNOWN or name in members:
            raise InputError(
                f"{source}: unexpected array {name!r}; known are {', '.join(KNOWN)}, each once; "
                "name those of features and labels with --x and --y to leave others out"
            )
        members[name] = member
    if set(RAGGED) <= set(members):
        raise InputError(f"{source}: arrays 'tokens' and 'qid' both say where queries begin; leave one out")
    sparse = [name for name in (*CSR, "n_features") if name in members]
    if "x" in members and sparse:
        raise InputError(f"{source}: features are given twice, as array 'x' and as array {sparse[0]!r}")
    for name in ("x" if "x" in members or not sparse else "", *(CSR if sparse else ()), "y" if labelled else ""):
        if name and name not in members:
            raise InputError(f"{source}: array {name!r} is missing")
    return members


def declared_width(archive: zipfile.ZipFile, members: Mapping[str, str], source: Location) -> int | None:
    if "n_features" not in members:
        return None
    name = f"{source}: array 'n_features'"
    with archive.open(members["n_features"]) as file:
        header = header_of(cast(BinaryIO, file), name)
        if header.shape != () or header.dtype.kind not in "iu":
            raise InputError(f"{name} must be a single integer")
        width = int(np.frombuffer(read_exactly(cast(BinaryIO, file), header.dtype.itemsize, name), header.dtype)[0])
    if width < 1:
        raise InputError(f"{name} must be positive, found {width}")
    return width


def array_stream(file: BinaryIO, name: str, ndim: int) -> Stream:
    """The array that a file open at its start holds, to be read along its first axis."""
    header = header_of(file, name)
    if len(header.shape) != ndim:
        raise InputError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, found {len(header.shape)}")
    if ndim == 2 and header.shape[1] == 0:
        raise InputError(f"{name} has no columns")
    by_column = header.fortran and ndim == 2
    return Stream(name, header.shape[0], (pieces_by_column if by_column else pieces_by_row)(file, header, name))


def header_of(file: BinaryIO, name: str) -> Header:
    try:
        with ONE_AT_A_TIME:
            header = Header(*read_header(file))
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} is not in NumPy's file format ({str(error).splitlines()[0]})") from None
    if header.dtype.hasobject or header.dtype.itemsize == 0:
        raise InputError(f"{name} has dtype {header.dtype}, which is not read from files")
    return header


def pieces_by_row(file: BinaryIO, header: Header, name: str) -> Iterator[NDArray[Any]]:
    row_bytes = header.dtype.itemsize * int(np.prod(header.shape[1:], dtype=np.int64))
    step = max(1, BLOCK_BYTES // row_bytes)
    for begin in range(0, header.shape[0], step):
        n = min(step, header.shape[0] - begin)
        data = read_exactly(file, n * row_bytes, name)
        yield np.frombuffer(data, header.dtype).reshape(n, *header.shape[1:])


def pieces_by_column(file: BinaryIO, header: Header, name: str) -> Iterator[NDArray[Any]]:
    """Rows of an array stored column by column: only a copy that can be mapped gives them without loading it all."""
    step = max(1, BLOCK_BYTES // (header.dtype.itemsize * header.shape[1]))
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy, 1 << 20)
        if copy.tell() < header.dtype.itemsize * int(np.prod(header.shape, dtype=np.int64)):
            raise InputError(f"{name} is cut short")
        mapped = np.memmap(copy, header.dtype, "r", shape=header.shape, order="F") if header.shape[0] else np.empty(0)
        for begin in range(0, header.shape[0], step):
            yield np.asarray(mapped[begin : begin + step])


def read_exactly(file: BinaryIO, size: int, name: str) -> bytes:
    parts = []
    while size > 0:
        part = file.read(size)
        if not part:
            raise InputError(f"{name} is cut short")
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def dense_from(x: Stream) -> Iterator[DenseRows]:
    first = 0
    for piece in x.pieces:
        yield dense_rows(piece, x.name, first)
        first += len(piece)


def row_count(indptr: Stream) -> int:
    if not indptr.length:
        raise InputError(f"{indptr.name} is empty; it has one entry more than there are rows")
    return indptr.length - 1


def csr_from(indptr: Stream, indices: Stream, values: Stream, width: int | None) -> Iterator[CsrRows]:
    """Rows as their lengths come in; without a declared width, column numbers must fit int32."""
    n = row_count(indptr)
    last = np.zeros(1, np.int64)
    if indptr.take(1)[0] != 0:
        raise InputError(f"{indptr.name} must start with 0")
    for begin in range(0, n, INDPTR_PIECE):
        bounds = check_indptr(last, indptr.take(min(INDPTR_PIECE, n - begin)), indptr.name)
        for a, b in cuts(bounds):
            size = int(bounds[b] - bounds[a])
            columns = check_indices(indices.take(size), width, indices.name)
            wide = width or int(columns.max(initial=0)) + 1
            yield csr_rows(bounds[a : b + 1] - bounds[a], columns, values.take(size), wide, values.name, begin + a)
        last = bounds[-1:]
    indices.check_end()
    values.check_end()


def check_indptr(last: Ints, piece: NDArray[Any], name: str) -> Ints:
    """The row bounds of a piece, with the end of the piece before it in front."""
    if piece.dtype.kind not in "iu":
        raise InputError(f"{name} has dtype {piece.dtype}; integers are expected")
    bounds = np.concatenate([last, piece.astype(np.int64)])
    if (np.diff(bounds) < 0).any():
        raise InputError(f"{name} falls; the bounds of rows must rise or stay")
    return bounds


def check_indices(indices: NDArray[Any], width: int | None, name: str) -> NDArray[Any]:
    if indices.dtype.kind not in "iu":
        raise InputError(f"{name} has dtype {indices.dtype}; integers are expected")
    if len(indices) and int(indices.min()) < 0:
        raise InputError(f"{name} holds the column number {indices.min()}; columns count from 0")
    if len(indices) and int(indices.max()) >= (width or 2**31):
        limit = f"the {width} features" if width else f"{2**31 - 1}; declare n_features"
        raise InputError(f"{name} holds the column number {indices.max()}, which is beyond {limit}")
    return indices
