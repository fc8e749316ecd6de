"""Forest cover types: 581,012 × 54, dense, standardised; a random 90 % of the rows are for training."""

import io
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case, need
from distdual.data.in_memory import in_memory
from distdual.problems.binary import Binary
from distdual.problems.multiclass import Multiclass


def arrays(folder: Path) -> tuple[Any, Any]:
    """All rows, shuffled and standardised, and their classes, 1 to 7."""
    packed = np.load(io.BytesIO(lzma.decompress(need(folder, "covtype", "covtype.npz.xz").read_bytes())))
    n = len(packed["y"])
    x = np.zeros((n, 54))
    x[:, :10] = packed["quant"]
    x[np.arange(n), 10 + packed["wilderness"].astype(int)] = 1
    x[np.arange(n), 14 + packed["soil"].astype(int)] = 1
    order = np.random.default_rng(0).permutation(n)
    deviation = x.std(axis=0)
    deviation[deviation == 0] = 1.0  # a part of the data may lack a rare soil
    return ((x - x.mean(axis=0)) / deviation).astype(np.float32)[order], packed["y"].astype(int)[order]


def parts(folder: Path) -> tuple[Any, Any, Any, Any]:
    """x and classes for training, x and classes for testing."""
    x, y = arrays(folder)
    n = len(y) * 9 // 10
    return x[:n].copy(), y[:n], x[n:].copy(), y[n:]


def two_classes(folder: Path) -> tuple[Any, Any, Any, Any]:
    """Class 2 against the rest: x and y for training, x and y for testing."""
    x, y, x_test, y_test = parts(folder)
    return x, np.where(y == 2, 1.0, -1.0), x_test, np.where(y_test == 2, 1.0, -1.0)


def covtype(folder: Path, scratch: Path) -> Case:  # noqa: ARG001 - as the others
    x, y, x_test, y_test = two_classes(folder)
    return Case(
        name="covtype",
        title="covtype, class 2 against the rest",
        problem=Binary(n_features=54, classes=("-1", "1")),
        train=lambda: in_memory(x, y),
        test=in_memory(x_test, y_test),
        C=0.01,
        x=x,
        y=y,
    )


def covtype7(folder: Path, scratch: Path) -> Case:  # noqa: ARG001
    """All seven classes, with a constant column, at C = 0.19."""
    x, y, x_test, y_test = parts(folder)
    x, x_test = (np.hstack([part, np.ones((len(part), 1), dtype=np.float32)]) for part in (x, x_test))
    return Case(
        name="covtype7",
        title="covtype, seven classes",
        problem=Multiclass(n_features=55, classes=tuple("1234567")),
        train=lambda: in_memory(x, y),
        test=in_memory(x_test, y_test),
        C=0.19,
        gaps=(1e-2,),
        x=x,
        y=y,
        apart=True,
    )
