"""The cost of shared slacks: passes, oracle calls, cache and seconds to a certified gap, by granularity.

    python -m benchmarks.slack DATA_FOLDER [covtype covtype7 ocr cfg budget noisy] [--seconds LIMIT]

covtype   class 2 against the rest, C = 0.01, gap 1e-3: the automatic choice beside single examples and blocks
covtype7  all seven classes with a bias, C = 0.19, gap 1e-2; then LinearSVC(multi_class="crammer_singer", max_iter=60)
ocr       OCR letters as chains, C = 0.1, gap 1e-2; also 1-slack with recent offenders
cfg       Penn Treebank sample, up to 15 words, span loss, C = 1, gap 1e-2; 1-slack without and with recent offenders
budget    covtype in 5 % of the memory that single examples take, gap 1e-2, members written down and verified
noisy     2,000,000 synthetic rows with a fifth of the labels flipped, gap 1e-2, in a cache of 64 MB

Data sets are on a local disk; each row of a table is one run, stopped after LIMIT seconds (120). Memory is what a fresh
process grew by, the data included, as its own threads scan the shards.
"""

import argparse
import itertools
import multiprocessing
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.svm import LinearSVC

import distdual
from benchmarks.case import need
from benchmarks.datasets.covtype import parts, two_classes
from benchmarks.machine import memory
from distdual.coordinator.run import Result
from distdual.data.prepare.api import prepare, prepare_arrays

COLUMNS = ("passes", "oracle_calls", "calls_saved", "cache_rows", "support")


def run(scratch: str, name: str, problem: dict[str, Any], **solver: Any) -> Result:
    return distdual.train(
        {
            "data": {"url": f"{scratch}/{name}"},
            "problem": problem,
            "solver": {"max_passes": 100_000, **solver},
            "output": {"url": f"{scratch}/model", "overwrite": True},
        }
    )


def table(scratch: str, name: str, problem: dict[str, Any], cases: list[dict[str, Any]], **solver: Any) -> None:
    """One line a case, after runs that compile."""
    for case in cases:
        run(scratch, name, problem, **{**solver, **case, "max_passes": 2})
    print(f"| {name} | passes | oracle calls | calls saved | cache rows | support | MB on the wire | seconds | gap |")
    print("|---" * 9 + "|")
    for case in cases:
        found = run(scratch, name, problem, **{**solver, **case}).certificate
        told = case["slack"] + (f", {case['offender_cache']} recent" if "offender_cache" in case else "")
        told += f" ({found['slack']})" if found["slack"] != case["slack"] else ""
        figures = [f"{found[column]:,}" for column in COLUMNS]
        figures += [f"{found['wire_bytes'] / 1e6:.1f}", f"{found['seconds']:.2f}", f"{found['gap']:.1e}"]
        print(f"| {told} | {' | '.join(figures)} |", flush=True)


def slacks(*names: str) -> list[dict[str, Any]]:
    return [{"slack": name} for name in names]


def write_covtype(folder: Path, scratch: str) -> None:
    x, y, _, _ = two_classes(folder)
    prepare_arrays(x, y, f"{scratch}/covtype", "binary")


def bench_covtype(folder: Path, scratch: str, seconds: float) -> None:
    write_covtype(folder, scratch)
    cases = slacks("auto", "example", "block:8", "block:64", "block:512", "block:4096")
    table(scratch, "covtype", {"kind": "binary"}, cases, C=0.01, gap=1e-3, max_seconds=seconds)


def bench_covtype7(folder: Path, scratch: str, seconds: float) -> None:
    x, y, _, _ = parts(folder)
    prepare_arrays(x, y, f"{scratch}/covtype7", "multiclass")
    cases = slacks("auto", "block:64", "block:512", "shard", "all")
    problem = {"kind": "multiclass", "bias": 1.0}
    table(scratch, "covtype7", problem, cases, C=0.19, gap=1e-2, max_seconds=seconds)
    wide = np.hstack([x, np.ones((len(x), 1))])
    peer = LinearSVC(multi_class="crammer_singer", C=0.19, fit_intercept=False, max_iter=60)
    begin = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):
        peer.fit(wide, y)
    print(f"LinearSVC: {time.perf_counter() - begin:.1f} s, n_iter_ = {peer.n_iter_}")


