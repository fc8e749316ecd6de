"""A Dask array persisted on two workers: memory of the client, and time against preparing it and training from disk.

python -m benchmarks.dask_collections [--gb 2] [--workers 2] [--folder DIR] [--kill]

Partitions of 64 MB are made on the workers. The same array is then written by `prepare_arrays` as shards of the same
rows, and trained from there; weights must be equal to the last bit. With --kill, a worker dies in the middle of a
further fit, and Dask computes its partitions again.
"""

import argparse
import contextlib
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

import distdual
from benchmarks.machine import memory

WIDTH = 200  # features, of 4 bytes
ROWS = (64 << 20) // (4 * WIDTH)  # of a partition
C = 1e-2


class Growth:
    """By how many MB this process has grown at most, and the seconds it took."""

    def __init__(self) -> None:
        self.megabytes = self.seconds = 0.0


@contextlib.contextmanager
def growth() -> Iterator[Growth]:
    found, over = Growth(), threading.Event()
    before, start = memory("VmRSS"), time.monotonic()

    def watch() -> None:
        while not over.wait(0.02):
            found.megabytes = max(found.megabytes, (memory("VmRSS") - before) / 1e6)

    thread = threading.Thread(target=watch)
    thread.start()
    yield found
    over.set()
    thread.join()
    found.seconds = time.monotonic() - start


def truth(number: int, n: int) -> Any:
    """Classes of the rows of a partition."""
    return np.random.default_rng([number, 1]).integers(0, 2, n, dtype=np.int32)


def features(block_info: Any = None) -> Any:
    """The rows of a partition, from its number: two clouds, 5 standard deviations apart."""
    shape, number = block_info[None]["chunk-shape"], block_info[None]["chunk-location"][0]
    x = np.random.default_rng(number).standard_normal(shape, dtype=np.float32)
    x[:, : WIDTH // 2] += 0.5 * truth(number, shape[0])[:, None]
    return x


def labels(block_info: Any = None) -> Any:
    """Their labels; one in 400 is wrong."""
    (n,), number = block_info[None]["chunk-shape"], block_info[None]["chunk-location"][0]
    y = truth(number, n)
    y[::400] = 1 - y[::400]
    return y


def made(n_parts: int) -> tuple[Any, Any]:
    rows = (ROWS,) * n_parts
    x = da.map_blocks(features, chunks=(rows, (WIDTH,)), dtype=np.float32, meta=np.empty((0, 0), np.float32))
    return x, da.map_blocks(labels, chunks=(rows,), dtype=np.int32, meta=np.empty(0, np.int32))


def killer(client: Client) -> Any:
    """A callback that kills a worker once, after the first line of the run log."""
    pids = list(client.run(os.getpid).values())

    def kill(_: Any) -> None:
        if pids:
            os.kill(pids[0], signal.SIGKILL)
            pids.clear()

    return kill


def measure(client: Client, n_parts: int, folder: Path, *, kill: bool) -> dict[str, Any]:
    small = made(2)
    distdual.SVC(C, client=client, gap=0.5).fit(*client.persist(small))  # kernels are compiled
    x, y = client.persist(made(n_parts))
    wait([x, y])
    found: dict[str, Any] = {"gb": x.nbytes / 1e9, "partitions": n_parts}
    with growth() as fitted:
        model = distdual.SVC(C, client=client).fit(x, y)
    found |= {"fit_seconds": fitted.seconds, "fit_client_mb": fitted.megabytes, "passes": model.n_iter_}
    found |= {key: model.certificate_[key] for key in ("gap", "certified", "support", "cache_bytes")}
    with growth() as predicted:
        right = (model.predict(x) == y).mean().compute()
    found |= {"predict_seconds": predicted.seconds, "predict_client_mb": predicted.megabytes, "accuracy": float(right)}
    with growth() as prepared:
        distdual.prepare_arrays(x, y, folder / "data", "binary", shard_bytes=4 * WIDTH * ROWS)
    found |= {"prepare_seconds": prepared.seconds, "prepare_client_mb": prepared.megabytes}
    if not kill:
        del x, y  # workers may keep shards in their place
    with growth() as stored:
        other = distdual.SVC(C, client=client).fit(folder / "data")
    found |= {"stored_seconds": stored.seconds, "ratio": fitted.seconds / (prepared.seconds + stored.seconds)}
    found["same_weights"] = bool(np.array_equal(model.coef_, other.coef_))
    found["same_bounds"] = all(model.certificate_[key] == other.certificate_[key] for key in ("lower", "upper"))
    if kill:
        with growth() as survived:
            again = distdual.SVC(C, client=client, callbacks=[killer(client)]).fit(x, y)
        found |= {"killed_seconds": survived.seconds, "killed_client_mb": survived.megabytes}
        found["killed_certified"] = again.certificate_["certified"]
        found["killed_same_weights"] = bool(np.array_equal(model.coef_, again.coef_))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--kill", action="store_true")
    told = parser.parse_args()
    n_parts = max(2, round(told.gb * 1e9 / (4 * WIDTH * ROWS)))
    with (
        tempfile.TemporaryDirectory(dir=told.folder) as folder,
        LocalCluster(n_workers=told.workers, threads_per_worker=1, memory_limit="6GiB", dashboard_address=None) as own,
        Client(own) as client,
    ):
        print(json.dumps(measure(client, n_parts, Path(folder), kill=told.kill), indent=1))


if __name__ == "__main__":
    main()
