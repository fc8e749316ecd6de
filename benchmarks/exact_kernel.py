"""Exact RBF kernels beside libsvm (scikit-learn's SVC) and scikit-learn-intelex: seconds, and gaps by our own check.

    python -m benchmarks.exact_kernel DATA_FOLDER [a9a|mnist8]… [--repeat 3] [--peers libsvm,sklearnex]

a9a      Adult, C = 1, γ = 0.005
mnist8   MNIST, 8 against the rest, pixels / 255, C = 1000, γ = 0.005

distdual certifies a gap of 1e-3. A peer runs at its default tolerance; the gap that it leaves is computed by the code
of `verify` at its coefficients, for the problem that it solves, with a bias that is not regularised: D is that of its
own α, and P takes its intercept. scikit-learn-intelex is used where it is installed.
"""

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2"))  # before NumPy: the same for all

import argparse
import json
import lzma
import time
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import distdual
from benchmarks.case import need
from distdual.feature_maps.kernel_function import KernelFunction
from distdual.feature_maps.kernel_sums import KernelSums
from distdual.kernels.rows import DenseRows

GAP = 1e-3


class Case(NamedTuple):
    x: Any
    y: Any  # ±1
    C: float
    gamma: float


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, metavar="DATA_FOLDER")
    arguments.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE")
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--peers", default="libsvm,sklearnex")
    told = arguments.parse_args()
    warm_up()
    for name in told.cases:
        case = CASES[name](told.folder)
        seconds: dict[str, list[float]] = {}
        for _ in range(told.repeat):
            for solver in ("distdual", *filter(None, told.peers.split(","))):
                found = SOLVERS[solver](case)
                print(json.dumps({"case": name, "solver": solver, **found}), flush=True)
                seconds.setdefault(solver, []).append(found["seconds"])
        medians = {solver: median(each) for solver, each in seconds.items()}
        ratios = {f"to {peer}": round(medians["distdual"] / medians[peer], 3) for peer in medians if peer != "distdual"}
        print(json.dumps({"case": name, "medians": medians, **ratios}), flush=True)


def a9a(folder: Path) -> Case:
    from sklearn.datasets import load_svmlight_file

    content = lzma.decompress(need(folder / "a9a" / "a9a.xz").read_bytes())
    x, y = load_svmlight_file(BytesIO(content), n_features=123)
    return Case(np.ascontiguousarray(x.toarray(), dtype=np.float32), np.where(y > 0, 1, -1), 1.0, 0.005)


def mnist8(folder: Path) -> Case:
    found = np.load(need(folder / "mnist" / "mnist.npz"))
    x = found["X_train"].reshape(-1, 784).astype(np.float32) / np.float32(255)
    return Case(x, np.where(found["y_train"] == 8, 1, -1), 1000.0, 0.005)


CASES = {"a9a": a9a, "mnist8": mnist8}


def warm_up() -> None:
    """Compile kernels."""
    x = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    distdual.SVC(kernel="rbf", gamma=1.0, gap=1e-6).fit(x, x[:, 0] > 0)


def ours(case: Case) -> dict[str, Any]:
    model = distdual.SVC(C=case.C, kernel="rbf", gamma=case.gamma, gap=GAP)
    taken = timed(model, case)
    told = model.certificate_
    keys = ("gap", "upper", "support", "passes", "cache_rows", "ascent_seconds")
    return {**taken, **{key: told[key] for key in keys}}


def timed(model: Any, case: Case) -> dict[str, float]:
    """Seconds of `fit`, and those of all processor cores together."""
    begin, used = time.perf_counter(), time.process_time()
    model.fit(case.x, case.y)
    return {
        "seconds": round(time.perf_counter() - begin, 2),
        "cpu_seconds": round(time.process_time() - used, 2),
    }


def libsvm(case: Case) -> dict[str, Any]:
    from sklearn.svm import SVC

    return peer(SVC, case)


def sklearnex(case: Case) -> dict[str, Any]:
    from sklearnex.svm import SVC

    return peer(SVC, case)


def peer(cls: Any, case: Case) -> dict[str, Any]:
    model = cls(C=case.C, kernel="rbf", gamma=case.gamma, cache_size=1000)
    taken = timed(model, case)
    lower, upper = bounds(case, model)
    found = {"gap": (upper - lower) / upper, "upper": upper, "support": len(model.support_)}
    return {**taken, **found}


def bounds(case: Case, model: Any) -> tuple[float, float]:
    """D(α) and P(w, b) of a peer's model, in float64."""
    beta = np.asarray(model.dual_coef_, dtype=np.float64).reshape(-1, 1)
    sums = KernelSums(KernelFunction(kind="rbf", gamma=case.gamma), DenseRows(case.x[model.support_]), case.x.shape[1])
    scores = sums.of(DenseRows(case.x), beta)[:, 0]
    square = float(beta[:, 0] @ scores[model.support_])
    slack = np.maximum(0.0, 1.0 - case.y * (scores + float(np.ravel(model.intercept_)[0])))
    return float(np.abs(beta).sum()) - 0.5 * square, 0.5 * square + case.C * float(slack.sum())


SOLVERS = {"distdual": ours, "libsvm": libsvm, "sklearnex": sklearnex}


if __name__ == "__main__":
    main()
