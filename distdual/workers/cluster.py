"""How is a cluster reached or started? Gives a client, and sends it the code of a user's own problem."""

import asyncio
import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from distdual.config import ClusterConfig
from distdual.errors import InputError
from distdual.interrupt import children_ignore_interrupts
from distdual.problems.base import Problem
from distdual.problems.completed import Completed


@contextlib.contextmanager
def connect(cluster: ClusterConfig) -> Iterator[Any]:
    """A Dask client for a scheduler's address or for a cluster of our own, which ends with the block."""
    from distributed import Client, LocalCluster

    if cluster.scheduler:
        try:
            with ThreadPoolExecutor(1) as pool:  # the caller may be inside an event loop, as in a notebook
                pool.submit(asyncio.run, _greet(cluster.scheduler, cluster.timeout)).result()
            client = Client(cluster.scheduler, timeout=cluster.timeout, set_as_default=False)
        except (OSError, ValueError, ImportError) as error:
            raise InputError(
                f"{cluster.scheduler}: the scheduler did not answer within {cluster.timeout:g} s "
                f"({type(error).__name__}); expected a running one, for example tcp://127.0.0.1:8786"
            ) from None
        with client:
            _wait_for_worker(client, cluster)
            yield client
        return
    assert cluster.local is not None
    local = cluster.local
    with children_ignore_interrupts():
        _start_tracker_quietly()
        own = LocalCluster(
            n_workers=local.workers,
            threads_per_worker=local.threads,
            memory_limit=local.memory,
            dashboard_address="127.0.0.1:0",  # any free port: two runs on one machine must not collide
            processes=True,
        )
    with own, Client(own, set_as_default=False) as client:
        yield client


def _start_tracker_quietly() -> None:
    """Start Python's process that tidies up what ended processes leave behind, told not to speak of it.

    A worker that must be ended by force may leave a lock of its queues. That is tidied up; its owner has nothing to do,
    and a sentence of ours on stderr stays the only one.
    """
    known = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = "ignore::UserWarning:multiprocessing.resource_tracker"  # inherited by the process
    try:
        resource_tracker.ensure_running()
    finally:
        del os.environ["PYTHONWARNINGS"]
        if known is not None:
            os.environ["PYTHONWARNINGS"] = known


async def _greet(address: str, timeout: float) -> None:
    """Fail in time: a Client would wait without end for a server that takes the connection and then stays silent."""
    from distributed import Security
    from distributed.comm.core import connect as connect_comm

    options = Security().get_connection_args("client")
    comm = await asyncio.wait_for(connect_comm(address, timeout=timeout, **options), timeout)
    await comm.close()


def _wait_for_worker(client: Any, cluster: ClusterConfig) -> None:
    try:
        client.wait_for_workers(1, timeout=cluster.timeout)
    except TimeoutError:
        raise InputError(
            f"{cluster.scheduler}: the scheduler has no workers; start one with `dask worker {cluster.scheduler}`"
        ) from None


def send_module(client: Any, problem: Problem) -> None:
    """Upload the file of a user's own problem to all workers, those that come later too, if it is a single one.

    A module of a package, or one that is installed, must be installed on the workers as well.
    """
    file = module_file(problem)
    if file is not None and not client.scheduler.address.startswith("inproc://"):
        client.upload_file(file)


def module_file(problem: Problem) -> str | None:
    """The .py file that defines the problem, if it is neither part of a package nor installed."""
    stated = problem.problem if isinstance(problem, Completed) else problem
    name = type(stated).__module__
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    installed = any(Path(file).is_relative_to(sysconfig.get_path(place)) for place in ("purelib", "platlib", "stdlib"))
    return file if "." not in name and name != "__main__" and file.endswith(".py") and not installed else None
