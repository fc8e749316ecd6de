"""ε-insensitive regression: ξ_i = max(0, |target_i − ⟨w, x_i⟩| − ε).

    key 0   l = target − ε,    x =  (features, bias)       the prediction is too low
    key 1   l = −target − ε,   x = −(features, bias)       it is too high

Only one side can be violated at a time, so the two slacks of the textbook are one: their sum is their maximum.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.jit import bare_kernel
from distdual.kernels.rows import Floats, Int32s, Ints
from distdual.problems.base import BiasKinks, Constraints, Keys, Magnitude, Offenders, check_key_lengths
from distdual.problems.free_bias import tube_kinks
from distdual.problems.linear import (
    LinearProblem,
    check_free_bias,
    linear_magnitude,
    linear_rows,
    scores,
)
from distdual.schema import below


@dataclass(frozen=True, kw_only=True)
class Regression(LinearProblem):
    kind: ClassVar[str] = "regression"
    data_spec: ClassVar[DataSpec] = DataSpec(labels="targets")
    estimator: ClassVar[str | None] = "SVR"
    takes_map: ClassVar[bool] = True
    many_constraints: ClassVar[bool] = False

    n_features: int
    classes: tuple[str, ...] = ()

    bias: float | str = 0.0
    """The constant feature v of the bias weight, which is regularised like all others; 0 for none; "free" for a bias
    that is not regularised."""

    bias_unit: float = 0.0
    """The constant feature of a free bias, which decides only how fast it converges; 0 chooses it by the data set."""

    epsilon: float = 0.1
    """Errors up to this cost nothing."""

    def __post_init__(self) -> None:
        if self.classes:
            raise InputError("a regression problem needs a data set with numbers for labels")
        check_free_bias(self.bias, self.bias_unit)
        if not 0 <= self.epsilon < np.inf:
            raise InputError(f"problem.epsilon must be at least 0 and finite, got {self.epsilon}")

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        slack, side = np.empty(shard.n_examples), np.empty(shard.n_examples, dtype=np.int32)
        score = scores(w, shard, self.constant)
        find_sides(score, shard.y, self.epsilon, slack, side)
        keys = Keys(np.arange(shard.n_examples + 1), side)
        return Offenders(slack, keys, residual=shard.y - score if self.free_bias else None)

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:  # noqa: ARG002 - known from the shard alone
        margin = float(np.abs(shard.y).max(initial=0.0)) + self.epsilon
        return linear_magnitude(shard, self.constant, margin)._replace(stacked=self.epsilon)

    def bias_kinks(self, shard: Shard, found: Offenders, cost: Floats, most: int) -> BiasKinks:  # noqa: ARG002
        assert found.residual is not None
        return tube_kinks(found.residual, self.epsilon, cost, most)

    def costs(self, shard: Shard) -> Floats:
        return np.ones(shard.n_examples) if shard.cost is None else shard.cost

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        sign = np.where(keys.values == 0, 1.0, -1.0)
        rows = linear_rows(shard, chosen, sign, self.n_weights, self.constant)
        return Constraints(
            shard.first + chosen, self.costs(shard)[chosen], sign * shard.y[chosen] - self.epsilon, rows, keys
        )

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:  # noqa: ARG002
        check_key_lengths(shard, keys, 1)
        below(f"shard {shard.number}: the key of a constraint", keys.values, 2)

    def predict(self, w: Floats, shard: Shard) -> Floats:
        return scores(w, shard, self.constant)

    def decision(self, w: Floats, shard: Shard) -> Floats:
        return scores(w, shard, self.constant)

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        off = predicted - y
        return {"n": float(len(y)), "absolute_error": float(np.abs(off).sum()), "squared_error": float((off**2).sum())}


@bare_kernel
def find_sides(score: Floats, target: Floats, epsilon: float, slack: Floats, side: Int32s) -> None:
    """slack_i = max(0, |target_i − score_i| − ε), and the side that is violated; a NaN stays NaN."""
    for i in range(len(score)):
        low = target[i] - score[i]
        side[i] = 0 if low >= 0.0 else 1
        found = abs(low) - epsilon
        slack[i] = 0.0 if found <= 0.0 else found
