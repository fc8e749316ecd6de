"""A problem whose w is an expansion over support rows, with an exact kernel.

    w_c = Σ_j β_jc φ(s_j)        ⟨w_c, φ(x)⟩ = Σ_j β_jc (k(s_j, x) + bias²)

The weights of the model are β, row by row. Bias weights are regularised like all others: the constant feature adds
bias² to k.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

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
from distdual.problems.expansion_form import ExpansionForm, expansion_form_of
from distdual.problems.multiclass import Multiclass
from distdual.problems.regression import Regression

EXPANSION = "expansion"  # the key of a problem's description


@dataclass(frozen=True, eq=False)
class Expanded(Problem):
    problem: Binary | Multiclass | Regression
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
        return self.support.n_rows * self.form.columns

    @cached_property
    def form(self) -> ExpansionForm:
        return expansion_form_of(self.problem)

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
        return float(np.float32(cast(float, self.problem.bias))) ** 2

    def scores(self, beta: Floats, shard: Shard) -> Floats:
        """(n, c) ⟨w, φ(x_i)⟩ for each column of β."""
        found: Floats = self.sums.of(shard.x, beta) + self.bias2 * beta.sum(axis=0)
        return found

    def of_rows(self, w: Floats, x: Features) -> Floats:
        """Decision values of rows without labels."""
        return self.decision(w, Shard(0, 0, x, np.zeros(x.n_rows, dtype=np.int32)))

    def error(self, beta: Floats, norm: float) -> float:
        """How far rounding can have put a score off, for rows of at most this norm."""
        return self.sums.error(beta, norm) + 8.0 * UNIT * self.bias2 * float(np.abs(beta).sum())

    def decision(self, w: Floats, shard: Shard) -> Floats:
        """(n,), or (n, K) for several classes."""
        found = self.scores(w.reshape(-1, self.form.columns), shard)
        return found[:, 0] if self.form.columns == 1 else found

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        h = self.form.targets(shard) - self.scores(w.reshape(-1, self.form.columns), shard)
        slack = np.maximum(0.0, self.form.violation(h, self.form.labels(shard)))
        return Offenders(slack, Keys.none(shard.n_examples))

    def costs(self, shard: Shard) -> Floats:
        return self.problem.costs(shard)

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:  # noqa: ARG002
        raise InputError("a constraint of an exact kernel has no row of features")

    def predict(self, w: Floats, shard: Shard) -> NDArray[Any]:
        found = self.decision(w, shard)
        if isinstance(self.problem, Regression):
            return found
        return (found.argmax(axis=1) if found.ndim > 1 else found > 0).astype(np.int32)

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        return self.problem.score(y, predicted)

    def describe(self) -> dict[str, Any]:
        digest = hashlib.sha256()
        for name, array in sorted(self.support.arrays().items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        function = {name: getattr(self.function, name) for name in ("kind", "gamma", "degree", "coef0")}
        told = {**function, "support": self.support.n_rows, "sha256": digest.hexdigest()}
        return {**self.problem.describe(), EXPANSION: told}

    def __reduce__(self) -> Any:
        """Without what can be computed again."""
        return Expanded, (self.problem, self.function, self.support)
