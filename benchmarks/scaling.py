"""Training on a local Dask cluster: the effect of workers, shards, S3 and asynchronous mode.

Starting the cluster is timed apart; so is the first run, in which workers load kernels and read their shards.
"""

import contextlib
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distdual
from benchmarks.datasets.covtype import two_classes
from benchmarks.datasets.ocr import ocr
from benchmarks.table import Table
from distdual.cluster.dask_client import connect
from distdual.config import ClusterConfig, LocalCluster
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location

COLUMNS = ["data", "setting", "seconds", "fastest", "slowest", "first run", "passes", "oracle calls", "idle", "gap"]
SHARDS = (8, 32, 128)
OCR = ({"kind": "chain", "boundaries": False}, {"C": 0.1, "gap": 1e-2})
ASYNC = {"mode": "async"}
COVTYPE = ({"kind": "binary"}, {"C": 0.01, "gap": 1e-3})


def scaling(folder: Path, scratch: Path, repeat: int) -> list[Table]:
    repeat = min(repeat, 3)
    ocr(folder, scratch)  # writes scratch/ocr/train
    letters = Location(str(scratch / "ocr" / "train"))
    x, y, _, _ = two_classes(folder)
    covers = {n: stored(x, y, Location(str(scratch / f"covtype-{n}")), n) for n in SHARDS}
    rows = [measured(None, scratch, repeat, "OCR letters", "this process alone", letters, OCR, {})]
    starts = []
    for workers in (1, 2):
        begin = time.perf_counter()
        with connect(ClusterConfig(local=LocalCluster(workers=workers))) as client:
            starts.append(f"{workers}: {time.perf_counter() - begin:.1f} s")
            plan: list[tuple[str, str, Location, Any, dict[str, Any]]] = [
                ("OCR letters", f"{workers} worker(s)", letters, OCR, {}),
                ("covtype", f"{workers} worker(s), 32 shards", covers[32], COVTYPE, {}),
            ]
            if workers == 2:
                plan += [("covtype", f"{n} shards", covers[n], COVTYPE, {}) for n in SHARDS if n != 32]
                plan += [("OCR letters", "asynchronous", letters, OCR, ASYNC)]
                plan += [("covtype", "asynchronous", covers[32], COVTYPE, ASYNC)]
            rows += [measured(client, scratch, repeat, *each) for each in plan]
            if workers == 2:
                with s3_server() as server:
                    place = stored(x, y, Location(server.url(), server.storage_options), 32)
                    told = ("covtype", "32 shards on S3", place, COVTYPE, {})
                    rows.append(measured(client, scratch, repeat, *told))
    note = (
        f"Two workers unless said, medians of {repeat}. Idle is the share of the workers' time without a scan. "
        f"Starting a cluster, by workers: {', '.join(starts)}."
    )
    return [Table("cluster", "Training on a local Dask cluster", COLUMNS, rows, note)]


def stored(x: Any, y: Any, place: Location, n_shards: int) -> Location:
    prepare_arrays(x, y, place, "binary", shard_bytes=x.nbytes // n_shards + 4096)
    return place


def measured(
    client: Any, scratch: Path, repeat: int, name: str, setting: str, place: Location, what: Any, more: dict[str, Any]
) -> list[Any]:
    problem, solver = what
    config = {
        "data": {"url": place.url, "storage_options": dict(place.storage_options)},
        "problem": problem,
        "solver": {**solver, **more},
        "output": {"url": str(scratch / "model"), "overwrite": True},
    }
    taken = []
    for _ in range(repeat + 1):
        begin = time.perf_counter()
        proven = distdual.train(config, client).certificate
        taken.append(time.perf_counter() - begin)
    first, *rest = (round(seconds, 3) for seconds in taken)
    middle = statistics.median(rest)
    slots = sum(client.nthreads().values()) if client else os.cpu_count() or 1
    idle = round(proven["idle_seconds"] / slots / proven["seconds"], 2)
    figures = [proven["passes"], proven["oracle_calls"], idle, float(f"{proven['gap']:.2g}")]
    return [name, setting, middle, min(rest), max(rest), first, *figures]


@contextlib.contextmanager
def s3_server() -> Iterator[Any]:
    """A real S3 server on loopback, as in the tests."""
    from tests.s3_server import S3Server

    server = S3Server()
    try:
        yield server.start()
    finally:
        server.close()
