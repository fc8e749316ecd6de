"""Benchmarks of distdual and its peers.

    python -m benchmarks DATA [--suite SUITE]… [--repeat 5] [--out DIR]

DATA is a folder with the data sets. All solvers of a case get the same problem and the same data in memory (chains and
trees: on disk, for distdual), two threads where they can use them, and are judged by one objective. distdual is timed
to a certified gap; a peer gets the least effort whose P(w) is within the same gap of the best lower bound known, which
is looked for first. Then all runs are interleaved, in an order by lot, and repeated, in a process that keeps the memory
that is freed in it; the record keeps median, fastest and slowest. A peer that is not installed, or fails, or is not
there in time, is reported as such.

DIR gets record.json, tables.md and a plot of each case. `python -m benchmarks.publish DIR/record.json` puts the tables
into README.md and docs/benchmarks.md. Without --suite, all but `headline` (the cases and peers that targets were set
for) and `tiny` (synthetic, a minute) are run.
"""

import os

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")
os.environ.update(THREADS)  # before anybody imports NumPy: the same for all

import argparse  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from datetime import UTC, datetime  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from benchmarks import machine, plots, publish  # noqa: E402
from benchmarks.datasets import CASES, TINY  # noqa: E402
from benchmarks.race import probe, race  # noqa: E402
from benchmarks.solvers import peers_for  # noqa: E402
from benchmarks.suites import SUITES, WHOLE  # noqa: E402


def main() -> None:
    arguments = argparse.ArgumentParser(
        "python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("folder", type=Path, metavar="DATA")
    arguments.add_argument("--suite", action="append", choices=list(SUITES), help="may be given several times")
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--out", type=Path, default=Path("benchmark-results"), metavar="DIR")
    told = arguments.parse_args()
    if told.repeat < 1:
        arguments.error(f"--repeat must be at least 1, got {told.repeat}")
    if not told.folder.is_dir():
        arguments.error(f"{told.folder} is no folder")
    told.out.mkdir(parents=True, exist_ok=True)
    if not machine.keep_memory():
        print("not glibc: freed memory goes back to the system, and times depend on who ran before", file=sys.stderr)
    for record in measured(told.folder, told.suite or list(WHOLE), told.repeat):
        publish.write(record, told.out / "record.json")
    (told.out / "tables.md").write_text(publish.pages(record))
    plots.draw(record, told.out)
    print(publish.pages(record))


def measured(folder: Path, names: list[str], repeat: int) -> Iterator[dict[str, Any]]:
    """The record after each case and each measurement, so that an interrupted run keeps its measurements."""
    begin = time.perf_counter()
    suites = {name: SUITES[name] for name in names}
    known: dict[str, str] = {}
    stamp = {
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"python -m benchmarks DATA {' '.join(f'--suite {name}' for name in names)} --repeat {repeat}",
        "machine": machine.machine(),
        "versions": machine.versions(),
    }
    races: list[dict[str, Any]] = []
    tables: list[dict[str, Any]] = []
    for name, suite in suites.items():
        for case in suite.cases:
            tell(f"{name}: {case}")
            with tempfile.TemporaryDirectory(prefix="distdual-benchmark-") as scratch:
                made = CASES[case](folder, Path(scratch))
                peers = probed(folder, made.kind, suite.peers, known)
                found = race(made, folder, repeat, peers, suite.patience)
            races.append({**found, **stamp, "load": machine.load()})
            yield record_of(begin, known, races, tables)
        for each in suite.measurements:
            tell(f"{name}: {each.__name__}")
            with tempfile.TemporaryDirectory(prefix="distdual-benchmark-") as scratch:
                made_tables = each(folder, Path(scratch), repeat)
            tables += [{**table._asdict(), **stamp, "load": machine.load()} for table in made_tables]
            yield record_of(begin, known, races, tables)


def record_of(begin: float, peers: dict[str, str], races: list[Any], tables: list[Any]) -> dict[str, Any]:
    return {"seconds": round(time.perf_counter() - begin), "peers": peers, "races": races, "tables": tables}


def probed(folder: Path, kind: str, only: tuple[str, ...] | None, known: dict[str, str]) -> dict[str, str]:
    """The reason why a peer cannot run this kind of problem, by name; empty for peers that run."""
    asked = [peer for peer in peers_for(kind) if only is None or peer.name in only]
    for peer in asked:
        if peer.name not in known:
            tell(f"probe: {peer.name}")
            known[peer.name] = probe(folder, peer, TINY)
    return {peer.name: known[peer.name] for peer in asked}


def tell(what: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
