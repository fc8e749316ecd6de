"""How fast is training in process, against scikit-learn's LinearSVC and snapml, at the same primal suboptimality?

    python benchmarks/solver.py DATA_FOLDER [covtype mnist a9a imdb]

All start from arrays in memory. We train to a certified gap of 1e-3. A peer gets the fewest iterations with which its P
is no higher than ours; it is not asked for a certificate. Runs are interleaved, the median of three is shown, and the
first run, which compiles kernels, is told apart. Two cores; LinearSVC uses one of them, snapml two.
"""

import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from datasets import ALL, Data

from distdual.config import SolverConfig
from distdual.coordinator.train import Outcome, Trainer
from distdual.data.memory import in_memory
from distdual.problems.binary import Binary
from distdual.workers.executor import InlineExecutor

REPETITIONS = 3
LADDER = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 65, 80, 100, 130, 170, 250, 400, 1000]


def ours(data: Data, **options: Any) -> Outcome:
    dataset = in_memory(data.x, data.y)
    problem = Binary(n_features=dataset.n_features, classes=dataset.classes)
    executor = InlineExecutor(dataset, problem)
    try:
        config = SolverConfig(**{"C": data.C, "gap": 1e-3, **options})
        return Trainer(problem, dataset, executor, config, lambda _: None).run()
    finally:
        executor.close()


def objective(data: Data, w: Any) -> float:
    w = np.asarray(w, dtype=np.float64).reshape(-1)
    return 0.5 * w @ w + data.C * np.maximum(0, 1 - data.y * (data.x @ w)).sum()


def linear_svc(data: Data, max_iter: int) -> Callable[[], Any]:
    from sklearn.svm import LinearSVC

    x = data.x.astype(np.float64)
    if sp.issparse(x):
        x.indices, x.indptr = x.indices.astype(np.int32), x.indptr.astype(np.int32)
    model = LinearSVC(loss="hinge", C=data.C, fit_intercept=False, tol=1e-12, max_iter=max_iter, random_state=0)
    return lambda: model.fit(x, data.y).coef_


def snapml(data: Data, max_iter: int) -> Callable[[], Any]:
    from snapml import SupportVectorMachine

    model = SupportVectorMachine(
        regularizer=1 / data.C, fit_intercept=False, tol=1e-12, max_iter=max_iter, n_jobs=2, random_state=0
    )
    return lambda: model.fit(data.x, data.y).coef_


def enough(data: Data, make: Any, goal: float) -> int | None:
    """The fewest iterations of the ladder that reach the goal."""
    return next((n for n in LADDER if objective(data, make(data, n)()) <= goal), None)


def seconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def memory(what: str) -> int:
    """Bytes of this process, now (VmRSS) or at its peak (VmHWM)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1]) * 1024


def peers(data: Data, goal: float) -> dict[str, Callable[[], Any]]:
    found = {}
    for name, make in (("LinearSVC", linear_svc), ("snapml", snapml)):
        try:
            n = enough(data, make, goal)
        except ImportError:
            print(f"  {name}: not installed")
            continue
        if n is None:
            print(f"  {name}: did not reach P = {goal:.6g} in {LADDER[-1]} iterations")
            continue
        found[f"{name} ({n} iterations)"] = make(data, n)
    return found


def bench(data: Data) -> None:
    size = data.x.data.nbytes + data.x.indices.nbytes if sp.issparse(data.x) else data.x.nbytes
    cold = seconds(lambda: ours(data))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = memory("VmRSS")
    outcome = ours(data)
    grown = memory("VmHWM") - before
    cache = outcome.solver.cache.nbytes
    proven = outcome.certificate
    print(
        f"{data.name}: {len(data.y):,} × {data.x.shape[1]:,}, C = {data.C:g}; first run with compilation {cold:.2f} s"
    )
    print(f"  certified gap {proven.gap:.2e}, P = {proven.upper:.6g}, {outcome.totals.passes} passes")
    print(f"  memory beyond the data's {size >> 20} MiB: {grown >> 20} MiB, of which cache {cache >> 20} MiB")
    for n in (1, 2):
        few = ours(data, schedule="gap", max_passes=n, gap=1e-9)
        print(f"  schedule gap, {n} pass(es): true gap {few.certificate.gap:.2%}")
    runs = {"distdual": lambda: ours(data), **peers(data, proven.upper)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(REPETITIONS):
        for name, run in runs.items():
            times[name].append(seconds(run))
    own = statistics.median(times["distdual"])
    for name, taken in times.items():
        middle = statistics.median(taken)
        print(
            f"  {name}: {middle:.3f} s ({min(taken):.3f} to {max(taken):.3f}); distdual takes {own / middle:.2f} of it"
        )


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python benchmarks/solver.py DATA_FOLDER [covtype mnist a9a imdb]")
    warnings.filterwarnings("ignore", message="Liblinear failed to converge")
    for name in sys.argv[2:] or ALL:
        bench(ALL[name](Path(sys.argv[1])))


if __name__ == "__main__":
    main()
