"""A free bias against a regularised one: seconds to a certified gap of 1e-3; and against libsvm: the objective.

    python -m benchmarks.free_bias DATA [CASE]…

DATA is a folder with the data sets; cases are a9a, mnist (8 against the rest), housing and digits (even against odd),
all by default. Runs interleave; the median of three is shown. libsvm (scikit-learn's SVC and SVR with a linear kernel,
whose bias is free) gets 5,000 rows and a tolerance of 1e-6, distdual a gap of 1e-5.
"""

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn import svm
from sklearn.datasets import load_digits

import distdual
from benchmarks.datasets import CASES
from benchmarks.race import seconds

REPETITIONS = 3
ROWS = 5000  # for libsvm
EPSILON = 0.1
CONSTANT = ("housing",)  # cases with a constant column, the last


class Data(NamedTuple):
    x: Any
    y: Any
    C: float
    regression: bool = False


def data_of(name: str, folder: Path) -> Data:
    if name == "digits":
        x, y = load_digits(return_X_y=True)
        return Data((x / 16).astype(np.float32), y % 2, 1.0)
    with tempfile.TemporaryDirectory() as scratch:
        case = CASES[name](folder, Path(scratch))
    x = case.x[:, :-1] if name in CONSTANT else case.x
    return Data(x, case.y, case.C, case.problem.kind == "regression")


def estimator(data: Data, bias: bool | str, gap: float) -> Any:
    told = {"C": data.C, "gap": gap, "fit_intercept": bias}
    return distdual.SVR(**told, epsilon=EPSILON) if data.regression else distdual.SVC(**told)


def dense(x: Any) -> Any:
    return x.toarray() if hasattr(x, "toarray") else np.asarray(x)


def objective(model: Any, data: Data) -> float:
    """P(w, b) with a free bias, in double precision."""
    w, b = dense(model.coef_).ravel().astype(np.float64), float(np.ravel(model.intercept_)[0])
    score = np.asarray(data.x.astype(np.float64) @ w).ravel() + b
    y = data.y if data.regression else np.where(data.y == data.y.max(), 1.0, -1.0)
    slack = np.abs(y - score) - EPSILON if data.regression else 1.0 - y * score
    return float(0.5 * w @ w + data.C * np.maximum(0.0, slack).sum())


def bench(name: str, data: Data) -> None:
    times: dict[bool | str, list[float]] = {True: [], "free": []}
    fitted = {bias: estimator(data, bias, 1e-3).fit(data.x, data.y) for bias in times}
    for _ in range(REPETITIONS):
        for bias, taken in times.items():
            taken.append(seconds(lambda bias=bias: estimator(data, bias, 1e-3).fit(data.x, data.y)))
    regularised, free = (statistics.median(taken) for taken in times.values())
    proven, other = fitted["free"].certificate_, fitted[True].certificate_
    print(
        f"{name}: {data.x.shape[0]:,} × {data.x.shape[1]}, C = {data.C:g}: free {free:.3f} s, gap {proven['gap']:.1e}, "
        f"{proven['passes']} passes; regularised {regularised:.3f} s, {other['passes']} passes; ratio "
        f"{free / regularised:.2f}",
        flush=True,
    )


def compare(name: str, data: Data) -> None:
    some = data._replace(x=data.x[:ROWS], y=data.y[:ROWS])
    ours = estimator(some, "free", 1e-5).fit(some.x, some.y)
    peer: Any = svm.SVR(kernel="linear", C=data.C, epsilon=EPSILON, tol=1e-6) if data.regression else None
    peer = peer or svm.SVC(kernel="linear", C=data.C, tol=1e-6)
    peer.fit(some.x.astype(np.float64), some.y)
    found, known = objective(ours, some), objective(peer, some)
    lower = ours.certificate_["lower"]
    print(
        f"  {name}, {some.x.shape[0]:,} rows: P {found:.9g}, libsvm {known:.9g}, difference {found / known - 1:+.1e}; "
        f"lower {lower:.9g}, gap of libsvm {1 - lower / known:.1e}",
        flush=True,
    )


def main() -> None:
    folder, *names = sys.argv[1:]
    for name in names or ["a9a", "mnist", "housing", "digits"]:
        data = data_of(name, Path(folder))
        bench(name, data)
        compare(name, data)


if __name__ == "__main__":
    main()
