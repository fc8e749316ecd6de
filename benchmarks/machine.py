"""What did a benchmark run on?"""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "scipy", "numba", "scikit-learn", "dask", "zarr", "snapml", "liblinear-official", "dask-ml")
PACKAGES += ("sklearn-contrib-lightning", "pyspark", "python-crfsuite", "dlib")


def memory(what: str) -> int:
    """Bytes of this process, now (VmRSS) or at its peak (VmHWM)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1]) * 1024


def machine() -> dict[str, Any]:
    """Kind of processor, cores and memory; nothing that names the machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gb": round(n_bytes / 2**30),
        "system": platform.system(),
    }


def load() -> float:
    """Processes that want a core, averaged over the last minute: other work makes figures unsure."""
    return os.getloadavg()[0]


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
