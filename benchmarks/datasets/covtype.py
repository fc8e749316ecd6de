"""Forest cover types: 581,012 × 54, dense, standardised; 90 % of the rows, by lot, are for training."""

import io
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case, need
from distdual.data.memory import in_memory
from distdual.problems.binary import Binary
from distdual.problems.multiclass import Multiclass

N_TRAIN = 522_911


def arrays(folder: Path) -> tuple[Any, Any]:
    """All rows, shuffled and standardised, and their classes, 1 to 7."""
    packed = np.load(io.BytesIO(lzma.decompress(need(folder, "covtype", "covtype.npz.xz").read_bytes())))
    n = len(packed["y"])
    x = np.zeros((n, 54))
    x[:, :10] = packed["quant"]
    x[np.arange(n), 10 + packed["wilderness"].astype(int)] = 1
    x[np.arange(n), 14 + packed["soil"].astype(int)] = 1
    order = np.random.default_rng(0).permutation(n)
    return ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)[order], packed["y"].astype(int)[order]


def two_classes(folder: Path) -> tuple[Any, Any, Any, Any]:
    """Class 2 against the rest: x and y for training, x and y for testing."""
    x, y = arrays(folder)
    sign = np.where(y == 2, 1.0, -1.0)
    return x[:N_TRAIN].copy(), sign[:N_TRAIN], x[N_TRAIN:].copy(), sign[N_TRAIN:]


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
    """All classes, with a constant column, at the C that DESIGN's figures are for."""
    table, y = arrays(folder)
    x = np.hstack([table, np.ones((len(y), 1), dtype=np.float32)])
    x_test, y_test = x[N_TRAIN:].copy(), y[N_TRAIN:]
    x, y = x[:N_TRAIN].copy(), y[:N_TRAIN]
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
