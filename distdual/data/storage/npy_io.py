"""Reads of .npy arrays: one thread at a time, and never with pickle.

NumPy reads a header with Python's parser, which in Python 3.11 and 3.12 counts its depth for all threads together: two
of them at once end in a SystemError now and then (python/cpython issue 106905).
"""

import io
import threading
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

ONE_AT_A_TIME = threading.RLock()


def load_npy(file: IO[bytes]) -> NDArray[Any]:
    """The next array of a file; what is none is a ValueError or an EOFError."""
    with ONE_AT_A_TIME:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def unzip(content: bytes) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file."""
    with ONE_AT_A_TIME, np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)
