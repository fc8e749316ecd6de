"""A description of the machine that a benchmark runs on."""

import ctypes
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

IN_ADVANCE = 2**31  # bytes, more than the cases of one suite need at a time
LARGE_PAGE = 2**21
PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "dask", "zarr", "snapml", "liblinear-official", "dask-ml")
PACKAGES += ("sklearn-contrib-lightning", "pyspark", "python-crfsuite", "dlib")


def memory(what: str) -> int:
    """Bytes of this process, now (VmRSS) or at its peak (VmHWM)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1]) * 1024


def machine() -> dict[str, Any]:
    """Processor model, cores and memory; no host name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gb": round(n_bytes / 2**30),
        "system": platform.system(),
    }


def keep_memory() -> bool:
    """Have this process keep freed memory, in whichever thread it is freed; False where the C library is not glibc.

    A virtual machine may give freed memory back to its host, and be slow to get it again: here 3 ms a MB. Without this,
    a solver is timed by how much the one before it has freed. So that none pays for memory that the process has not
    had before, it takes some in advance: a solver whose arrays lie elsewhere each time would, at every run.
    """
    trim_threshold, top_pad, mmap_max, arena_max = -1, -2, -4, -8  # <malloc.h>
    c = ctypes.CDLL(None)
    try:
        mallopt = c.mallopt
    except AttributeError:
        return False
    told = {trim_threshold: -1, mmap_max: 0, top_pad: 2**28, arena_max: 1}
    taken = [mallopt(name, value) for name, value in told.items()]
    take_in_advance(c)
    return all(taken)


def take_in_advance(c: ctypes.CDLL) -> None:
    """Have memory of this process written to once, in pages as large as NumPy asks for where its arrays are large."""
    c.malloc.restype = ctypes.c_void_p
    place = c.malloc(ctypes.c_size_t(IN_ADVANCE))
    if place is None:  # then it is to be had piece by piece
        return
    first = -(-place // LARGE_PAGE) * LARGE_PAGE
    advise_huge_pages = 14  # <sys/mman.h>
    c.madvise(ctypes.c_void_p(first), ctypes.c_size_t(IN_ADVANCE - LARGE_PAGE), advise_huge_pages)
    ctypes.memset(place, 0, IN_ADVANCE)
    c.free(ctypes.c_void_p(place))


def load() -> float:
    """The load average of the last minute: other work makes measurements unreliable."""
    return os.getloadavg()[0]


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
