"""Source files, local or remote, opened and decompressed."""

import bz2
import contextlib
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from distdual.data.storage.location import Location, clear_errors
from distdual.errors import InputError

BLOCK_BYTES = 8 << 20  # what a reader holds of a source at a time, roughly

# by the first bytes of a file
OPENERS: dict[bytes, Callable[[Any], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


@contextlib.contextmanager
def open_source(source: Location) -> Iterator[BinaryIO]:
    """The bytes of a file as they are stored; the file can seek."""
    fs, path = source.filesystem()
    with clear_errors(source.url), fs.open(path, "rb") as file:
        yield file


@contextlib.contextmanager
def open_decompressed(source: Location) -> Iterator[BinaryIO]:
    """The bytes of a file that may be plain, gzip, bzip2 or xz: its first bytes tell."""
    with open_source(source) as file:
        first = first_bytes(file)
        opener = next((OPENERS[magic] for magic in OPENERS if first.startswith(magic)), None)
        if opener is None:
            yield file
            return
        with damage_named(source), opener(file) as stream:
            yield stream


@contextlib.contextmanager
def damage_named(source: Location) -> Iterator[None]:
    """Turn what the decompressors raise into one sentence about `source`."""
    try:
        yield
    except DAMAGE:
        damaged = True
    except OSError as error:
        if error.errno is not None or type(error) is not OSError:
            raise
        damaged = True  # how bz2 speaks of bad data
    else:
        damaged = False
    if damaged:
        raise InputError(f"{source}: the compressed file is damaged or cut short")


def first_bytes(file: BinaryIO, size: int = 6) -> bytes:
    """The first bytes of a file, which is then at its start again."""
    found = file.read(size)
    file.seek(0)
    return found


def read_pieces(source: Location, size: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The decompressed bytes of a file, about `size` at a time."""
    with open_decompressed(source) as file:
        while piece := file.read(size):
            yield piece
