"""Handwritten digits: 60,000 × 784, dense, pixels / 255; the usual 10,000 are for testing."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case, need
from distdual.data.in_memory import in_memory
from distdual.problems.binary import Binary
from distdual.problems.multiclass import Multiclass


def arrays(folder: Path) -> tuple[Any, Any, Any, Any]:
    """x and digits for training, shuffled, and those for testing."""
    packed = np.load(need(folder, "mnist", "mnist.npz"))
    x, x_test = ((packed[name].reshape(-1, 784) / 255).astype(np.float32) for name in ("X_train", "X_test"))
    order = np.random.default_rng(0).permutation(len(x))
    return x[order], packed["y_train"][order].astype(int), x_test, packed["y_test"].astype(int)


def mnist(folder: Path, scratch: Path) -> Case:  # noqa: ARG001 - as the others
    x, digits, x_test, digits_test = arrays(folder)
    y = np.where(digits == 8, 1.0, -1.0)
    return Case(
        name="mnist",
        title="MNIST, 8 against the rest",
        problem=Binary(n_features=784, classes=("-1", "1")),
        train=lambda: in_memory(x, y),
        test=in_memory(x_test, np.where(digits_test == 8, 1.0, -1.0)),
        C=0.01,
        x=x,
        y=y,
    )


def ten_digits(folder: Path, C: float) -> Case:
    x, y, x_test, y_test = arrays(folder)
    return Case(
        name=f"mnist10-{C:g}",
        title=f"MNIST, ten digits, C = {C:g}",
        problem=Multiclass(n_features=784, classes=tuple("0123456789")),
        train=lambda: in_memory(x, y),
        test=in_memory(x_test, y_test),
        C=C,
        x=x,
        y=y,
    )


def mnist10(folder: Path, scratch: Path) -> Case:  # noqa: ARG001
    return ten_digits(folder, 0.01)


def mnist10_at_1(folder: Path, scratch: Path) -> Case:  # noqa: ARG001
    return ten_digits(folder, 1.0)
