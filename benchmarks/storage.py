"""Reads of shards from object storage: speed and number.

    python benchmarks/storage.py [--gigabytes 2] [--folder SCRATCH] [--json]

Starts a SeaweedFS server of its own (the extra `test` installs it) and makes its own data. Three ratios, each the
median of three repetitions; what is compared takes turns in the same run:

    verify / GETs       a verify pass over dense data, on two worker processes, beside plain parallel GETs of the same
                        objects by as many processes, which do nothing with what they get
    bytes / data set    what training to a certified gap of 1e-3 reads, with too little memory to keep the shards
    2 workers / 1       verify of chains of 200 tags, whose oracle is expensive
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))  # the server belongs to the tests

import distdual
from distdual.cluster.dask_client import connect
from distdual.config import ClusterConfig, LocalCluster
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.prepare.pipeline import write
from distdual.data.prepare_options import Options
from distdual.data.shard import Block
from distdual.data.sources.base import Attached, Opened, Source
from distdual.data.storage.location import Location
from distdual.data.storage.object_get import fetch_from
from distdual.kernels.rows import DenseRows
from tests.s3_server import S3Server

RUNS = 3
WIDTH = 500
TAGS, SENTENCES, LENGTH = 200, 6400, 40
GETS_AT_ONCE = 4  # of each process


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gigabytes", type=float, default=2.0)
    arguments.add_argument("--folder", type=Path, help="where the server keeps its data; default: a temporary folder")
    arguments.add_argument("--json", action="store_true", help="print one JSON object")
    told = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="distdual-storage-", dir=told.folder) as scratch, server() as s3:
        figures = {**dense(s3, int(told.gigabytes * 1e9)), **chains(scratch)}
    print(json.dumps(figures) if told.json else "\n".join(f"{name:<28} {value}" for name, value in figures.items()))


@contextmanager
def server() -> Iterator[S3Server]:
    s3 = S3Server()
    try:
        yield s3.start()
    finally:
        s3.close()


def timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def side_by_side(*timings: Callable[[], float]) -> list[float]:
    """Median seconds of each, in interleaved runs."""
    times: list[list[float]] = [[] for _ in timings]
    for _ in range(RUNS):
        for own, timing in zip(times, timings, strict=True):
            own.append(timing())
    return [statistics.median(own) for own in times]


def cluster(workers: int, memory: str = "auto") -> Any:
    return connect(ClusterConfig(local=LocalCluster(workers=workers, memory=memory)))


# --- dense data on S3


def dense(s3: S3Server, n_bytes: int) -> dict[str, Any]:
    data = Location(s3.url("dense"), s3.storage_options)
    n = n_bytes // (4 * WIDTH)
    write(Opened([Source("made", lambda: rows(n))], Attached()), data, Options(kind="binary"))
    dataset = open_dataset(data)
    stored = sum(dataset.read(s).n_bytes for s in range(dataset.n_shards))
    config = {
        "data": {"url": data.url, "storage_options": s3.storage_options},
        "problem": {"kind": "binary"},
        "solver": {"C": 10 / n, "gap": 1e-3},
        "output": {"url": s3.url("model"), "storage_options": s3.storage_options},
    }
    small = f"{max(1, stored // 2**31)}GiB"  # of two workers: less than twice the data, so that nothing is kept
    with cluster(2, small) as client:
        trained = distdual.train(config, client).certificate
        model = Location(config["output"]["url"], s3.storage_options)
        checked = distdual.verify(model, client=client)
        assert checked.certified
        passed, got = side_by_side(
            lambda: timed(lambda: distdual.verify(model, client=client)),
            lambda: timed(lambda: get_all(client, data, dataset)),
        )
    return {
        "data set": f"{stored / 1e9:.2f} GB in {dataset.n_shards} shards, {n} x {WIDTH}",
        "training, bytes / data set": round(trained["bytes_read"] / stored, 2),
        "training, passes": trained["passes"],
        "training, certified gap": trained["gap"],
        "verify, MB/s": round(stored / passed / 1e6),
        "plain GETs, MB/s": round(stored / got / 1e6),
        "verify / GETs": round(got / passed, 3),
        "verify, GETs": checked.gets,
    }


def rows(n: int) -> Iterator[Block]:
    """Two noisy classes, a few MB at a time."""
    rng = np.random.default_rng(0)
    plane = rng.normal(size=WIDTH) / np.sqrt(WIDTH)
    for begin in range(0, n, 4000):
        x = rng.standard_normal((min(4000, n - begin), WIDTH), dtype=np.float32)
        yield Block(DenseRows(x), (x @ plane + 0.5 * rng.standard_normal(len(x)) > 0).astype(np.int64))


def get_all(client: Any, place: Location, dataset: Any) -> None:
    """GET every object of every shard, by as many processes as there are workers and several connections each."""
    names = [spec.chunk_key(s) for s in range(dataset.n_shards) for spec in dataset.layout.arrays]
    parts = [names[k :: len(client.nthreads())] for k in range(len(client.nthreads()))]
    tasks = [
        client.submit(get_some, place, part, workers=[worker], pure=False)
        for part, worker in zip(parts, client.nthreads(), strict=True)
    ]
    assert sum(client.gather(tasks)) > 0


def get_some(place: Location, names: list[str]) -> int:
    from concurrent.futures import ThreadPoolExecutor

    fetch = fetch_from(place)
    with ThreadPoolExecutor(GETS_AT_ONCE) as pool:
        return sum(pool.map(lambda name: len(fetch(name)), names))


# --- an expensive oracle


def chains(scratch: str) -> dict[str, Any]:
    """Random tags and features, for which Viterbi over 200 tags is expensive."""
    rng = np.random.default_rng(1)
    lengths = np.full(SENTENCES, LENGTH)
    x = rng.standard_normal((SENTENCES * LENGTH, 20)).astype(np.float32)
    y = np.concatenate([np.arange(TAGS), rng.integers(TAGS, size=len(x) - TAGS)])
    data, model = os.path.join(scratch, "chains"), os.path.join(scratch, "chain-model")
    shard_bytes = x.nbytes // 64
    prepare_arrays(x, y, data, "chain", lengths=lengths, shard_bytes=shard_bytes)
    solver = {"C": 1e-3, "max_passes": 1, "gap": 0.5}
    distdual.train({"data": {"url": data}, "problem": {"kind": "chain"}, "solver": solver, "output": {"url": model}})
    alone, together = side_by_side(lambda: verified(model, 1), lambda: verified(model, 2))
    return {"chains, 1 worker, s": round(alone, 2), "chains, 2 workers / 1": round(alone / together, 2)}


def verified(model: str, workers: int) -> float:
    """Seconds on a cluster that runs alone: an idle one beside it would take processor time."""
    with cluster(workers) as client:
        distdual.verify(model, client=client)  # workers compile kernels
        return timed(lambda: distdual.verify(model, client=client))


if __name__ == "__main__":
    main()
