"""Lower priority for workers that share a machine with the coordinator, which all of them wait for.

Dask loads this module into each worker process of a local cluster (`preload`).
"""

import os
from typing import Any

NICE = 5  # about a third of the processor time of a competing process


def dask_setup(worker: Any) -> None:  # noqa: ARG001 - the signature that Dask calls
    if hasattr(os, "nice"):  # not on Windows
        os.nice(NICE)
