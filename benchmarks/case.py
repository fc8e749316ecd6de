"""A benchmark case: a problem with its data, as every solver gets it."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distdual.data.dataset import Dataset
from distdual.data.in_memory import MemoryDataset
from distdual.problems.base import Problem

Data = MemoryDataset | Dataset


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    title: str
    problem: Problem
    train: Callable[[], Data]
    """Opens the training data; distdual is timed from there on."""

    C: float
    gaps: tuple[float, ...] = (1e-3,)
    """What distdual has to certify, the hardest last; that one is the peers' goal, too."""

    test: Data | None = None
    x: Any = None
    """float32, dense or CSR, as peers for plain feature vectors take it; None for sequences and trees."""

    y: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of our solver."""

    apart: bool = False
    """Peers get a process of their own that ends when their time is up: a single fit may take too long."""

    @property
    def kind(self) -> str:
        return self.problem.kind

    @property
    def gap(self) -> float:
        return self.gaps[-1]


def need(folder: Path, *parts: str) -> Path:
    path = folder.joinpath(*parts)
    if not path.exists():
        sys.exit(f"{path} is missing: name the folder that holds the benchmark data")
    return path
