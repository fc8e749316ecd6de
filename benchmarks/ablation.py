"""Ablation: what each mechanism of the solver gains, by switching it off.

    python -m benchmarks.ablation DATA [--case NAME]… [--without NAME]… [--repeat 3] [--streamed]
        [--json FILE]

Each variant is a process of its own that replaces one function or constant, and solves the cases of
`benchmarks.compare` in memory. A first run of each case counts passes and updates, and compiles kernels; --repeat runs
that follow, interleaved in an order by lot, give the median of the seconds. Where switching a mechanism off changes no
count and could not change seconds otherwise, it took no part, and no further runs are made. --repeat 0 only counts.
With --streamed, runs are scheduled as if shards were read from storage.
"""

import argparse
import contextlib
import json
import random
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.ablation_switches import SWITCHES
from benchmarks.compare import ENTRIES, HERE, Entry, Tree
from benchmarks.table import markdown

ALL = "everything on"
COUNTS = ("passes", "updates")
Found = dict[str, dict[str, Any]]  # by variant: passes, updates, gap, and a list of seconds


def main() -> None:
    arguments = argparse.ArgumentParser(
        "python -m benchmarks.ablation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("folder", type=Path, metavar="DATA")
    arguments.add_argument("--case", action="append", choices=list(ENTRIES), help="may be given several times")
    arguments.add_argument("--without", action="append", choices=list(SWITCHES), help="may be given several times")
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--streamed", action="store_true", help="schedule as for data read from storage")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="add all figures to this file")
    told = arguments.parse_args()
    if not told.folder.is_dir():
        arguments.error(f"{told.folder} is no folder")
    found: dict[str, Found] = json.loads(told.json.read_text()) if told.json and told.json.exists() else {}
    options = {"stream": "yes"} if told.streamed else {}
    for name in told.case or ENTRIES:
        with processes(told.folder.resolve(), told.without or list(SWITCHES)) as trees:
            merge(found.setdefault(name, {}), measured(trees, ENTRIES[name], told.repeat, options))
        print(name, found[name], file=sys.stderr, flush=True)
        if told.json:
            told.json.write_text(json.dumps(found, indent=1) + "\n")
    print("\n\n".join([counts(found), seconds(found)]))


@contextlib.contextmanager
def processes(data: Path, switches: list[str]) -> Iterator[dict[str, Tree]]:
    """A process for each variant; those with kernels of their own keep them apart."""
    with contextlib.ExitStack() as stack:
        trees = {ALL: Tree(HERE, data)}
        for name in switches:
            apart = f"-{name.replace(' ', '-')}" if SWITCHES[name].compiled else ""
            trees[name] = Tree(HERE, data, "--without", name, kernels=f".numba-compare{apart}")
        for tree in trees.values():
            stack.callback(tree.close)
        yield trees


def measured(trees: dict[str, Tree], entry: Entry, repeat: int, options: dict[str, Any]) -> Found:
    found: Found = {}
    for name, tree in trees.items():
        tree.ask(case=entry.case, C=entry.C)
        run = tree.ask(gap=entry.gap, options=options)
        found[name] = {what: run[what] for what in (*COUNTS, "gap")} | {"seconds": []}
    chosen = [name for name in trees if name == ALL or took_part(name, found)]
    for turn in range(repeat if len(chosen) > 1 else 0):
        for name in random.Random(turn).sample(sorted(chosen), len(chosen)):
            found[name]["seconds"].append(trees[name].ask(gap=entry.gap, options=options)["seconds"])
    return found


def took_part(name: str, found: Found) -> bool:
    """Whether switching this off made a difference, or may make one in seconds."""
    return name != ALL and (not SWITCHES[name].counts or any(found[name][what] != found[ALL][what] for what in COUNTS))


def merge(known: Found, new: Found) -> None:
    for name, figures in new.items():
        known[name] = {**figures, "seconds": known.get(name, {}).get("seconds", []) + figures["seconds"]}


def counts(found: dict[str, Found]) -> str:
    """Passes and updates of each case: with everything, and without each mechanism that changes them."""
    variants = [ALL, *(name for name in SWITCHES if SWITCHES[name].counts)]
    rows = []
    for case, by_name in found.items():
        told = [
            by_name[name] if name in by_name and (name == ALL or took_part(name, by_name)) else None
            for name in variants
        ]
        rows.append([case, f"{ENTRIES[case].gap:g}", *(count(one) if one else "same" for one in told)])
    return markdown(["passes / updates without", "gap", *variants], rows)


def count(figures: dict[str, Any]) -> str:
    return f"{figures['passes']} / {figures['updates']:,}"


def seconds(found: dict[str, Found]) -> str:
    """Median seconds of each case with everything, and the ratio without each mechanism that took part."""
    rows = [[case, *(ratio(by_name, name) for name in (ALL, *SWITCHES))] for case, by_name in found.items()]
    return markdown(["seconds without", ALL, *SWITCHES], rows)


def ratio(by_name: Found, name: str) -> str:
    runs = by_name.get(name, {}).get("seconds")
    if not runs:
        return "same"
    middle, base = statistics.median(runs), statistics.median(by_name[ALL]["seconds"])
    return f"{base:.3g} s" if name == ALL else f"{middle / base:.2f}"


if __name__ == "__main__":
    main()
