"""A binary problem whose w is an expansion over support rows, with an exact kernel.

    w = Σ_j β_j φ(s_j)        ⟨w, φ(x)⟩ = Σ_j β_j (k(s_j, x) + bias²)

The weights of the model are β. The bias weight is regularised like all others: its constant feature adds bias² to k.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.feature_maps.kernel_function import KernelFunction
from distdual.feature_maps.kernel_sums import KernelSums
from distdual.kernels.rounding import UNIT
from distdual.kernels.rows import Features, Floats, Ints
from distdual.problems.base import Constraints, Keys, Offenders, Problem
from distdual.problems.binary import Binary

EXPANSION = "expansion"  # the key of a problem's description


@dataclass(frozen=True, eq=False)
class Expanded(Problem):
    problem: Binary
    function: KernelFunction
    support: Features

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.problem.kind

    @property
    def data_spec(self) -> DataSpec:  # type: ignore[override]
        return self.problem.data_spec

    @property
    def estimator(self) -> str | None:  # type: ignore[override]
        return self.problem.estimator

    @property
    def uses_margin(self) -> bool:  # type: ignore[override]
        return self.problem.uses_margin

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.support.n_rows

    @cached_property
    def sums(self) -> KernelSums:
        return KernelSums(self.function, self.support, self.problem.n_features)

    @cached_property
    def rough_sums(self) -> KernelSums:
        """The same in single precision, to search with."""
        return KernelSums(self.function, self.support, self.problem.n_features, np.float32)

    @property
    def bias2(self) -> float:
        """What the constant feature adds to k."""
        return float(np.float32(self.problem.bias)) ** 2

    def scores(self, beta: Floats, shard: Shard) -> Floats:
        """(n, c) ⟨w, φ(x_i)⟩ for each column of β."""
        found: Floats = self.sums.of(shard.x, beta) + self.bias2 * beta.sum(axis=0)
        return found

    def of_rows(self, w: Floats, x: Features) -> Floats:
        """(n,) the same of rows without labels."""
        return self.scores(w[:, None], Shard(0, 0, x, np.zeros(x.n_rows, dtype=np.int32)))[:, 0]

    def error(self, beta: Floats, norm: float) -> float:
        """How far rounding can have put a score off, for rows of at most this norm."""
        return self.sums.error(beta, norm) + 8.0 * UNIT * self.bias2 * float(np.abs(beta).sum())

    def decision(self, w: Floats, shard: Shard) -> Floats:
        return self.scores(w[:, None], shard)[:, 0]

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        slack = np.maximum(0.0, margins(shard) - signs(shard) * self.decision(w, shard))
        return Offenders(slack, Keys.none(shard.n_examples))

    def costs(self, shard: Shard) -> Floats:
        return self.problem.costs(shard)

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:  # noqa: ARG002
        raise InputError("a constraint of an exact kernel has no row of features")

    def predict(self, w: Floats, shard: Shard) -> NDArray[np.int32]:
        return (self.decision(w, shard) > 0).astype(np.int32)

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        return self.problem.score(y, predicted)

    def describe(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for name, array in sorted(self.support.arrays().items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        function = {name: getattr(self.function, name) for name in ("kind", "gamma", "degree", "coef0")}
        told = {**function, "support": self.n_weights, "sha256": digest.hexdigest()}
        return {**self.problem.describe(), EXPANSION: told}

    def __reduce__(self) -> Any:
        """Without what can be computed again."""
        return Expanded, (self.problem, self.function, self.support)


def margins(shard: Shard) -> Floats:
    return np.ones(shard.n_examples) if shard.margin is None else shard.margin


def signs(shard: Shard) -> Floats:
    return np.where(shard.y == 1, 1.0, -1.0)
