"""The price of trust: the share of a pass that checks of stored arrays take, and of a verification that rounding takes.

python -m benchmarks.trust [--repeat 5] [--scale 1.0] [--s3]

One process reads each shard and scans it once at random weights, without a dual, which is the cheapest pass there is;
shards that stay in memory are checked only when they are read. They lie on a local disk, in the operating system's
memory, where reading costs next to nothing, or with --s3 on a SeaweedFS server. Seconds are those of this process on
the processor, so that other work of the machine does not count, nor that of the server.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse

from distdual.certificate import check_shard as verification
from distdual.certificate.rebuild import no_support
from distdual.data import dataset as datasets
from distdual.data.dataset import Dataset, open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage import chunks
from distdual.data.storage.location import Location
from distdual.problems.base import Problem
from distdual.problems.registry import make_problem
from distdual.scan.shard_reader import load_shard
from tests.s3_server import S3Server

BORDER = [(datasets, "check_shard_arrays"), (datasets, "check_norm"), (chunks, "count_falls")]
ROUNDING = [(verification, name) for name in ("norm_bound", "loss_error", "enclosed_product", "sum_of")]


class Clock:
    """Processor seconds spent in the functions it watches; calls within one another count once."""

    def __init__(self) -> None:
        self.seconds, self.inside = 0.0, False

    def watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            if self.inside:
                return function(*arguments)
            self.inside, begin = True, time.thread_time()
            try:
                return function(*arguments)
            finally:
                self.inside = False
                self.seconds += time.thread_time() - begin

        return timed


@contextmanager
def watching(places: list[tuple[Any, str]]) -> Iterator[Clock]:
    clock = Clock()
    with ExitStack() as stack:
        for place, name in places:
            stack.enter_context(patch.object(place, name, clock.watched(getattr(place, name))))
        yield clock


def cases(scale: float) -> Iterator[tuple[str, Any, Any, dict[str, Any]]]:
    """Features, labels and what else `prepare_arrays` takes, for each kind of problem."""
    rng = np.random.default_rng(0)
    n = int(400_000 * scale)
    x = rng.normal(size=(n, 54)).astype(np.float32)
    yield "binary, dense", x, rng.integers(2, size=n), {"kind": "binary"}
    n = int(60_000 * scale)
    ones = scipy.sparse.random_array((n, 47_000), density=75 / 47_000, format="csr", dtype=np.float32, rng=rng)
    yield "binary, sparse", ones, rng.integers(2, size=n), {"kind": "binary"}
    n = int(60_000 * scale) // 8 * 8
    x = (rng.random((n, 128)) < 0.3).astype(np.float32)
    yield "chain", x, rng.integers(26, size=n), {"kind": "chain", "lengths": np.full(n // 8, 8)}


def verified(dataset: Dataset, problem: Problem, w: Any) -> None:
    for shard in range(dataset.n_shards):
        verification.check_shard(dataset, problem, w, shard, 1.0, no_support())


def scanned(dataset: Dataset, problem: Problem, w: Any) -> None:
    for shard in range(dataset.n_shards):
        problem.offenders(w, load_shard(dataset, shard).shard)


def share(
    work: Callable[..., None], places: list[tuple[Any, str]], repeat: int, *arguments: Any
) -> tuple[float, float]:
    """The median share of a pass that the places take, and the seconds of a pass."""
    work(*arguments)  # compiles
    shares, seconds = [], []
    for _ in range(repeat):
        with watching(places) as clock:
            begin = time.process_time()
            work(*arguments)
            seconds.append(time.process_time() - begin)
        shares.append(clock.seconds / seconds[-1])
    return statistics.median(shares), statistics.median(seconds)


@contextmanager
def places(*, s3: bool) -> Iterator[Callable[[str], Location]]:
    """Where data sets are made: a temporary folder, or a bucket of a server of its own."""
    with tempfile.TemporaryDirectory() as folder:
        if not s3:
            yield lambda name: Location(str(Path(folder) / name))
            return
        server = S3Server(Path(folder))
        try:
            server.start()
            yield lambda name: Location(server.url(name), server.storage_options)
        finally:
            server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of examples")
    parser.add_argument("--s3", action="store_true", help="read from an S3 server on this machine")
    told = parser.parse_args()
    with places(s3=told.s3) as place_of:
        for number, (name, x, y, options) in enumerate(cases(told.scale)):
            print(f"{name}: {measured(x, y, options, place_of(f'data-{number}'), told.repeat)}", flush=True)


def measured(x: Any, y: Any, options: dict[str, Any], place: Location, repeat: int) -> str:
    kind = options.pop("kind")
    storage = {"storage_options": place.storage_options} if place.remote else {}
    prepare_arrays(x, y, place.url, kind, **options, **storage)
    dataset = open_dataset(place)
    problem = make_problem(kind, {}, n_features=dataset.layout.n_features, classes=dataset.classes)
    w = 0.01 * np.random.default_rng(1).normal(size=problem.n_weights)
    border, scan = share(scanned, BORDER, repeat, dataset, problem, w)
    watched = [*ROUNDING, (type(problem), "magnitude")]
    rounding, verify = share(verified, watched, repeat, dataset, problem, w)
    return (
        f"checks of stored arrays {100 * border:.2f} % of a pass of {scan:.2f} s, "
        f"rounding {100 * rounding:.2f} % of a verification of {verify:.2f} s"
    )


if __name__ == "__main__":
    main()
