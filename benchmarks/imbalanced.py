"""A rare class: AUC and F1 of `multivariate` beside LinearSVC with balanced class weights, and pairs that are sampled.

    python -m benchmarks.imbalanced DATA_FOLDER [--repeat 3] [--pairs 2000000] [--workers] [--json FILE]

Class 4 of covtype, 0.5 % of the rows, against the rest. Each side chooses its C by the AUC, or F1, on a tenth of the
training rows, then trains on all of them; figures are of the test rows. The third solver gets the differences of
sampled pairs of a positive and a negative, at the same C, and stops at scikit-learn's tolerance. Times of this process,
with two threads where the solver has any, are medians of interleaved runs from arrays to weights.

--workers measures instead what one and two worker processes take for the scans of a pass of AUC.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.svm import LinearSVC

from benchmarks.datasets.covtype import parts
from distdual.cluster.dask_client import connect
from distdual.cluster.dask_executor import DaskExecutor
from distdual.cluster.threads import InlineExecutor
from distdual.cluster.whole_oracle import oracle_of
from distdual.config import ClusterConfig, LocalCluster, SolverConfig
from distdual.coordinator.whole_trainer import WholeTrainer
from distdual.data.dataset import open_dataset
from distdual.data.in_memory import in_memory
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from distdual.problems.multivariate.problem import Multivariate

RARE = 4  # the class
GAP = 1e-2
OURS = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)  # choices of C
THEIRS = (1e-5, 1e-4, 1e-3, 1e-2)
COPIES = 4  # of the training rows, for scans that take longer than Dask takes for a task
PASSES = 8


class Rows(NamedTuple):
    x: Any
    y: Any  # True for the rare class

    def scored(self, w: Any, bias: float) -> dict[str, float]:
        scores = self.x @ w + bias
        return {"auc": float(roc_auc_score(self.y, scores)), "f1": float(f1_score(self.y, scores > 0))}


class Fitted(NamedTuple):
    w: Any
    bias: float
    seconds: float
    more: dict[str, Any]


Fit = Callable[[Rows, float], Fitted]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DATA_FOLDER")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=2_000_000)
    parser.add_argument("--workers", action="store_true", help="measure one and two worker processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    told = parser.parse_args()
    warnings.filterwarnings("ignore", message="Liblinear failed to converge")
    x, y, x_test, y_test = parts(told.folder)
    train, test = Rows(x, y == RARE), Rows(x_test, y_test == RARE)
    found = scan_seconds(train, told.repeat) if told.workers else compare(train, test, told.repeat, told.pairs)
    print(json.dumps(found, indent=1))
    if told.json:
        told.json.write_text(json.dumps(found, indent=1) + "\n")


def compare(train: Rows, test: Rows, repeat: int, n_pairs: int) -> dict[str, Any]:
    n = len(train.y) * 9 // 10
    fitting, held = Rows(train.x[:n], train.y[:n]), Rows(train.x[n:], train.y[n:])
    found: dict[str, Any] = {"rows": len(train.y), "positives": int(train.y.sum())}
    for loss in ("auc", "f1"):
        fits: dict[str, tuple[Fit, float]] = {
            "distdual": (ours := fit_of(loss), C := best_of(OURS, loss, ours, fitting, held)),
            "LinearSVC, balanced": (balanced, best_of(THEIRS, loss, balanced, fitting, held)),
        }
        if loss == "auc":
            fits[f"LinearSVC, {n_pairs:,} pairs"] = (lambda rows, C: sampled(rows, C, n_pairs), C)
        found[loss] = measured(fits, train, test, repeat)
    return found


def measured(fits: dict[str, tuple[Fit, float]], train: Rows, test: Rows, repeat: int) -> dict[str, Any]:
    runs: dict[str, list[Fitted]] = {name: [] for name in fits}
    for _ in range(repeat):
        for name, (fit, C) in fits.items():
            runs[name].append(fit(train, C))
    own = statistics.median(run.seconds for run in runs["distdual"])
    found = {}
    for name, done in runs.items():
        seconds = statistics.median(run.seconds for run in done)
        last = done[-1]
        figures = {"C": fits[name][1], "seconds": round(seconds, 3), "ours / its seconds": round(own / seconds, 3)}
        found[name] = {**figures, **test.scored(last.w, last.bias), **last.more}
    return found


def best_of(choices: tuple[float, ...], loss: str, fit: Fit, fitting: Rows, held: Rows) -> float:
    """The C with the best AUC or F1 on rows that are held out."""

    def score(C: float) -> float:
        fitted = fit(fitting, C)
        found = held.scored(fitted.w, fitted.bias)[loss]
        told = f"{loss} {found:.5f} on rows held out, {fitted.seconds:.1f} s {fitted.more or ''}"
        print(f"{fit.__name__}, C = {C:g}: {told}", file=sys.stderr, flush=True)
        return found

    return max(choices, key=score)


def fit_of(loss: str) -> Fit:
    def fit(rows: Rows, C: float) -> Fitted:
        begin = time.perf_counter()
        data = in_memory(rows.x, np.where(rows.y, 1, -1))
        bias = 1.0 if loss == "f1" else 0.0
        problem = Multivariate(n_features=rows.x.shape[1], classes=("-1", "1"), loss=loss, bias=bias)
        executor = InlineExecutor(data, problem)
        try:
            outcome = WholeTrainer(problem, data, executor, SolverConfig(C=C, gap=GAP)).run()
        finally:
            executor.close()
        seconds = time.perf_counter() - begin
        proven = {"gap": outcome.certificate.gap, "passes": outcome.totals.passes}
        return Fitted(outcome.w[:54], float(outcome.w[54]) if bias else 0.0, seconds, proven)

    fit.__name__ = "distdual"
    return fit


def balanced(rows: Rows, C: float) -> Fitted:
    begin = time.perf_counter()
    model = LinearSVC(C=C, class_weight="balanced").fit(rows.x, rows.y)
    return Fitted(model.coef_[0], float(model.intercept_[0]), time.perf_counter() - begin, {})


def sampled(rows: Rows, C: float, n_pairs: int) -> Fitted:
    """The AUC's problem on some of its pairs: C n / n_pairs for the hinge of each."""
    begin, rng = time.perf_counter(), np.random.default_rng(0)
    positive, negative = (rng.choice(np.flatnonzero(own), n_pairs) for own in (rows.y, ~rows.y))
    sign = np.where(np.arange(n_pairs) % 2, 1.0, -1.0)
    pairs = (rows.x[positive] - rows.x[negative]) * sign[:, np.newaxis]
    model = LinearSVC(loss="hinge", C=C * len(rows.y) / n_pairs, fit_intercept=False).fit(pairs, sign)
    return Fitted(model.coef_[0], 0.0, time.perf_counter() - begin, {})


