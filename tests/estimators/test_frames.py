"""A data frame through scikit-learn's pipeline, and through `prepare`: the same problem."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import distdual
from distdual.data.prepare.api import prepare_frame


def test_a_pipeline_and_prepare_reach_the_same_objective(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {"size": rng.uniform(20, 120, n), "floor": rng.integers(0, 9, n), "part": rng.choice(["north", "south"], n)}
    )
    frame["dear"] = frame["size"] / 40 + (frame["part"] == "north") + rng.normal(size=n) / 2 > 2.0
    x, y = frame.drop(columns="dear"), frame["dear"]
    encode = make_column_transformer((OneHotEncoder(), ["part"]), remainder="passthrough", sparse_threshold=0)
    estimator = distdual.SVC(C=0.5, gap=1e-4)
    pipeline = make_pipeline(encode, StandardScaler(with_mean=False), estimator).fit(x, y)
    prepare_frame(frame, tmp_path / "data", "binary", label="dear", scale="unit-variance")
    fitted = distdual.SVC(C=0.5, gap=1e-4).fit(tmp_path / "data")

    theirs, ours = pipeline[-1].certificate_, fitted.certificate_
    assert max(theirs["lower"], ours["lower"]) <= min(theirs["upper"], ours["upper"]) * (1 + 1e-6)
    assert ours["upper"] == pytest.approx(theirs["upper"], rel=1e-4)
    # the columns of each encoder stand in an order of its own
    assert sorted(np.abs(fitted.coef_[0])) == pytest.approx(sorted(np.abs(pipeline[-1].coef_[0])), abs=0.02)
    assert (fitted.predict(x).astype(str) == pipeline.predict(x).astype(str)).mean() > 0.99
