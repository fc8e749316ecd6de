"""Multiclass and regression in process, against LinearSVC (Crammer-Singer) and LinearSVR at the same primal value.

    python benchmarks/problems.py DATA_FOLDER [mnist covtype7 housing]

As in benchmarks/solver.py: arrays in memory, a certified gap of 1e-3 for us, the least effort that reaches our P for
the peer, interleaved, medians of three, the compiling run apart. A peer's effort is its number of iterations, but for
Crammer-Singer, whose solver does not heed max_iter, it is the tolerance.
"""

import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from datasets import covtype_classes, need
from solver import LADDER, REPETITIONS, seconds

from distdual.config import SolverConfig
from distdual.coordinator.train import Outcome, Trainer
from distdual.data.memory import in_memory
from distdual.problems.base import Problem
from distdual.problems.multiclass import Multiclass
from distdual.problems.regression import Regression
from distdual.workers.executor import InlineExecutor

TOLERANCES = [1.0, 0.5, 0.3, 0.2, 0.15, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02, 0.01, 1e-3]


class Case(NamedTuple):
    name: str
    x: Any
    y: Any
    C: float
    problem: Problem
    objective: Callable[[Any], float]  # of weights as the peer has them
    efforts: list[Any]  # of the peer, from little to much
    peer: Callable[[Any], Callable[[], Any]]  # effort -> a fit that returns weights
    test: Callable[[Any], str]
    gap: float = 1e-3


def mnist(folder: Path) -> Case:
    """Ten digits, pixels / 255, C = 0.01."""
    from sklearn.svm import LinearSVC

    packed = np.load(need(folder, "mnist", "mnist.npz"))
    order = np.random.default_rng(0).permutation(60_000)
    x = (packed["X_train"].reshape(60_000, -1)[order] / 255).astype(np.float32)
    y = packed["y_train"][order].astype(np.int64)
    x_test, y_test = (packed["X_test"].reshape(10_000, -1) / 255).astype(np.float32), packed["y_test"]

    def objective(w: Any) -> float:
        w = np.asarray(w).reshape(10, 784)
        scores = x @ w.T
        behind = 1 + scores - scores[np.arange(len(y)), y][:, None]
        behind[np.arange(len(y)), y] = 0
        return 0.5 * float((w**2).sum()) + 0.01 * float(behind.max(axis=1).sum())

    def peer(tolerance: float) -> Callable[[], Any]:
        model = LinearSVC(multi_class="crammer_singer", C=0.01, fit_intercept=False, tol=tolerance)
        wide = x.astype(np.float64)
        return lambda: model.fit(wide, y).coef_

    def test(w: Any) -> str:
        return f"test error {((x_test @ np.reshape(w, (10, 784)).T).argmax(axis=1) != y_test).mean():.2%}"

    problem = Multiclass(n_features=784, classes=tuple("0123456789"))
    return Case("mnist", x, y, 0.01, problem, objective, TOLERANCES, peer, test)


def covtype7(folder: Path) -> Case:
    """Seven classes, 90 % of the rows for training, standardised, a constant column, C = 0.19; to a gap of 1e-2.

    The peer is left out: it needs minutes.
    """
    table, classes = covtype_classes(folder)
    order = np.random.default_rng(0).permutation(len(classes))
    x = np.hstack([table, np.ones((len(classes), 1), dtype=np.float32)])[order]
    y, n = classes[order] - 1, len(classes) * 9 // 10

    def test(w: Any) -> str:
        return f"test accuracy {((x[n:] @ np.reshape(w, (7, 55)).T).argmax(axis=1) == y[n:]).mean():.2%}"

    problem = Multiclass(n_features=55, classes=tuple("1234567"))
    return Case("covtype7", x[:n], y[:n], 0.19, problem, lambda _: np.nan, [], lambda _: lambda: None, test, 1e-2)


def housing(folder: Path) -> Case:
    """California housing: features and prices standardised, a constant column, epsilon = 0.1, C = 0.1."""
    from sklearn.svm import LinearSVR

    packed = np.load(need(folder, "california_housing", "california_housing.npz"))
    names = {key.lower(): key for key in packed.files}
    raw = np.asarray(packed[names.get("x") or names["data"]], dtype=np.float64)
    y = np.asarray(packed[names.get("y") or names["target"]], dtype=np.float64).reshape(-1)
    scaled, y = (raw - raw.mean(axis=0)) / raw.std(axis=0), (y - y.mean()) / y.std()
    order = np.random.default_rng(0).permutation(len(y))
    x, y = np.hstack([scaled, np.ones((len(y), 1))])[order].astype(np.float32), y[order]

    def objective(w: Any) -> float:
        w = np.asarray(w).reshape(-1)
        return 0.5 * float(w @ w) + 0.1 * float(np.maximum(0, abs(y - x @ w) - 0.1).sum())

    def peer(n: int) -> Callable[[], Any]:
        model = LinearSVR(epsilon=0.1, C=0.1, fit_intercept=False, tol=1e-12, max_iter=n)
        wide = x.astype(np.float64)
        return lambda: model.fit(wide, y).coef_

    def test(w: Any) -> str:
        return f"mean absolute error {abs(y - x @ np.reshape(w, -1)).mean():.4f}"

    return Case("housing", x, y, 0.1, Regression(n_features=x.shape[1], epsilon=0.1), objective, LADDER, peer, test)


def ours(case: Case) -> Outcome:
    dataset = in_memory(case.x, case.y, regression=case.problem.kind == "regression")
    executor = InlineExecutor(dataset, case.problem)
    try:
        return Trainer(case.problem, dataset, executor, SolverConfig(C=case.C, gap=case.gap), lambda _: None).run()
    finally:
        executor.close()


def bench(case: Case) -> None:
    cold = seconds(lambda: ours(case))
    outcome = ours(case)
    proven = outcome.certificate
    print(f"{case.name}: {len(case.y):,} × {case.x.shape[1]}, C = {case.C:g}; first run with compilation {cold:.2f} s")
    print(f"  {proven.lower:.6g} ≤ P(w*) ≤ {proven.upper:.6g}, gap {proven.gap:.1e}, {outcome.totals.passes} passes")
    print(f"  {case.test(outcome.w)}")
    if not case.efforts:
        print(f"  distdual {outcome.seconds:.1f} s")
        return
    tried = ((effort, case.objective(case.peer(effort)())) for effort in case.efforts)
    effort, reached = next((pair for pair in tried if pair[1] <= proven.upper), (case.efforts[-1], float("nan")))
    runs = {"distdual": lambda: ours(case), "peer": case.peer(effort)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(REPETITIONS):
        for name, run in runs.items():
            times[name].append(seconds(run))
    own, other = (statistics.median(taken) for taken in times.values())
    print(f"  distdual {own:.3f} s, peer {other:.3f} s at {effort:g}, P = {reached:.6g}: ratio {own / other:.2f}")


ALL = {"mnist": mnist, "covtype7": covtype7, "housing": housing}


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python benchmarks/problems.py DATA_FOLDER [mnist covtype7 housing]")
    warnings.filterwarnings("ignore", message="Liblinear failed to converge")
    warnings.filterwarnings("ignore", category=FutureWarning)
    for name in sys.argv[2:] or ALL:
        bench(ALL[name](Path(sys.argv[1])))


if __name__ == "__main__":
    main()
