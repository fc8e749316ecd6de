"""Tables to data sets on S3: seconds and resident memory of `prepare`, beside pyarrow's own CSV to Parquet.

    python -m benchmarks.frames --megabytes 3000

Rows have 12 columns: 8 numbers, two with missing values, 3 texts and a label. `prepare` learns levels, means and
deviations in one pass and writes shards in a second; pyarrow streams the same file to Parquet. Both read from the local
disk and write to the same S3 server. The last lines train on the data set and compare its test part's score with that
of all raw rows.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv
from pyarrow import parquet as pq

import distdual
from distdual.data.storage.location import Location
from tests.s3_server import S3Server

ROWS_AT_ONCE = 50_000
BLOCKS = 20  # of rows that differ
TEXTS = {"city": 40, "job": 25, "plan": 5}  # levels of each
PEAK = """
import json, sys, time
from pathlib import Path
told = json.loads(sys.argv[1])
begin = time.perf_counter()

def finish():
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(json.dumps({"seconds": time.perf_counter() - begin, "MB": int(lines["VmHWM"].split()[0]) * 1024 / 1e6}))
"""
PREPARE = f"""{PEAK}
from distdual.data.prepare.api import prepare
begin = time.perf_counter()
prepare(told["source"], told["dest"], "binary", label="bought", missing="mean", scale="unit-variance", shuffle=None,
        test_fraction=0.1, overwrite=True, storage_options=told["storage"])
finish()
"""
ARROW = f"""{PEAK}
import pyarrow.csv, pyarrow.fs, pyarrow.parquet as pq
files = pyarrow.fs.S3FileSystem(**told["server"])
begin = time.perf_counter()
if told["source"].endswith(".csv"):
    reader = pyarrow.csv.open_csv(told["source"])
    schema, batches = reader.schema, reader
else:
    file = pq.ParquetFile(told["source"])
    schema, batches = file.schema_arrow, file.iter_batches()
with pq.ParquetWriter(told["dest"].removeprefix("s3://"), schema, filesystem=files) as writer:
    for batch in batches:
        writer.write_batch(batch)
finish()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", nargs="+", choices=("csv", "parquet"), default=["csv", "parquet"])
    parser.add_argument("--repeat", type=int, default=1, help="runs of each, of which the median is taken")
    parser.add_argument("--score", action="store_true", help="train, and predict the raw rows too")
    parser.add_argument("--folder", type=Path, default=None, help="where the files are written; tables are kept there")
    parser.add_argument("--write", action="store_true", help="write the tables to the folder, and measure nothing")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="distdual-frames-", dir=told.folder) as scratch:
        table = (told.folder or Path(scratch)) / f"rows-{told.megabytes:g}.csv"
        write_tables(table, told.megabytes * 1e6, told.seed)
        if told.write:
            return
        server = S3Server(Path(scratch))
        try:
            print(json.dumps(measure(table, Path(scratch) / "model", server.start(), told), indent=2))
        finally:
            server.close()


def measure(table: Path, model: Path, s3: S3Server, told: argparse.Namespace) -> dict[str, Any]:
    dest, found = s3.url(), dict[str, Any]()
    for format_ in told.formats:
        source = table.with_suffix(f".{format_}")
        found[format_] = {
            "megabytes": source.stat().st_size / 1e6,
            **compared(str(source), f"{dest}/{format_}", s3, told.repeat),
        }
    if told.score:
        found |= scores(Location(f"{dest}/{told.formats[0]}", s3.storage_options), model, table)
    return found


def compared(source: str, dest: str, s3: S3Server, repeat: int) -> dict[str, Any]:
    """Both programs in turn, so that what the machine does meanwhile slows both."""
    server = {"access_key": s3.key, "secret_key": s3.secret, "endpoint_override": s3.endpoint, "region": "us-east-1"}
    runs = [
        (
            run(ARROW, {"source": source, "dest": f"{dest}-copy.parquet", "server": server}),
            run(PREPARE, {"source": source, "dest": dest, "storage": s3.storage_options}),
        )
        for _ in range(repeat)
    ]
    return {
        "pyarrow, s": statistics.median(theirs["seconds"] for theirs, _ in runs),
        "prepare, s": statistics.median(ours["seconds"] for _, ours in runs),
        "speed, prepare / pyarrow": statistics.median(theirs["seconds"] / ours["seconds"] for theirs, ours in runs),
        "resident memory of pyarrow, MB": max(theirs["MB"] for theirs, _ in runs),
        "resident memory of prepare, MB": max(ours["MB"] for _, ours in runs),
    }


def write_tables(table: Path, n_bytes: float, seed: int) -> None:
    """Write rows until the CSV file has this size, and the same as Parquet beside it, unless they are there.

    A tenth of the second and third number is missing. A million rows differ; then they come again.
    """
    if table.with_suffix(".parquet").exists():
        return
    rng = np.random.default_rng(seed)
    blocks = [some_rows(rng) for _ in range(BLOCKS)]
    texts = [as_csv(rows) for rows in blocks]
    with table.open("wb") as file, pq.ParquetWriter(table.with_suffix(".parquet"), blocks[0].schema) as writer:
        file.write(",".join(blocks[0].column_names).encode() + b"\n")
        for number in itertools.cycle(range(BLOCKS)):
            file.write(texts[number])
            writer.write_table(blocks[number])
            if file.tell() >= n_bytes:
                return


def as_csv(rows: Any) -> bytes:
    """Without the line of names."""
    found = pa.BufferOutputStream()
    csv.write_csv(rows, found, csv.WriteOptions(include_header=False, quoting_style="none"))
    return bytes(found.getvalue())


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


def scores(data: Location, model: Path, table: Path) -> dict[str, Any]:
    """The accuracy on the test part, and on all raw rows."""
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
