"""Scale-out: seconds of a whole `train` call by the number of worker processes, with an oracle that waits.

    python -m benchmarks.scaleout [--workers 1]… [--mode deterministic]… [--repeat 3] [--json FILE] [--plot FILE]

2,048 examples of 20 ms each in 128 shards. The workers are processes of one thread on this machine; as the oracle
waits instead of computing, they can be many more than the machine has cores. What remains of the machine's work is the
coordinator, the scheduler, and the overhead of tasks, all of which share its cores: with more cores, efficiency is
higher. Each cluster first solves the problem once with an oracle that does not wait, so that all workers have imported
their modules and loaded kernels. Speed-up is relative to one worker; ideal is the number of workers.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import distdual
from benchmarks.table import markdown
from distdual.cluster.dask_client import connect
from distdual.config import ClusterConfig, LocalCluster
from distdual.data.prepare.api import prepare_arrays

N_EXAMPLES, N_SHARDS, WIDTH, CLASSES = 2048, 128, 64, 5
SECONDS = 0.02  # of the oracle, an example
WORKERS = (1, 2, 4, 8, 16, 32)
MODES = ("deterministic", "async")
SOLVER = {"C": 0.1, "gap": 1e-2}
COLUMNS = [
    "workers",
    "mode",
    "seconds",
    "fastest",
    "slowest",
    "speed-up",
    "efficiency",
    "passes",
    "oracle calls",
    "busy",
]
NOTE = (
    f"{N_EXAMPLES:,} examples in {N_SHARDS} shards, an oracle that waits {1e3 * SECONDS:g} ms for each, a whole call "
    "of `train` on workers that have run before. Speed-up is relative to one worker. Busy is the share of the workers' "
    "time spent in scans. All processes share the cores of this machine: with more cores, tasks cost less."
)


def write(folder: Path) -> str:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N_EXAMPLES, WIDTH)).astype(np.float32)
    y = (x @ rng.normal(size=(WIDTH, CLASSES)) + 4.0 * rng.normal(size=(N_EXAMPLES, CLASSES))).argmax(axis=1)
    url = str(folder / "data")
    prepare_arrays(x, y, url, "multiclass", shard_bytes=4 * (WIDTH + 1) * N_EXAMPLES // N_SHARDS + 64)
    return url


def run(client: Any, url: str, model: str, mode: str, seconds: float) -> dict[str, Any]:
    config = {
        "data": {"url": url},
        "problem": {"kind": "benchmarks.waiting:Waiting", "seconds": seconds},
        "solver": {**SOLVER, "mode": mode},
        "output": {"url": model, "overwrite": True},
    }
    begin = time.perf_counter()
    found = distdual.train(config, client).certificate
    taken = time.perf_counter() - begin
    return {
        "seconds": taken,
        "busy": found["scan_seconds"] / taken / len(client.nthreads()),
        **{name: found[name] for name in ("passes", "oracle_calls", "gap", "certified", "rounds", "wait_seconds")},
    }


def measured(workers: int, modes: list[str], repeat: int) -> dict[str, list[dict[str, Any]]]:
    """The runs of each mode on one cluster."""
    with tempfile.TemporaryDirectory(prefix="distdual-scaleout-") as scratch:
        url, model = write(Path(scratch)), f"{scratch}/model"
        with connect(ClusterConfig(local=LocalCluster(workers=workers, memory="1GiB"))) as client:
            client.wait_for_workers(workers)
            run(client, url, model, "deterministic", 1e-5)
            run(client, url, model, "deterministic", 1e-3)
            found = {mode: [run(client, url, model, mode, SECONDS) for _ in range(repeat)] for mode in modes}
    for mode, runs in found.items():
        print(workers, mode, *runs, sep="\n", file=sys.stderr, flush=True)
    return found


def rows(found: dict[str, dict[str, list[dict[str, Any]]]]) -> list[list[Any]]:
    """A line for each number of workers and mode; `found` is by workers, then by mode."""
    told = []
    for mode in MODES:
        alone = (
            statistics.median(each["seconds"] for each in found.get("1", {}).get(mode, [])) if "1" in found else None
        )
        for workers in sorted(map(int, found)):
            runs = found[str(workers)].get(mode)
            if runs:
                told.append(row(workers, mode, runs, alone))
    return told


def row(workers: int, mode: str, runs: list[dict[str, Any]], alone: float | None) -> list[Any]:
    seconds = [each["seconds"] for each in runs]
    middle = sorted(runs, key=lambda each: each["seconds"])[len(runs) // 2]
    speedup = alone / statistics.median(seconds) if alone else None
    share = speedup / workers if speedup else None
    figures = [round(statistics.median(seconds), 2), round(min(seconds), 2), round(max(seconds), 2)]
    rounded = [None if value is None else round(value, 2) for value in (speedup, share)]
    return [workers, mode, *figures, *rounded, middle["passes"], middle["oracle_calls"], round(middle["busy"], 2)]


def draw(found: dict[str, dict[str, list[dict[str, Any]]]], path: Path) -> None:
    """Write the efficiency of each mode by the number of workers."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5))
    lines = rows(found)
    for mode in MODES:
        points = [(line[0], line[6]) for line in lines if line[1] == mode and line[6] is not None]
        axes.plot(*zip(*points, strict=True), marker="o", label=mode)
    axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes.set(xscale="log", xlabel="workers", ylabel="efficiency", ylim=(0, 1.1))
    axes.set_xticks(WORKERS, labels=list(map(str, WORKERS)))
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    arguments = argparse.ArgumentParser(
        "python -m benchmarks.scaleout", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--workers", type=int, action="append", help="may be given several times")
    arguments.add_argument("--mode", action="append", choices=MODES, help="may be given several times")
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--json", type=Path, metavar="FILE", help="add all runs to this file")
    arguments.add_argument("--plot", type=Path, metavar="FILE", help="draw all runs, those of one worker among them")
    told = arguments.parse_args()
    found = json.loads(told.json.read_text()) if told.json and told.json.exists() else {}
    for workers in told.workers or WORKERS:
        found.setdefault(str(workers), {}).update(measured(workers, told.mode or list(MODES), told.repeat))
        if told.json:
            told.json.write_text(json.dumps(found, indent=1) + "\n")
    print(markdown(COLUMNS, rows(found)))
    if told.plot:
        draw(found, told.plot)


if __name__ == "__main__":
    main()
