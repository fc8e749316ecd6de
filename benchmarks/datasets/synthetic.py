"""Synthetic data: small cases of every kind, to probe whether a peer runs, and chains of any length."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from distdual.data.in_memory import in_memory, sequences_in_memory
from distdual.problems.binary import Binary
from distdual.problems.chain.problem import Chain
from distdual.problems.multiclass import Multiclass
from distdual.problems.regression import Regression

N = 300


def cloud(n: int, width: int) -> tuple[Any, Any, np.random.Generator]:
    """Points, and a direction on which their labels depend."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, width)).astype(np.float32), rng.normal(size=width), rng


def tiny_binary(folder: Path, scratch: Path) -> Case:  # noqa: ARG001 - as the others
    x, direction, rng = cloud(N, 5)
    y = np.where(x @ direction + rng.normal(size=N) > 0, 1.0, -1.0)
    problem = Binary(n_features=5, classes=("-1", "1"))
    told: dict[str, Any] = {"C": 0.1, "x": x, "y": y, "test": in_memory(x, y)}
    return Case(name="tiny", title="two clouds", problem=problem, train=lambda: in_memory(x, y), **told)


def tiny_multiclass(folder: Path, scratch: Path) -> Case:  # noqa: ARG001
    x, direction, rng = cloud(N, 5)
    y = np.digitize(x @ direction + rng.normal(size=N), [-1.0, 1.0])
    problem = Multiclass(n_features=5, classes=tuple("012"))
    told: dict[str, Any] = {"C": 0.1, "x": x, "y": y, "test": in_memory(x, y)}
    return Case(name="tiny3", title="three clouds", problem=problem, train=lambda: in_memory(x, y), **told)


def tiny_regression(folder: Path, scratch: Path) -> Case:  # noqa: ARG001
    x, direction, rng = cloud(N, 5)
    y = x @ direction + rng.normal(size=N)

    def data() -> Any:
        return in_memory(x, y, regression=True)

    problem = Regression(n_features=5, epsilon=0.1)
    return Case(name="line", title="a line", problem=problem, train=data, C=0.1, x=x, y=y, test=data())


def chain_of(n: int, *, tags: int = 8, width: int = 32, seed: int = 0) -> Any:
    """n sequences of 4 to 12 tokens; tags follow each other by chance, features are noisy marks of the tag."""
    rng = np.random.default_rng(seed)
    follow = rng.dirichlet(np.full(tags, 0.3), size=tags).cumsum(axis=1)
    lengths = rng.integers(4, 13, size=n)
    y = np.empty(lengths.sum(), dtype=np.int64)
    luck, starts = rng.random(len(y)), np.cumsum(lengths) - lengths
    first = np.zeros(len(y), dtype=bool)
    first[starts] = True
    for t in range(len(y)):
        row = int(luck[t] * tags) if first[t] else int(np.searchsorted(follow[y[t - 1]], luck[t]))
        y[t] = min(row, tags - 1)
    marks = rng.random((tags, width)) < 0.3
    x = (marks[y] ^ (rng.random((len(y), width)) < 0.3)).astype(np.float32)
    return sequences_in_memory(x, y, lengths)


def tiny_chain(folder: Path, scratch: Path) -> Case:  # noqa: ARG001
    data = chain_of(60)
    problem = Chain(n_features=32, classes=data.classes)
    return Case(name="links", title="short chains", problem=problem, train=lambda: data, test=data, C=0.1)