def scan_seconds(train: Rows, repeat: int) -> dict[str, Any]:
    """Seconds of the oracle of a pass, which scans for pairs at several weights, by the number of workers."""
    problem = Multivariate(n_features=train.x.shape[1], classes=("-1", "1"))
    weights = np.random.default_rng(0).normal(size=(4, problem.n_weights)) / 20
    taken: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory(prefix="distdual-imbalanced-") as scratch:
        place = Location(str(Path(scratch) / "data"))
        x, y = np.tile(train.x, (COPIES, 1)), np.tile(np.where(train.y, 1, -1), COPIES)
        prepare_arrays(x, y, place, "multivariate", shard_bytes=8 << 20)
        data = open_dataset(place)
        for _ in range(repeat):
            for workers, seconds in taken.items():
                with connect(ClusterConfig(local=LocalCluster(workers=workers, threads=1))) as client:
                    executor = DaskExecutor(client, data, problem)
                    oracle = oracle_of(problem)(executor, problem, data.n_shards, lambda t: executor.publish(0, t))  # noqa: B023
                    for k in range(PASSES + 1):
                        begin = time.perf_counter()
                        oracle.find(weights + 0.01 * k).rows()
                        if k:  # shards are read in the first
                            seconds.append(time.perf_counter() - begin)
                    executor.close()
    one, two = (statistics.median(seconds) for seconds in taken.values())
    return {"rows": len(y), "one worker, s": one, "two workers, s": two, "ratio": one / two}


if __name__ == "__main__":
    main()
