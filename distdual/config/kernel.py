"""The section [kernel]: features whose inner products are a kernel, or come close to it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdual.config.checks import check_choice
from distdual.config.typed_table import parse, read_table
from distdual.errors import InputError

KERNELS = ("rbf", "polynomial", "laplacian", "sigmoid")
MAPS = ("nystroem", "fourier")
LANDMARKS = ("uniform", "k-means++")
GAMMAS = ("scale", "auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConfig:
    kind: str
    """"rbf", "polynomial", "laplacian" or "sigmoid", as scikit-learn defines them."""

    basis: int | str | None = None
    """The rank of an approximation: how many landmarks to draw from the data set, or how many random features; or the
    URL of a data set whose rows are the landmarks. None: the exact kernel."""

    gamma: float | str = "scale"
    """γ: a number; "scale" is 1 / (n_features · variance of all features), "auto" is 1 / n_features."""

    degree: int = 3
    """The degree of the polynomial kernel."""

    coef0: float = 0.0
    """The constant that the polynomial and the sigmoid kernel add."""

    map: str = "nystroem"
    """"nystroem": features by landmarks; "fourier": random features, for "rbf" and "laplacian"."""

    landmarks: str = "uniform"
    """How landmarks are drawn: "uniform", or "k-means++", which prefers rows far from each other."""

    def __post_init__(self) -> None:
        check_choice("kernel.kind", self.kind, KERNELS)
        check_choice("kernel.map", self.map, MAPS)
        check_choice("kernel.landmarks", self.landmarks, LANDMARKS)
        if isinstance(self.gamma, str):
            check_choice("kernel.gamma", self.gamma, GAMMAS)
        elif not 0 < self.gamma < math.inf:
            raise InputError(f"kernel.gamma must be positive and finite, got {self.gamma}")
        if not math.isfinite(self.coef0):
            raise InputError(f"kernel.coef0 must be finite, got {self.coef0}")
        if not 1 <= self.degree <= 100:
            raise InputError(f"kernel.degree must be from 1 to 100, got {self.degree}")
        self._check_basis()

    def _check_basis(self) -> None:
        if isinstance(self.basis, int) and self.basis < 1:
            raise InputError(f"kernel.basis must be positive, got {self.basis}")
        if self.basis is None and (self.kind == "sigmoid" or (self.kind == "polynomial" and self.coef0 < 0)):
            told = f" with kernel.coef0 = {self.coef0:g}" if self.kind == "polynomial" else ""
            raise InputError(
                f'kernel.kind = "{self.kind}"{told} is not positive definite; give kernel.basis, on which it may be'
            )
        given = [f'kernel.map = "{self.map}"'] * (self.map != "nystroem")
        given += [f'kernel.landmarks = "{self.landmarks}"'] * (self.landmarks != "uniform")
        if not isinstance(self.basis, int) and given:
            raise InputError(f"{given[0]} needs kernel.basis, the number of features; got {self.basis!r}")
        if self.map == "fourier" and self.landmarks != "uniform":
            raise InputError(f'{given[1]} needs kernel.map = "nystroem": random features have no landmarks')


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFile:
    """A TOML file with the section [kernel] alone."""

    kernel: KernelConfig


def read_kernel(told: Mapping[str, Any] | str | Path) -> KernelConfig:
    """The kernel of a table of keys, or of a TOML file that holds the section [kernel]."""
    if isinstance(told, str | Path):
        return parse(KernelFile, read_table(told), str(told)).kernel
    return parse(KernelConfig, told, "map", "kernel.")
