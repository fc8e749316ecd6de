"""A rare class: AUC and F1 of `multivariate` beside LinearSVC with balanced class weights, and pairs that are sampled.

    python -m benchmarks.imbalanced DATA_FOLDER [--repeat 3] [--pairs 2000000] [--workers] [--json FILE]

Class 4 of covtype, 0.5 % of the rows, against the rest. Each side chooses its C by the AUC, or F1, on a tenth of the
training rows, then trains on all of them; figures are of the test rows. F1 is also given with the threshold that is
best on the tenth. The third solver gets the differences of sampled pairs of a positive and a negative, at the same C,
and stops at scikit-learn's tolerance. Times of this process, with two threads where the solver has any, are medians of
interleaved runs from arrays to weights.

--workers measures instead what one and two worker processes take for the phases of a pass of AUC, of ten copies of the
negatives: the fastest of all passes, which other work on the machine disturbs least.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import f1_score, precision_recall_curve, roc_auc_score
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
OURS = {"auc": (1e-4, 1e-3, 1e-2, 1e-1, 1.0), "f1": (0.1, 1.0, 10.0, 100.0, 1000.0)}  # choices of C
THEIRS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
COPIES = 10  # of the negatives, for scans that take longer than Dask takes for a task
PASSES = 8  # for each number of workers, each time
MOST_PASSES = 1000


class Fitted(NamedTuple):
    w: Any
    bias: float
    seconds: float
    more: dict[str, Any]


class Rows(NamedTuple):
    x: Any
    y: Any  # True for the rare class

    def scored(self, fitted: Fitted, threshold: float | None = None) -> dict[str, float]:
        """The AUC; F1 as it is; and with another threshold, by default the best for these rows."""
        scores = self.scores(fitted)
        moved = scores > (self.best_threshold(fitted) if threshold is None else threshold)
        f1 = {"f1": f1_score(self.y, scores > 0), "f1, threshold moved": f1_score(self.y, moved)}
        return {"auc": float(roc_auc_score(self.y, scores)), **{name: float(value) for name, value in f1.items()}}

    def scores(self, fitted: Fitted) -> Any:
        return self.x @ fitted.w + fitted.bias

    def best_threshold(self, fitted: Fitted) -> float:
        precision, recall, thresholds = precision_recall_curve(self.y, self.scores(fitted))
        f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-300)
        at = int(np.argmax(f1[:-1]))
        return float(np.nextafter(thresholds[at], -np.inf))


class Chosen(NamedTuple):
    C: float
    threshold: float


Fit = Callable[[Rows, float], Fitted]
Phases = dict[str, list[float]]  # seconds of each phase, by name


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
    theirs = sweep(balanced, THEIRS, fitting)
    for loss in ("auc", "f1"):
        ours = fit_of(loss)
        chosen = best_of(loss, sweep(ours, OURS[loss], fitting), held)
        fits = {"distdual": (ours, chosen), "LinearSVC, balanced": (balanced, best_of(loss, theirs, held))}
        if loss == "auc":
            fits[f"LinearSVC, {n_pairs:,} pairs"] = (lambda rows, C: sampled(rows, C, n_pairs), chosen)
        found[loss] = measured(fits, train, test, repeat)
    return found


def sweep(fit: Fit, choices: tuple[float, ...], fitting: Rows) -> dict[float, Fitted]:
    found = {}
    for C in choices:
        found[C] = fit(fitting, C)
        print(f"{fit.__name__}, C = {C:g}: {found[C].seconds:.1f} s {found[C].more}", file=sys.stderr, flush=True)
    return found


def best_of(loss: str, fitted: dict[float, Fitted], held: Rows) -> Chosen:
    """The C with the best AUC or F1 on rows that are held out, and the threshold with the best F1 there."""

    def score(C: float) -> float:
        found = held.scored(fitted[C])
        print(f"C = {C:g}: {found} on rows held out", file=sys.stderr, flush=True)
        return max(found["f1"], found["f1, threshold moved"]) if loss == "f1" else found["auc"]

    best = max(fitted, key=score)
    return Chosen(best, held.best_threshold(fitted[best]))


def measured(fits: dict[str, tuple[Fit, Chosen]], train: Rows, test: Rows, repeat: int) -> dict[str, Any]:
    runs: dict[str, list[Fitted]] = {name: [] for name in fits}
    for _ in range(repeat):
        for name, (fit, chosen) in fits.items():
            runs[name].append(fit(train, chosen.C))
    own = statistics.median(run.seconds for run in runs["distdual"])
    found = {}
    for name, done in runs.items():
        seconds = statistics.median(run.seconds for run in done)
        last, chosen = done[-1], fits[name][1]
        figures = {"C": chosen.C, "seconds": round(seconds, 3), "ours / its seconds": round(own / seconds, 3)}
        found[name] = {**figures, **test.scored(last, chosen.threshold), **last.more}
    return found


def fit_of(loss: str) -> Fit:
    def fit(rows: Rows, C: float) -> Fitted:
        begin = time.perf_counter()
        data = in_memory(rows.x, np.where(rows.y, 1, -1))
        bias = 1.0 if loss == "f1" else 0.0
        problem = Multivariate(n_features=rows.x.shape[1], classes=("-1", "1"), loss=loss, bias=bias)
        executor = InlineExecutor(data, problem)
        try:
            outcome = WholeTrainer(problem, data, executor, SolverConfig(C=C, gap=GAP, max_passes=MOST_PASSES)).run()
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
    """The fastest of each phase of a pass of AUC, which looks at several weights, by the number of workers."""
    taken: dict[int, Phases] = {1: {}, 2: {}}
    with tempfile.TemporaryDirectory(prefix="distdual-imbalanced-") as scratch:
        place = Location(str(Path(scratch) / "data"))
        negatives = np.tile(np.flatnonzero(~train.y), COPIES - 1)
        x = np.concatenate([train.x, train.x[negatives]])
        y = np.concatenate([train.y, train.y[negatives]])
        prepare_arrays(x, np.where(y, 1, -1), place, "multivariate", shuffle=0)
        data = open_dataset(place)
        for _ in range(repeat):
            for workers, phases in taken.items():
                add_passes(data, workers, phases)
    found = {f"{n} workers, s": {name: min(seconds) for name, seconds in own.items()} for n, own in taken.items()}
    one, two = (sum(fastest.values()) for fastest in found.values())
    return {"rows": len(y), "positives": int(y.sum()), "shards": data.n_shards, **found, "ratio": one / two}


def add_passes(data: Any, workers: int, phases: Phases) -> None:
    """Measure passes; the first does not count, as it reads the shards."""
    problem = Multivariate(n_features=data.n_features, classes=("-1", "1"))
    weights = np.random.default_rng(0).normal(size=(4, problem.n_weights)) / 20
    with connect(ClusterConfig(local=LocalCluster(workers=workers, threads=1))) as client:
        executor = TimedExecutor(client, data, problem)
        oracle = oracle_of(problem)(executor, problem, data.n_shards, partial(executor.publish, 0))
        for k in range(PASSES + 1):
            executor.phases = phases if k else {}
            oracle.find(weights + 0.01 * k).rows()
        executor.close()


class TimedExecutor(DaskExecutor):
    phases: Phases

    def map_shards(self, function: Any, *arguments: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        found = list(super().map_shards(function, *arguments, **options))
        self.phases.setdefault(function.__name__, []).append(time.perf_counter() - begin)
        return iter(found)


if __name__ == "__main__":
    main()
