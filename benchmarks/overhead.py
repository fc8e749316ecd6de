"""Overhead of Dask: milliseconds per shard beyond reading and computing, and memory of the scheduler.

python -m benchmarks.overhead [--shards 1000] [--passes 3] [--weights-mb 40]

A scheduler and two workers, each a process of its own, scan shards of 1 MB from a local disk: first read each time,
then kept in the workers' memory. Overhead is what is left of the workers' time, wall-clock × threads, after the
seconds that the scans themselves report, divided by the number of scans.
"""

import argparse
import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from distdual.cluster.dask_client import connect
from distdual.cluster.dask_executor import DaskExecutor
from distdual.config import ClusterConfig
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from distdual.problems.binary import Binary
from distdual.scan.scan import Scan

NOTHING = np.empty(0, dtype=np.uint64)
WIDTH = 64  # features, of 4 bytes


@contextlib.contextmanager
def processes(folder: Path, workers: int) -> Iterator[tuple[str, list[psutil.Process]]]:
    """The address of a scheduler that has workers of one thread, and all these processes, the scheduler first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    dask = [sys.executable, "-m", "dask"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    started = [subprocess.Popen([*dask, "scheduler", "--port", str(port), "--no-dashboard"], **quiet)]
    try:
        command = [
            *dask,
            "worker",
            address,
            "--nthreads",
            "1",
            "--no-nanny",
            "--no-dashboard",
            "--memory-limit",
            "4GiB",
        ]
        started += [subprocess.Popen(command, **quiet) for _ in range(workers)]
        yield address, [psutil.Process(process.pid) for process in started]
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def write(folder: Path, n_shards: int) -> Any:
    rows = (1 << 20) // (4 * WIDTH)
    rng = np.random.default_rng(0)
    x = np.tile(rng.normal(size=(rows, WIDTH)).astype(np.float32), (n_shards, 1))
    y = (x[:, 0] > 0).astype(np.int32)
    prepare_arrays(x, y, str(folder / "data"), "binary", shard_bytes=rows * 4 * WIDTH)
    return open_dataset(Location(str(folder / "data")))


def cpu_seconds(started: list[psutil.Process]) -> Any:
    """Processor time of this process, the scheduler and the workers, which other load does not affect."""
    return np.array([sum(process.cpu_times()[:2]) for process in (psutil.Process(), *started)])


def one_pass(executor: DaskExecutor, n_shards: int, version: int, n_weights: int) -> tuple[float, float]:
    """Wall-clock seconds, and seconds that scans report."""
    executor.publish(version, np.eye(1, n_weights)[0] * 1e6)  # hardly an offender: what these cost is their own size
    begin = time.perf_counter()
    reports = list(executor.reports([Scan(shard, version, NOTHING) for shard in range(n_shards)]))
    took = time.perf_counter() - begin
    return took, sum(report.read_seconds + report.compute_seconds for report in reports)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to write 1 MB a shard; a temporary folder if not given")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=told.folder) as name, contextlib.ExitStack() as stack:
        dataset = write(Path(name), told.shards)
        problem = Binary(n_features=WIDTH, classes=dataset.classes)
        address, started = stack.enter_context(processes(Path(name), 2))
        client = stack.enter_context(connect(ClusterConfig(scheduler=address, timeout=60)))
        client.wait_for_workers(2, timeout=60)
        print(f"{dataset.n_shards} shards of {dataset.nbytes / dataset.n_shards / 2**20:.2f} MiB, 2 workers")
        for kept in (False, True):
            executor = DaskExecutor(client, dataset, problem)
            executor.streams = not kept
            before = started[0].memory_info().rss
            for version in range(told.passes):
                cpu = cpu_seconds(started)
                took, paid = one_pass(executor, dataset.n_shards, version, problem.n_weights)
                used = 1e3 * (cpu_seconds(started) - cpu) / dataset.n_shards
                over = 1e3 * (2 * took - paid) / dataset.n_shards
                print(
                    f"{'kept in memory' if kept else 'read each time'}, pass {version}: {took:.2f} s, read and compute "
                    f"{1e3 * paid / dataset.n_shards:.2f} ms a shard, overhead {over:.2f} ms a shard; "
                    f"CPU a shard: client {used[0]:.2f}, scheduler {used[1]:.2f}, workers {used[2:].sum():.2f} ms"
                )
            print(f"memory of the scheduler: +{(started[0].memory_info().rss - before) / 2**20:.0f} MiB")
            executor.close()


if __name__ == "__main__":
    main()
