"""Binary classification of bags of candidates, of which one, unknown, makes a bag positive.

    positive bags   one constraint, of the candidate h_i that is imputed:   l = 1,   x_i = (features_ih, bias)
    negative bags   one constraint for each candidate c, with one slack:    l = 1,   x_ic = −(features_ic, bias)

C_i = C · cost_i · class_cost[y_i]. A bag is predicted positive if its best candidate's score is positive. The key of a
constraint is its candidate; the latent value of a negative bag is 0 and means nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.jit import bare_kernel
from distdual.kernels.row_copies import copied
from distdual.kernels.rows import Bools, Features, Floats, Int32s, Ints, ReferredRows, add, dot
from distdual.problems.base import Constraints, Keys, Magnitude, Offenders, check_key_lengths
from distdual.problems.latent.base import LatentProblem, check_range, latent_of
from distdual.problems.linear import check_bias, check_class_cost, check_two_labels, costs_by_class, linear_magnitude


@dataclass(frozen=True, kw_only=True)
class Latent(LatentProblem):
    kind: ClassVar[str] = "latent"
    data_spec: ClassVar[DataSpec] = DataSpec(examples="bags", n_classes=2)
    starts: ClassVar[tuple[str, ...]] = ("latent", "binary")
    oracle_work: ClassVar[float] = 2.0

    n_features: int
    classes: tuple[str, ...]
    """The negative and the positive label."""

    bias: float = 0.0
    """The constant feature of the bias weight; 0 for none."""

    class_cost: Mapping[str, float] = field(default_factory=dict)
    """What a unit of slack costs in a class, by label; 1 for a label that is not named."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_two_labels(self.kind, self.classes)
        check_bias(self.bias)
        check_class_cost(self.class_cost, self.classes)

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.n_features + (self.bias != 0)

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        check_labels(shard)
        slack, worst = np.empty(shard.n_examples), np.empty(shard.n_examples, dtype=np.int32)
        find_worst_candidates(
            shard.x, labels_of(shard), bags_of(shard), latent_of(shard), w, self._bias_score(w), slack, worst
        )
        return Offenders(slack, Keys(np.arange(shard.n_examples + 1), worst))

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:  # noqa: ARG002 - known from the shard alone
        return linear_magnitude(shard, self.bias, 1.0)

    def costs(self, shard: Shard) -> Floats:
        return costs_by_class(self.class_cost, self.classes, replace(shard, y=labels_of(shard)))

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        at = bags_of(shard)[chosen] + keys.values
        sign = np.where(labels_of(shard)[chosen] == 1, 1.0, -1.0)
        rows = copied(ReferredRows(shard.x, at, sign, float(np.float32(self.bias)), self.n_weights))
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], np.ones(len(chosen)), rows, keys)

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        given = keys.values
        check_key_lengths(shard, keys, 1)
        positive = labels_of(shard)[chosen] == 1
        size = np.diff(bags_of(shard))[chosen]
        wrong = np.where(positive, given != latent_of(shard)[chosen], (given < 0) | (given >= size))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InputError(f"bag {shard.first + chosen[at]} has no constraint of candidate {given[at]}")

    def impute(self, w: Floats, shard: Shard) -> Int32s:
        return self._best(w, shard, labels_of(shard) == 1)

    def rebase(self, shard: Shard, chosen: Ints, keys: Keys) -> Keys:
        positive = labels_of(shard)[chosen] == 1
        return keys._replace(values=np.where(positive, latent_of(shard)[chosen], keys.values).astype(np.int32))

    def check_latent(self, shard: Shard) -> None:
        check_range(shard, 0, np.diff(bags_of(shard)))

    def draw(self, shard: Shard, seed: int) -> Int32s:
        check_labels(shard)
        drawn = np.random.default_rng([seed, shard.first]).integers(np.diff(bags_of(shard)))
        return np.where(labels_of(shard) == 1, drawn, 0).astype(np.int32)

    def guesses(self, restart: int) -> int:
        return int(self.init == "guess" and restart == 0)  # there is but one such guess

    def summary(self, shard: Shard) -> Floats:
        """(2, n_features + 1) the sum of candidates of either label, and how many there are."""
        sums = np.zeros((2, self.n_features + 1))
        sum_members(shard.x, shard.y, sums)
        sums[:, -1] = np.bincount(shard.y, minlength=2)
        return sums

    def guess(self, total: Floats, shard: Shard) -> Int32s:
        """The candidate furthest along the way from the mean of negative ones to that of positive ones."""
        means = total[:, :-1] / np.maximum(total[:, -1:], 1.0)
        return self.impute(np.append(means[1] - means[0], np.zeros(self.n_weights - self.n_features)), shard)

    def predict(self, w: Floats, shard: Shard) -> NDArray[np.int32]:
        """The bag's label, on each of its candidates."""
        check_labels(shard)
        bags = bags_of(shard)
        best = self._best(w, shard, np.ones(shard.n_examples, dtype=np.bool_))
        scores = np.empty(shard.n_examples)
        find_bag_scores(shard.x, bags[:-1] + best, w, self._bias_score(w), scores)
        return np.repeat(scores > 0, np.diff(bags)).astype(np.int32)

    def spell(self, shard: Shard, predicted: NDArray[Any]) -> NDArray[Any] | None:
        bags: NDArray[Any] = predicted[bags_of(shard)[:-1]]
        return bags

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        return {"n": float(len(y)), "accuracy": float((y == predicted).sum())}

    def score_shard(self, shard: Shard, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        first = bags_of(shard)[:-1]
        return self.score(y[first], predicted[first])

    def _best(self, w: Floats, shard: Shard, chosen: Bools) -> Int32s:
        """The candidate with the highest score of each chosen bag, 0 of others."""
        best = np.zeros(shard.n_examples, dtype=np.int32)
        find_best_candidates(shard.x, bags_of(shard), chosen, w, best)
        if (best < 0).any():
            raise InputError(
                f"shard {shard.number}, bag {np.argmax(best < 0)}: a score is not a number; "
                "features are NaN, infinite or too large"
            )
        return best

    def _bias_score(self, w: Floats) -> float:
        return float(np.float32(self.bias)) * float(w[-1]) if self.bias else 0.0


def bags_of(shard: Shard) -> Ints:
    assert shard.tokens is not None  # checked when the data set was opened
    return shard.tokens


def labels_of(shard: Shard) -> Int32s:
    """(n,) the label of each bag, which all of its candidates have."""
    labels: Int32s = shard.y[bags_of(shard)[:-1]]
    return labels


def check_labels(shard: Shard) -> None:
    differ = shard.y != np.repeat(labels_of(shard), np.diff(bags_of(shard)))
    if differ.any():
        bag = int(np.searchsorted(bags_of(shard), np.argmax(differ), side="right")) - 1
        raise InputError(f"shard {shard.number}, bag {bag}: candidates have different labels; a bag has one")


@bare_kernel
def find_worst_candidates(
    x: Features,
    y: Int32s,
    bags: Ints,
    latent: Int32s,
    w: Floats,
    bias_score: float,
    slack: Floats,
    worst: Int32s,
) -> None:
    """slack_i = max(0, 1 − s_ih) of positives, max(0, 1 + max_c s_ic) of negatives, and which candidate; NaN stays."""
    for i in range(len(y)):
        if y[i] == 1:
            worst[i] = latent[i]
            found = 1.0 - (dot(x, bags[i] + latent[i], w) + bias_score)
        else:
            worst[i], found = 0, -np.inf
            for c in range(bags[i + 1] - bags[i]):
                score = 1.0 + dot(x, bags[i] + c, w) + bias_score
                if score > found or np.isnan(score):
                    worst[i], found = c, score
                if np.isnan(score):
                    break
        slack[i] = 0.0 if found <= 0.0 else found


@bare_kernel
def find_best_candidates(x: Features, bags: Ints, chosen: Bools, w: Floats, best: Int32s) -> None:
    """The first candidate with the highest score of each chosen bag; −1 where a score is NaN."""
    for i in range(len(best)):
        if not chosen[i]:
            continue
        best[i], found = 0, -np.inf
        for c in range(bags[i + 1] - bags[i]):
            score = dot(x, bags[i] + c, w)
            if np.isnan(score):
                best[i] = -1
                break
            if score > found:
                best[i], found = c, score


@bare_kernel
def find_bag_scores(x: Features, at: Ints, w: Floats, bias_score: float, scores: Floats) -> None:
    """scores_i = ⟨w, x_at_i⟩ + bias_score; fills `scores`."""
    for i in range(len(at)):
        scores[i] = dot(x, at[i], w) + bias_score


@bare_kernel
def sum_members(x: Features, group: Int32s, sums: Floats) -> None:
    """sums_g += x_i for all i of group g."""
    for i in range(len(group)):
        add(x, i, 1.0, sums[group[i]])
