"""What problems share whose examples are single feature vectors."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.jit import bare_kernel
from distdual.kernels.rounding import MARGIN, longest_row
from distdual.kernels.row_copies import copied
from distdual.kernels.rows import Features, Floats, Ints, ReferredRows, dot
from distdual.problems.base import Magnitude, Problem

FREE = "free"  # the value of `bias` for one that is not regularised


class LinearProblem(Problem):
    """A problem with one weight a feature, and one more for the bias, which may be free."""

    n_features: int
    bias: float | str
    bias_unit: float

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.n_features + (self.constant != 0)

    @property
    def constant(self) -> float:
        return constant_feature(self)

    @property
    def free_bias(self) -> float:  # type: ignore[override]
        return self.constant if self.bias == FREE else 0.0

    def fitted_to(self, norm: float) -> Self:
        if self.bias != FREE or self.bias_unit:
            return self
        made: Any = self
        found: Self = replace(made, bias_unit=unit_for(norm, self.n_features))
        return found


def check_bias(bias: float) -> None:
    if not np.isfinite(np.float32(bias)):
        raise InputError(f"problem.bias must be finite, got {bias}")


def check_two_labels(kind: str, classes: tuple[str, ...]) -> None:
    if len(classes) != 2:
        found = ", ".join(classes) or "none"
        raise InputError(f"a {kind} problem needs a data set with two labels; this one has {found}")


def check_free_bias(bias: float | str, unit: float) -> None:
    """The same where the bias can be free."""
    if not isinstance(bias, str):
        check_bias(bias)
    elif bias != FREE:
        raise InputError(f'problem.bias must be a number or "{FREE}", got {bias!r}')
    if not 0 <= np.float32(unit) < np.inf:
        raise InputError(f"problem.bias_unit must be positive and finite, or 0, got {unit}")
    if unit and not isinstance(bias, str):
        raise InputError(
            f'problem.bias_unit is for problem.bias = "{FREE}"; the constant feature is problem.bias itself'
        )


def constant_feature(problem: Any) -> float:
    """The constant feature of the bias weight of a linear problem, as rows store it; 0 for none."""
    if problem.bias == FREE:
        return float(np.float32(problem.bias_unit or 1.0))
    return float(np.float32(problem.bias))


def unit_for(norm: float, n_features: int) -> float:
    """The constant feature of a free bias, for rows of at most this norm: a power of two, well below most rows' norms.

    A larger one slows the ascent, as rows become alike; a smaller one the centring of the bias, where data are few.
    """
    size = min(norm, float(n_features))
    return float(np.exp2(np.clip(np.floor(0.5 * np.log2(size)), -100, 100))) if 0 < size < np.inf else 1.0


def check_class_cost(class_cost: Mapping[str, float], classes: tuple[str, ...]) -> None:
    for label, cost in class_cost.items():
        if label not in classes:
            raise InputError(f"problem.class_cost names {label!r}; the labels are {', '.join(classes)}")
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost < np.inf:
            raise InputError(f"problem.class_cost of {label!r} must be a number of at least 0, got {cost!r}")


def costs_by_class(class_cost: Mapping[str, float], classes: tuple[str, ...], shard: Shard) -> Floats:
    """cost_i · class_cost[y_i]."""
    by_class = np.array([class_cost.get(label, 1.0) for label in classes])
    cost: Floats = by_class[shard.y]
    return cost if shard.cost is None else cost * shard.cost


def linear_magnitude(shard: Shard, bias: float, margin: float) -> Magnitude:
    """For constraints whose row is ±(features, bias)."""
    norm = MARGIN * float(np.hypot(shard.norm_bound(), np.float32(bias)))
    return Magnitude(longest_row(shard.x) + 4, norm, margin)


def scores(w: Floats, shard: Shard, bias: float) -> Floats:
    """⟨w, (features_i, bias)⟩ of each example; the bias weight is the last."""
    found = np.empty(shard.n_examples)
    find_scores(shard.x, w, float(np.float32(bias)) * w[-1] if bias else 0.0, found)
    return found


@bare_kernel
def find_scores(x: Features, w: Floats, bias_score: float, scores: Floats) -> None:
    """scores_i = ⟨w, x_i⟩ + bias_score; fills `scores`."""
    for i in range(len(scores)):
        scores[i] = dot(x, i, w) + bias_score


def linear_rows(shard: Shard, chosen: Ints, scale: Floats, width: int, bias: float) -> Features | ReferredRows:
    """scale_k (features, bias) of the chosen examples, where scale is 1 or −1; copies, unless the shard is kept."""
    rows = ReferredRows(shard.x, chosen, scale, float(np.float32(bias)), width)
    return rows if shard.kept else copied(rows)
