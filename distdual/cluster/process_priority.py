"""Who goes first where workers and coordinator share a machine? The coordinator: all of the workers wait for it.

Dask loads this file into each worker process of a local cluster (`preload`).
"""

import os
from typing import Any

NICE = 5  # a third of the time that another process gets on the same processor, if that wants all of it


def dask_setup(worker: Any) -> None:  # noqa: ARG001 - as Dask calls it
    if hasattr(os, "nice"):  # not on Windows
        os.nice(NICE)
