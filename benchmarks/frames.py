"""Tables to data sets on S3: seconds and resident memory of `prepare`, beside pyarrow's own CSV to Parquet.

    python -m benchmarks.frames --megabytes 3000

Rows have 12 columns: 8 numbers, two with missing values, 3 texts and a label. `prepare` learns levels, means and
deviations in one pass and writes shards to a real S3 server in a second; pyarrow streams the same file to Parquet on
the local disk, and a Parquet file to another. The last lines train on the data set and compare its test part's score
with that of the raw rows.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

import distdual
from distdual.data.storage.location import Location
from tests.s3_server import S3Server

ROWS_AT_ONCE = 50_000
TEXTS = {"city": 40, "job": 25, "plan": 5}  # levels of each
PREPARE = """
import json, resource, sys, time
from distdual.data.prepare.api import prepare
told = json.loads(sys.argv[1])
begin = time.perf_counter()
prepare(told["source"], told["dest"], "binary", label="bought", missing="mean", scale="unit-variance", shuffle=None,
        test_fraction=0.1, overwrite=True, storage_options=told["storage"])
print(json.dumps({"seconds": time.perf_counter() - begin, "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""
ARROW = """
import json, sys, time
import pyarrow.csv, pyarrow.parquet as pq
told = json.loads(sys.argv[1])
begin = time.perf_counter()
if told["source"].endswith(".csv"):
    reader = pyarrow.csv.open_csv(told["source"])
    schema, batches = reader.schema, reader
else:
    file = pq.ParquetFile(told["source"])
    schema, batches = file.schema_arrow, file.iter_batches()
with pq.ParquetWriter(told["dest"], schema) as writer:
    for batch in batches:
        writer.write_batch(batch)
print(json.dumps({"seconds": time.perf_counter() - begin}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default=None, help="where the files are written")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="distdual-frames-", dir=told.folder) as scratch:
        server = S3Server()
        try:
            print(json.dumps(measure(Path(scratch), server.start(), told.megabytes, told.seed), indent=2))
        finally:
            server.close()


def measure(folder: Path, s3: S3Server, megabytes: float, seed: int) -> dict[str, Any]:
    table, dest = folder / "rows.csv", s3.url()
    n_rows = write_csv(table, megabytes * 1e6, seed)
    found: dict[str, Any] = {"rows": n_rows, "megabytes": table.stat().st_size / 1e6}
    for source, copy in ((table, "rows.parquet"), (folder / "rows.parquet", "copy.parquet")):
        theirs = run(ARROW, {"source": str(source), "dest": str(folder / copy)})
        asked = {"source": str(source), "dest": f"{dest}/{source.suffix[1:]}", "storage": s3.storage_options}
        ours = run(PREPARE, asked)
        found[source.suffix[1:]] = {
            "pyarrow, s": theirs["seconds"],
            "prepare, s": ours["seconds"],
            "speed, prepare / pyarrow": theirs["seconds"] / ours["seconds"],
            "resident memory, MB": ours["rss"] / 1024,
        }
    return {**found, **scores(Location(f"{dest}/csv", s3.storage_options), folder, table)}


def write_csv(table: Path, n_bytes: float, seed: int) -> int:
    """Rows of the table until the file has this size; a tenth of the second and third number is missing."""
    rng, n = np.random.default_rng(seed), 0
    with table.open("wb") as file:
        while file.tell() < n_bytes:
            csv.write_csv(some_rows(rng), file, csv.WriteOptions(include_header=n == 0, quoting_style="none"))
            n += ROWS_AT_ONCE
    return n


def some_rows(rng: np.random.Generator) -> Any:
    numbers = (rng.normal(size=(ROWS_AT_ONCE, 8)) * 10.0 ** np.arange(8)).astype(np.float32)
    codes = [rng.integers(0, levels, ROWS_AT_ONCE) for levels in TEXTS.values()]
    wanted = numbers[:, 0] + codes[2] / 2 + rng.normal(size=ROWS_AT_ONCE) > 1
    missing = [rng.random(ROWS_AT_ONCE) < share for share in (0, 0.1, 0.1, 0, 0, 0, 0, 0)]
    columns = {f"number{k}": pa.array(numbers[:, k], mask=missing[k]) for k in range(8)}
    columns |= {
        name: pa.array([f"{name}-{k}" for k in range(TEXTS[name])]).take(pa.array(c))
        for name, c in zip(TEXTS, codes, strict=True)
    }
    return pa.table({**columns, "bought": pa.array(wanted.astype(np.int64))})


def run(code: str, told: dict[str, Any]) -> dict[str, Any]:
    """What a new process prints, so that its memory is its own."""
    command = [sys.executable, "-c", code, json.dumps(told)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def scores(data: Location, folder: Path, table: Path) -> dict[str, Any]:
    """The accuracy on the test part, and on all raw rows."""
    model = folder / "model"
    distdual.train(
        {
            "data": {"url": f"{data.url}/train", "storage_options": dict(data.storage_options)},
            "problem": {"kind": "binary", "bias": 1.0},
            "solver": {"C": 1e-3, "gap": 1e-2},
            "output": {"url": str(model)},
        }
    )
    test = distdual.predict(model, data / "test").score
    raw = distdual.predict(model, table).score
    return {"accuracy of the test part": test, "accuracy of the raw rows": raw}


if __name__ == "__main__":
    main()
