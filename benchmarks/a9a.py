"""Does distdual find liblinear's optimum on a9a, and how long does it take beside LinearSVC?

    python benchmarks/a9a.py DATA_FOLDER [--s3] [--json]

DATA_FOLDER holds a9a.xz and a9a.t.xz (or .bz2, .gz, plain), the svmlight files of the LIBSVM collection. With --s3 the
data set lies on a SeaweedFS server that the program starts, as the tests do. Times are medians of three runs, after one
that compiles; LinearSVC gets its matrix in memory, distdual reads its shards from the storage in every run.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.svm import LinearSVC

import distdual
from distdual.data.location import Location
from distdual.data.prepare import prepare
from distdual.prediction import predict

N_FEATURES = 123
RUNS = 3
ENDINGS = (".xz", ".bz2", ".gz", "")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, metavar="DATA_FOLDER")
    arguments.add_argument("--s3", action="store_true", help="keep the data set on an S3 server of its own")
    arguments.add_argument("--json", action="store_true", help="print one JSON object")
    told = arguments.parse_args()
    train_file, test_file = find(told.folder, "a9a"), find(told.folder, "a9a.t")
    with tempfile.TemporaryDirectory(prefix="distdual-a9a-") as scratch:
        if told.s3:
            figures = on_s3(train_file, test_file, scratch)
        else:
            figures = compare(train_file, test_file, Location(scratch), scratch)
    print(json.dumps(figures) if told.json else "\n".join(f"{name:<28} {value}" for name, value in figures.items()))


def find(folder: Path, name: str) -> Path:
    for ending in ENDINGS:
        if (folder / f"{name}{ending}").is_file():
            return folder / f"{name}{ending}"
    sys.exit(f"{folder}: there is no {name}.xz; put the files a9a and a9a.t of the LIBSVM collection there")


def on_s3(train_file: Path, test_file: Path, scratch: str) -> dict[str, Any]:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.s3_server import S3Server

    server = S3Server()
    try:
        server.start()
        return compare(train_file, test_file, Location(server.url(), server.storage_options), scratch)
    finally:
        server.close()


def compare(train_file: Path, test_file: Path, place: Location, scratch: str) -> dict[str, Any]:
    for name, file in (("train", train_file), ("test", test_file)):
        prepare([str(file)], place / name, "binary", n_features=N_FEATURES, shuffle=0 if name == "train" else None)
    config = {
        "data": {"url": (place / "train").url, "storage_options": dict(place.storage_options)},
        "problem": {"kind": "binary"},
        "solver": {"C": 1.0, "gap": 1e-3},
        "output": {"url": f"{scratch}/model", "overwrite": True},
    }
    seconds, result = median_time(lambda: distdual.train(config))
    checked = distdual.verify(Location(f"{scratch}/model"), place / "train")
    found = predict(f"{scratch}/model", place / "test")
    assert found.score is not None
    reference, x, y, x_test, y_test = liblinear(train_file, test_file)
    reference_seconds, model = median_time(lambda: reference.fit(x, y))
    w = model.coef_[0]
    optimum = 0.5 * w @ w + np.maximum(0, 1 - y * (x @ w)).sum()
    return {
        "storage": place.url.partition("://")[0] if place.remote else "local",
        "lower": result.certificate["lower"],
        "upper = P(w)": result.certificate["upper"],
        "gap": result.certificate["gap"],
        "verified": checked.certified,
        "passes": result.certificate["passes"],
        "P(w) / P(LinearSVC)": checked.upper / optimum,
        "accuracy": found.score["accuracy"],
        "accuracy of LinearSVC": model.score(x_test, y_test),
        "seconds": seconds,
        "seconds of LinearSVC": reference_seconds,
        "time ratio": seconds / reference_seconds,
    }


def liblinear(train_file: Path, test_file: Path) -> tuple[Any, ...]:
    x, y = read(train_file)
    x_test, y_test = read(test_file)
    return LinearSVC(loss="hinge", C=1.0, fit_intercept=False, tol=1e-6, max_iter=1_000_000), x, y, x_test, y_test


def read(file: Path) -> tuple[Any, Any]:
    """float64 CSR with int32 indices: what liblinear takes without a copy."""
    from distdual.data.source import open_decompressed

    with open_decompressed(Location(str(file))) as stream:
        x, y = load_svmlight_file(stream, n_features=N_FEATURES, dtype=np.float64)
    x.indices, x.indptr = x.indices.astype(np.int32), x.indptr.astype(np.int32)
    return x, y


def median_time(job: Callable[[], Any]) -> tuple[float, Any]:
    job()  # compiles, and fills the file cache
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        found = job()
        times.append(time.perf_counter() - begin)
    return statistics.median(times), found


if __name__ == "__main__":
    main()
