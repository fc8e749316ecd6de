"""Dask clients: connect to a scheduler or start a local cluster."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from distdual.config import TLS, ClusterConfig
from distdual.errors import InputError
from distdual.interrupt import children_ignore_interrupts
from distdual.problems.base import Problem

# Dask's default returns the memory of each freed shard to the system, and the page faults of the next shard then take
# longer than computing on it.
BEFORE_START = "distributed.nanny.pre-spawn-environ"
MALLOC = {"MALLOC_MMAP_THRESHOLD_": 1 << 30, "MALLOC_TRIM_THRESHOLD_": 256 << 20}


@contextlib.contextmanager
def connect(cluster: ClusterConfig) -> Iterator[Any]:
    """Yield a Dask client of the given scheduler, or of a local cluster that closes with the block."""
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
            dashboard_address="127.0.0.1:0",  # any free port, so that two runs on one machine do not collide
            processes=True,
            preload=[*also_preloaded(), "distdual.cluster.process_priority"],
        )
    with own, Client(own, set_as_default=False) as client:
        yield client


def also_preloaded() -> list[str]:
    """Return the preloads of Dask's own configuration, which a `preload` argument would replace."""
    import dask

    configured = dask.config.get("distributed.worker.preload", default=None) or []
    return [configured] if isinstance(configured, str) else list(configured)


def _start_tracker_quietly() -> None:
    """Start Python's resource tracker with its warnings off.

    A worker that is killed may leave a lock behind. The tracker removes it, and its warning would only distract.
    """
    known = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = "ignore::UserWarning:multiprocessing.resource_tracker"  # inherited by the tracker
    try:
        resource_tracker.ensure_running()
    finally:
        del os.environ["PYTHONWARNINGS"]
        if known is not None:
            os.environ["PYTHONWARNINGS"] = known


def reach(cluster: ClusterConfig) -> Any:
    """Connect to the scheduler that [cluster] names, whether or not it has workers."""
    from distributed import Client

    assert cluster.scheduler is not None
    security = security_of(cluster)
    try:
        with ThreadPoolExecutor(1) as pool:  # the caller may already run an event loop, as in a notebook
            pool.submit(asyncio.run, _greet(cluster.scheduler, security, cluster.timeout)).result()
        timeout = max(cluster.timeout, cluster.patience)  # the scheduler may be restarted later
        return Client(cluster.scheduler, timeout=timeout, security=security, set_as_default=False)
    except (OSError, ValueError, ImportError) as error:
        encrypted = cluster.scheduler.startswith("tls://")
        expected = "with a certificate of the same authority" if encrypted else "started by `dask scheduler`"
        raise InputError(
            f"{cluster.scheduler}: the scheduler did not answer within {cluster.timeout:g} s "
            f"({type(error).__name__}); expected a running one, {expected}; "
            "without an address, scans run in this process"
        ) from None


def security_of(cluster: ClusterConfig) -> Any:
    """Return the TLS settings of [cluster], or else those of Dask's own configuration."""
    from distributed import Security

    given = {name: getattr(cluster, name) for name in TLS}
    for name, file in given.items():
        if file is not None and not Path(file).is_file():
            raise InputError(f"cluster.{name}: file {file} not found")
    names = {"tls_ca": "tls_ca_file", "tls_cert": "tls_client_cert", "tls_key": "tls_client_key"}
    security = Security(**{names[name]: file for name, file in given.items() if file is not None})
    try:
        context = security.get_connection_args("client").get("ssl_context")
    except OSError as error:  # among them ssl.SSLError
        raise InputError(
            f"cluster.tls_ca, tls_cert, tls_key: expected PEM files, and the key of the certificate: {error}"
        ) from None
    if context is None and (cluster.scheduler or "").startswith("tls://"):
        raise InputError(f"{cluster.scheduler}: encryption needs cluster.tls_ca, tls_cert and tls_key, none is set")
    return security


async def _greet(address: str, security: Any, timeout: float) -> None:
    """Raise unless the scheduler answers in time: a Client waits forever for a server that accepts and stays silent."""
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


def round_trip(problem: Problem) -> Problem:
    """Return the problem as it arrives at a worker."""
    from distributed.protocol.pickle import dumps, loads

    there: Problem = loads(dumps(problem))
    return there


def scheduler_state(client: Any) -> dict[str, Any]:
    """What the scheduler says of itself and of all workers; `scheduler_info` knows five at most in Dask 2025."""
    about: dict[str, Any] = client.sync(client.scheduler.identity)
    return about
