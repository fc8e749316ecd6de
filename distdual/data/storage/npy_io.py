"""Reads of .npy arrays: one thread at a time, and never with pickle.

NumPy reads a header with Python's parser, which in Python 3.11 and 3.12 counts its depth for all threads together: two
of them at once end in a SystemError now and then (python/cpython issue 106905).
"""

import io
import math
import threading
import zipfile
import zlib
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from distdual.memory import check_room

ONE_AT_A_TIME = threading.RLock()
BAD_ZIP = (ValueError, EOFError, KeyError, OSError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error)


def load_npy(file: IO[bytes]) -> NDArray[Any]:
    """The next array of a file; what is none is a ValueError or an EOFError.

    NumPy would allocate what the header claims; here that much must be there.
    """
    with ONE_AT_A_TIME:
        shape, fortran, dtype = read_header(file)
        size = math.prod(shape) * dtype.itemsize
        begin = file.tell()
        there = file.seek(0, io.SEEK_END) - begin
        if dtype.hasobject:
            raise ValueError("an array of pickled objects, which are never read")
        if size > there:
            raise ValueError(f"an array of {dtype}, {shape} is claimed by {there} bytes")
        file.seek(begin)
        content = bytearray(size)
        file.readinto(content)  # type: ignore[attr-defined]
        values = np.frombuffer(content, dtype=dtype, count=math.prod(shape))
        return values.reshape(shape, order="F" if fortran else "C")


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of the array that follows."""
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of the .npy format, as NumPy does not write for plain arrays")
    try:
        shape, fortran, dtype = readers[version](file)
    except (SyntaxError, RecursionError, MemoryError, TypeError) as error:
        raise ValueError(f"its header cannot be read: {error}") from None
    if any(n < 0 for n in shape):
        raise ValueError(f"the shape is {shape}")
    return shape, fortran, dtype


def unzip(content: bytes) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file; one that is not in its right shape raises one of BAD_ZIP."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        check_room("an .npz file", sum(member.file_size for member in members))
        return {member.filename.removesuffix(".npy"): load_npy(io.BytesIO(archive.read(member))) for member in members}
