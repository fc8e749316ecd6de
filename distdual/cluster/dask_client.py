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

from distdual.config import TLS, ClusterConfig
from distdual.errors import InputError
from distdual.interrupt import children_ignore_interrupts
from distdual.problems.base import Problem
from distdual.problems.latent.base import stated

# Shards of some MB come and go. Dask's own setting gives their memory back to the system each time, and a page fault
# for every 4 KB of the next one then takes longer than to compute on it.
BEFORE_START = "distributed.nanny.pre-spawn-environ"
MALLOC = {"MALLOC_MMAP_THRESHOLD_": 1 << 30, "MALLOC_TRIM_THRESHOLD_": 256 << 20}


@contextlib.contextmanager
def connect(cluster: ClusterConfig) -> Iterator[Any]:
    """A Dask client for a scheduler's address or for a cluster of our own, which ends with the block."""
    import dask
    from distributed import Client, LocalCluster

    if cluster.scheduler:
        with reach(cluster) as client:
            _wait_for_worker(client, cluster)
            yield client
        return
    assert cluster.local is not None
    local = cluster.local
    with children_ignore_interrupts(), dask.config.set({f"{BEFORE_START}.{name}": n for name, n in MALLOC.items()}):
        _start_tracker_quietly()
        own = LocalCluster(
            n_workers=local.workers,
            threads_per_worker=local.threads,
            memory_limit=local.memory,
            dashboard_address="127.0.0.1:0",  # any free port: two runs on one machine must not collide
            processes=True,
            preload=[*also_preloaded(), "distdual.cluster.process_priority"],
        )
    with own, Client(own, set_as_default=False) as client:
        yield client


def also_preloaded() -> list[str]:
    """What Dask's own configuration has workers load; naming more would replace it."""
    import dask

    told = dask.config.get("distributed.worker.preload", default=None) or []
    return [told] if isinstance(told, str) else list(told)


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


def reach(cluster: ClusterConfig) -> Any:
    """A Dask client of the scheduler that [cluster] names, whether it has workers or not."""
    from distributed import Client

    assert cluster.scheduler is not None
    security = security_of(cluster)
    try:
        with ThreadPoolExecutor(1) as pool:  # the caller may be inside an event loop, as in a notebook
            pool.submit(asyncio.run, _greet(cluster.scheduler, security, cluster.timeout)).result()
        away = max(cluster.timeout, cluster.patience)  # a scheduler that answers now may be restarted later
        return Client(cluster.scheduler, timeout=away, security=security, set_as_default=False)
    except (OSError, ValueError, ImportError) as error:
        encrypted = cluster.scheduler.startswith("tls://")
        expected = "with a certificate of the same authority as ours" if encrypted else "started by `dask scheduler`"
        raise InputError(
            f"{cluster.scheduler}: the scheduler did not answer within {cluster.timeout:g} s "
            f"({type(error).__name__}); expected a running one, {expected}; without an address this process scans"
        ) from None


def security_of(cluster: ClusterConfig) -> Any:
    """What a client shows to a scheduler and asks of it: as [cluster] says, or else as Dask itself is configured."""
    from distributed import Security

    told = {name: getattr(cluster, name) for name in TLS}
    for name, file in told.items():
        if file is not None and not Path(file).is_file():
            raise InputError(f"cluster.{name}: there is no file {file}")
    names = {"tls_ca": "tls_ca_file", "tls_cert": "tls_client_cert", "tls_key": "tls_client_key"}
    security = Security(**{names[name]: file for name, file in told.items() if file is not None})
    try:
        context = security.get_connection_args("client").get("ssl_context")
    except OSError as error:  # among them ssl.SSLError
        raise InputError(
            f"cluster.tls_ca, tls_cert, tls_key: expected PEM files, the key being the certificate's: {error}"
        ) from None
    if context is None and (cluster.scheduler or "").startswith("tls://"):
        raise InputError(f"{cluster.scheduler}: encryption needs cluster.tls_ca, tls_cert and tls_key, none is given")
    return security


async def _greet(address: str, security: Any, timeout: float) -> None:
    """Fail in time: a Client would wait without end for a server that takes the connection and then stays silent."""
    from distributed.comm.core import connect as connect_comm

    options = security.get_connection_args("client")
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
    if file is not None and not client.scheduler.address.startswith("inproc://") and not was_sent(file):
        client.upload_file(file)


def was_sent(file: str) -> bool:
    """Whether this is a worker, and the file one that was uploaded: a job's coordinator need not send it again."""
    from distributed import get_worker

    try:
        return Path(file).is_relative_to(get_worker().local_directory)
    except ValueError:  # we are no worker
        return False


def module_file(problem: Problem) -> str | None:
    """The .py file that defines the problem, if it is neither part of a package nor installed."""
    return module_file_of(type(stated(problem)).__module__)


def module_file_of(name: str) -> str | None:
    """The same for a module of this name that has been imported."""
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    installed = any(Path(file).is_relative_to(sysconfig.get_path(place)) for place in ("purelib", "platlib", "stdlib"))
    return file if "." not in name and name != "__main__" and file.endswith(".py") and not installed else None


def round_trip(problem: Problem) -> Problem:
    """Return the problem as it arrives at a worker."""
    from distributed.protocol.pickle import dumps, loads

    there: Problem = loads(dumps(problem))
    return there
