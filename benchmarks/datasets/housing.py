"""California housing, ε-regression: 20,640 × 9, dense; features and prices standardised, a constant column."""

from pathlib import Path

import numpy as np

from benchmarks.case import Case, need
from distdual.data.in_memory import in_memory
from distdual.problems.regression import Regression

EPSILON = 0.1


def housing(folder: Path, scratch: Path) -> Case:  # noqa: ARG001 - as the others
    packed = np.load(need(folder, "california_housing", "california_housing.npz"))
    raw, y = packed["X"].astype(np.float64), packed["y"].astype(np.float64)
    scaled, y = (raw - raw.mean(axis=0)) / raw.std(axis=0), (y - y.mean()) / y.std()
    order = np.random.default_rng(0).permutation(len(y))
    x, y = np.hstack([scaled, np.ones((len(y), 1))])[order].astype(np.float32), y[order]
    n = len(y) * 9 // 10
    train, target = x[:n].copy(), y[:n].copy()
    return Case(
        name="housing",
        title="California housing, ε-regression",
        problem=Regression(n_features=x.shape[1], epsilon=EPSILON),
        train=lambda: in_memory(train, target, regression=True),
        test=in_memory(x[n:].copy(), y[n:].copy(), regression=True),
        C=0.1,
        x=train,
        y=target,
    )
