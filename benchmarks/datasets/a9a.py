"""Census incomes of the LIBSVM collection: 32,561 × 123, sparse; a9a.t is for testing."""

import lzma
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file

from benchmarks.case import Case, need
from distdual.data.in_memory import in_memory
from distdual.problems.binary import Binary


def read(folder: Path, name: str) -> tuple[Any, Any]:
    with lzma.open(need(folder, "a9a", name)) as file:
        x, y = load_svmlight_file(file, n_features=123, dtype=np.float32)
    x.indices, x.indptr = x.indices.astype(np.int32), x.indptr.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(y))
    return x[order], y[order]


def a9a(folder: Path, scratch: Path) -> Case:  # noqa: ARG001 - as the others
    x, y = read(folder, "a9a.xz")
    return Case(
        name="a9a",
        title="a9a",
        problem=Binary(n_features=123, classes=("-1", "1")),
        train=lambda: in_memory(x, y),
        test=in_memory(*read(folder, "a9a.t.xz")),
        C=1.0,
        x=x,
        y=y,
    )