def bench_ocr(folder: Path, scratch: str, seconds: float) -> None:
    packed = np.load(need(folder, "ocr_letters", "letters.npz"))
    lengths = np.diff(packed["offsets"])
    training = packed["fold"] != 0
    x = np.unpackbits(packed["X_packed"], axis=1).astype(np.float32)[np.repeat(training, lengths)]
    y = packed["y"][np.repeat(training, lengths)].astype(int)
    prepare_arrays(x, y, f"{scratch}/ocr", "chain", lengths=lengths[training], shuffle=0, shard_bytes=4 << 20)
    cases = [*slacks("auto", "block:8", "block:64", "shard", "all"), {"slack": "all", "offender_cache": 5}]
    problem = {"kind": "chain", "boundaries": False}
    table(scratch, "ocr", problem, cases, C=0.1, gap=1e-2, max_seconds=seconds)


def bench_cfg(folder: Path, scratch: str, seconds: float) -> None:
    trees = need(folder, "nltk_treebank", "treebank_clean.mrg.xz")
    prepare(trees, f"{scratch}/cfg", "cfg", max_length=15, shuffle=0)
    cases = [*slacks("auto", "all"), {"slack": "all", "offender_cache": 5}]
    table(scratch, "cfg", {"kind": "cfg", "loss": "span"}, cases, C=1.0, gap=1e-2, max_seconds=seconds)


def bench_budget(folder: Path, scratch: str, seconds: float) -> None:
    write_covtype(folder, scratch)
    told = {"C": 0.01, "gap": 1e-2, "max_seconds": seconds}
    free = run(scratch, "covtype", {"kind": "binary"}, slack="example", **told)
    afresh(scratch, "covtype", 0.05 * max(line.cache_bytes for line in free.history), told)


def bench_noisy(folder: Path, scratch: str, seconds: float) -> None:  # noqa: ARG001 - as the others
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2_000_000, 20)).astype(np.float32)
    y = (x @ rng.normal(size=20) > 0) ^ (rng.random(len(x)) < 0.2)
    prepare_arrays(x, y.astype(int), f"{scratch}/noisy", "binary")
    del x, y
    afresh(scratch, "noisy", 64e6, {"C": 0.01, "gap": 1e-2, "max_seconds": seconds})


def afresh(scratch: str, name: str, budget: float, told: dict[str, Any]) -> None:
    """`limited` in a fresh process."""
    process = multiprocessing.get_context("spawn").Process(target=limited, args=(scratch, name, budget, told))
    process.start()
    process.join()


def limited(scratch: str, name: str, budget: float, told: dict[str, Any]) -> None:
    """A run with little memory: its peak, and whether `verify` agrees."""
    before = memory("VmRSS")
    result = run(scratch, name, {"kind": "binary"}, slack="auto", cache_bytes=budget, **told)
    grown = memory("VmHWM") - before
    found, lines = result.certificate, result.history
    falls = sum(b.lower < a.lower for a, b in itertools.pairwise(lines))
    print(f"{name} in {budget / 1e6:.1f} MB: slack {found['slack']}, gap {found['gap']:.2e}, {found['seconds']:.1f} s")
    print(
        f"  cache at most {max(line.cache_bytes for line in lines) / 1e6:.1f} MB, process grew by {grown / 1e6:.0f} MB"
    )
    print(f"  {found['coalesced']:,} constraints coalesced; `lower` fell {falls} times")
    print(f"  verify: certified {distdual.verify(f'{scratch}/model').certified}")


ALL = {
    "covtype": bench_covtype,
    "covtype7": bench_covtype7,
    "ocr": bench_ocr,
    "cfg": bench_cfg,
    "budget": bench_budget,
    "noisy": bench_noisy,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, metavar="DATA_FOLDER")
    arguments.add_argument("which", nargs="*", metavar="WHICH", help=", ".join(ALL))
    arguments.add_argument("--seconds", type=float, default=120.0, metavar="LIMIT")
    told = arguments.parse_args()
    for name in told.which or ALL:
        with tempfile.TemporaryDirectory(prefix="distdual-slack-") as scratch:
            ALL[name](told.folder, scratch, told.seconds)


if __name__ == "__main__":
    main()
