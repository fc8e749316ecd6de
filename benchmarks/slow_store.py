"""Training from a slow object store: seconds to a certified gap of 1e-3 beside the time that the bytes alone take.

    python -m benchmarks.slow_store [--gigabytes 2] [--rate 50] [--folder SCRATCH] [--json FILE]

Dense data of two classes on a SeaweedFS server that this benchmark starts, behind a proxy that passes on --rate MB/s.
Two Dask worker processes scan, which keep no shard in memory. A first run on few examples, without the proxy, loads or
compiles kernels. The ideal is passes × bytes / rate; seconds are those of the whole `train` call.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import distdual
from benchmarks.passes import NO_ROOM
from benchmarks.storage import WIDTH, rows, server
from benchmarks.table import markdown
from benchmarks.throttle import throttled
from distdual.cluster.dask_client import connect
from distdual.config import ClusterConfig, LocalCluster
from distdual.data.dataset import open_dataset
from distdual.data.prepare.pipeline import write
from distdual.data.prepare_options import Options
from distdual.data.sources.base import Attached, Opened, Source
from distdual.data.storage.location import Location

FEW = 20_000  # examples of the first run
COLUMNS = [
    *("GB", "MB/s", "passes", "bytes / data set", "GETs", "ideal s", "seconds"),
    *("seconds / ideal", "ascent s", "proven"),
]


def main() -> None:
    arguments = argparse.ArgumentParser(
        "python -m benchmarks.slow_store", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--gigabytes", type=float, default=2.0)
    arguments.add_argument("--rate", type=float, default=50.0, help="MB/s")
    arguments.add_argument("--folder", type=Path, help="for models; default: a temporary folder")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    told = arguments.parse_args()
    n = int(told.gigabytes * 1e9) // (4 * WIDTH)
    with (
        tempfile.TemporaryDirectory(prefix="distdual-slow-", dir=told.folder) as scratch,
        server() as s3,
        connect(ClusterConfig(local=LocalCluster(memory=NO_ROOM))) as client,
    ):
        few, all_of_it = prepared(s3, FEW), prepared(s3, n)
        data = open_dataset(all_of_it)
        n_bytes = data.read(0).n_bytes * data.n_shards
        trained(client, few, FEW, f"{scratch}/few")
        with throttled(s3.ports["s3"], told.rate) as port:
            there = {**s3.storage_options, "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{port}"}}
            found = trained(client, Location(all_of_it.url, there), n, f"{scratch}/model")
    ideal = found["passes"] * n_bytes / 1e6 / told.rate
    took = [found["passes"], round(found["bytes_read"] / n_bytes, 3), found["gets"], round(ideal, 1)]
    timed = [round(found["took"], 1), round(found["took"] / ideal, 3), round(found["ascent_seconds"], 1)]
    print(markdown(COLUMNS, [[f"{n_bytes / 1e9:.2f}", f"{told.rate:g}", *took, *timed, found["gap"]]]))
    if told.json:
        told.json.write_text(json.dumps(found, indent=1) + "\n")


def prepared(s3: Any, n: int) -> Location:
    place = Location(s3.url("dense"), s3.storage_options)
    write(Opened([Source("made", lambda: rows(n))], Attached()), place, Options(kind="binary"))
    return place


def trained(client: Any, data: Location, n: int, model: str) -> dict[str, Any]:
    config = {
        "data": {"url": data.url, "storage_options": data.storage_options},
        "problem": {"kind": "binary"},
        "solver": {"C": 10 / n, "gap": 1e-3},
        "output": {"url": model},
    }
    begin = time.perf_counter()
    found = distdual.train(config, client).certificate
    return {**found, "took": time.perf_counter() - begin}


if __name__ == "__main__":
    main()
