"""Binary classification: one constraint an example.

    l_i = margin_i,   x_i = y_i · (features_i, bias),   y_i = ±1,   C_i = C · cost_i · class_cost[y_i]

Margins and costs are 1 unless the data set has such columns. With bias = 0 there is no bias weight.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard
from distdual.kernels.jit import bare_kernel
from distdual.kernels.rows import Features, Floats, Int32s, Ints, dot
from distdual.problems.base import BiasKinks, Constraints, Keys, Magnitude, Offenders, check_key_lengths
from distdual.problems.free_bias import hinge_kinks
from distdual.problems.linear import (
    LinearProblem,
    check_class_cost,
    check_free_bias,
    check_two_labels,
    costs_by_class,
    linear_magnitude,
    linear_rows,
    scores,
)


@dataclass(frozen=True, kw_only=True)
class Binary(LinearProblem):
    kind: ClassVar[str] = "binary"
    data_spec: ClassVar[DataSpec] = DataSpec(n_classes=2)
    estimator: ClassVar[str | None] = "SVC"
    has_boundary: ClassVar[bool] = True
    uses_margin: ClassVar[bool] = True
    many_constraints: ClassVar[bool] = False
    takes_map: ClassVar[bool] = True

    n_features: int
    classes: tuple[str, ...]
    """The negative and the positive label."""

    bias: float | str = 0.0
    """The constant feature v of the bias weight, which is regularised like all others; 0 for none; "free" for a bias
    that is not regularised."""

    bias_unit: float = 0.0
    """The constant feature of a free bias, which decides only how fast it converges; 0 chooses it by the data set."""

    class_cost: Mapping[str, float] = field(default_factory=dict)
    """What a unit of slack costs in a class, by label; 1 for a label that is not named."""

    def __post_init__(self) -> None:
        check_two_labels(self.kind, self.classes)
        check_free_bias(self.bias, self.bias_unit)
        check_class_cost(self.class_cost, self.classes)

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        if self.free_bias:
            residual = self._margins(shard) - np.where(shard.y == 1, 1.0, -1.0) * scores(w, shard, self.constant)
            slack = np.where(residual <= 0.0, 0.0, residual)  # a NaN stays
            return Offenders(slack, Keys.none(shard.n_examples), residual=residual)
        slack = np.empty(shard.n_examples)
        bias_score = self.constant * w[-1] if self.constant else 0.0
        margin = np.ones(1) if shard.margin is None else shard.margin
        find_slacks(shard.x, shard.y, margin, w, bias_score, slack)
        return Offenders(slack, Keys.none(shard.n_examples))

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:  # noqa: ARG002 - known from the shard alone
        margin = 1.0 if shard.margin is None else float(np.abs(shard.margin).max(initial=0.0))
        return linear_magnitude(shard, self.constant, margin)

    def bias_kinks(self, shard: Shard, found: Offenders, cost: Floats, most: int) -> BiasKinks:
        assert found.residual is not None
        return hinge_kinks(found.residual, shard.y == 1, cost, most)

    def costs(self, shard: Shard) -> Floats:
        return costs_by_class(self.class_cost, self.classes, shard)

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        return Constraints(
            shard.first + chosen,
            self.costs(shard)[chosen],
            self._margins(shard)[chosen],
            linear_rows(shard, chosen, np.where(shard.y[chosen] == 1, 1.0, -1.0), self.n_weights, self.constant),
            keys,
        )

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:  # noqa: ARG002
        check_key_lengths(shard, keys, 0)

    def predict(self, w: Floats, shard: Shard) -> NDArray[np.int32]:
        return (scores(w, shard, self.constant) > 0).astype(np.int32)

    def decision(self, w: Floats, shard: Shard) -> Floats:
        """Above 0 for the second class."""
        return scores(w, shard, self.constant)

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        return {"n": float(len(y)), "accuracy": float((y == predicted).sum())}

    def _margins(self, shard: Shard) -> Floats:
        return np.ones(shard.n_examples) if shard.margin is None else shard.margin


@bare_kernel
def find_slacks(x: Features, y: Int32s, margin: Floats, w: Floats, bias_score: float, slack: Floats) -> None:
    """slack_i = max(0, l_i − y_i (⟨w, x_i⟩ + bias_score)); fills `slack`, and a NaN score stays NaN.

    `margin` has an entry for each row, or one for all: touching new memory for a column of ones costs narrow rows dear.
    """
    shared = len(margin) == 1
    for i in range(len(y)):
        score = dot(x, i, w) + bias_score
        found = margin[0 if shared else i] - (score if y[i] == 1 else -score)
        slack[i] = 0.0 if found <= 0.0 else found
