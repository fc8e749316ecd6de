"""Times of small fits: SVC and LinearSVC on scikit-learn's digits, with the defaults of each.

    python -m benchmarks.estimators

Even against odd and ten classes, pixels between 0 and 1 and as they come, from 0 to 16. LinearSVC minimises the squared
hinge loss by default; "hinge" is our loss for two classes, for ten both compare one class with the rest, and
"crammer_singer" has the same problem as SVC. They stop at a tolerance or after 1,000 iterations and prove nothing; for
those that solve the same problem, the distance of P from the optimum is shown. Runs interleave, the median of three is
shown, and the first run of SVC, which compiles, is listed separately.
"""

import statistics
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.svm import LinearSVC

import distdual
from benchmarks.race import seconds

REPETITIONS = 3


def objective(model: Any, x: Any, y: Any) -> float:
    """P(w) of SVC's problem with C = 1, the intercept regularised."""
    scores = model.decision_function(x)
    if scores.ndim == 1:
        slack = np.maximum(0, 1 - np.where(y == model.classes_[1], 1, -1) * scores)
    else:
        right = np.searchsorted(model.classes_, y)
        behind = 1 + scores - scores[np.arange(len(y)), right][:, None]
        behind[np.arange(len(y)), right] = 0
        slack = behind.max(axis=1)
    return float(0.5 * ((model.coef_**2).sum() + (model.intercept_**2).sum()) + slack.sum())


def bench(name: str, x: Any, y: Any) -> None:
    first = seconds(lambda: distdual.SVC().fit(x, y))
    own = distdual.SVC().fit(x, y)
    runs: dict[str, Callable[[], Any]] = {
        "SVC": lambda: distdual.SVC().fit(x, y),
        "LinearSVC": lambda: LinearSVC().fit(x, y),
        "LinearSVC, hinge": lambda: LinearSVC(loss="hinge").fit(x, y),
    }
    same = "LinearSVC, hinge"
    if len(np.unique(y)) > 2:
        same = "LinearSVC, crammer_singer"
        runs[same] = lambda: LinearSVC(multi_class="crammer_singer").fit(x, y)
    times: dict[str, list[float]] = {run: [] for run in runs}
    for _ in range(REPETITIONS):
        for run, fit in runs.items():
            times[run].append(seconds(fit))
    proven = own.certificate_
    off = objective(runs[same](), x, y) / proven["lower"] - 1
    print(f"{name}: {x.shape[0]:,} × {x.shape[1]}, first run with compilation {first:.2f} s")
    print(f"  SVC: gap {proven['gap']:.1e}, {own.n_iter_} passes; {same}: P at most {off:.1e} above the optimum")
    ours = statistics.median(times["SVC"])
    for run, taken in times.items():
        middle = statistics.median(taken)
        print(f"  {run}: {1e3 * middle:.1f} ms; SVC takes {ours / middle:.2f} of it")


def main() -> None:
    warnings.filterwarnings("ignore", message="Liblinear failed to converge")
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", message="SVC: the proven gap")
    x, y = load_digits(return_X_y=True)
    for pixels, scale in (("pixels / 16", 16), ("raw pixels", 1)):
        bench(f"even against odd, {pixels}", x / scale, y % 2)
        bench(f"ten classes, {pixels}", x / scale, y)


if __name__ == "__main__":
    main()
