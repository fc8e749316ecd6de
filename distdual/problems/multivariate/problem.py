"""A loss over the whole data set, for two classes of which one is rare: one constraint for each output of all examples.

    P(w) = 1/2 ||w||²  +  C n max(0, max_ŷ Δ(ŷ) − ⟨w, x_ŷ⟩),     x_ŷ = Σ_i c_i y_i (features_i, bias)

    loss = "auc"                          Δ is the share of pairs of a positive and a negative in the wrong order
           "f1"                           1 − F1
           "precision@k", "recall@k"      1 − precision, or recall, of the k examples with the highest scores
           "prbep"                        precision@k with k = n₊, where precision and recall are the same

The factor n, the number of examples, makes C mean what it means for a sum over examples: with the share of errors for
Δ, P(w) would be that of a binary problem. The oracle needs scores of all examples at once, so a pass has several
phases, see cluster/whole_oracle.py: workers send scores or counts, then they sum up their parts of rows. The key of a
constraint is the weights that it was found at: whoever finds the offender there again has its row.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from distdual.config import check_choice
from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rounding import MARGIN, gamma
from distdual.kernels.row_sums import sum_rows
from distdual.kernels.rows import Bools, Floats, Ints, as_dense, product
from distdual.problems.base import Constraints, Keys, Magnitude, Offenders, Problem
from distdual.problems.linear import check_bias, linear_magnitude, scores
from distdual.problems.multivariate.whole_losses import Chosen, worst_at, worst_f1
from distdual.problems.ranking.measures import pair_sums

Signs = NDArray[np.int8]

SEARCHED = 16  # times as many negatives as positives, of which few are wrong

LOSSES = ["auc", "f1", "precision@k", "recall@k", "prbep"]


class Offender(NamedTuple):
    """The constraint of the whole data set that w violates most, for a loss of outputs."""

    slack: float
    sign: Signs  # (n,) that of each example in the row: 1 for a positive that is wrong, −1 for a negative, else 0
    margin: float


@dataclass(frozen=True, kw_only=True)
class Multivariate(Problem):
    kind: ClassVar[str] = "multivariate"
    data_spec: ClassVar[DataSpec] = DataSpec(n_classes=2)
    estimator: ClassVar[str | None] = "MultivariateSVC"

    n_features: int
    classes: tuple[str, ...]
    """The negative and the positive label."""

    loss: str = "auc"
    """"auc", "f1", "precision@k", "recall@k" or "prbep"."""

    k: int = 0
    """How many examples "precision@k" and "recall@k" call positive."""

    bias: float = 0.0
    """The constant feature v of the bias weight; 0 for none. It has no part in "auc", which compares scores."""

    def __post_init__(self) -> None:
        if len(self.classes) != 2:
            found = ", ".join(self.classes) or "none"
            raise InputError(f"a multivariate problem needs a data set with two labels; this one has {found}")
        check_choice("problem.loss", self.loss, LOSSES)
        check_bias(self.bias)
        if self.loss == "auc" and self.bias:
            raise InputError("problem.bias does not apply to problem.loss = 'auc', which compares scores; leave it out")
        if (self.k > 0) != self.loss.endswith("@k") or self.k < 0:
            raise InputError(f"problem.k is for 'precision@k' and 'recall@k', at least 1; got k = {self.k}")

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.n_features + (self.bias != 0)

    @property
    def decides(self) -> bool:
        """Whether scores above 0 mean the positive class; the other losses only compare scores."""
        return self.loss == "f1"

    def find_offender(self, scores: Floats, positive: Bools) -> Offender:
        """The output of all examples with the largest loss, in units of 1/n: slack and margin are those of C n."""
        n, n_positive = len(scores), int(positive.sum())
        self.check_classes(n_positive, n)
        first, others = falling(scores[positive]), np.where(positive, -np.inf, scores)
        most = max(self.k, SEARCHED * n_positive)
        while True:
            second = highest(others, min(most, n - n_positive))
            chosen = self._chosen(first, second, n)
            if chosen.reach < len(second) or len(second) == n - n_positive:
                break
            most *= 2
        sign = positive.astype(np.int8)
        sign[top(np.where(positive, scores, -np.inf), first, chosen.a)] = 0
        sign[top(others, second, chosen.b)] = -1
        margin = n * chosen.margin
        slack = margin - product(sign.astype(np.float64), scores)
        return Offender(0.0 if slack <= 0.0 else slack, sign, margin)

    def check_classes(self, n_positive: int, n: int) -> None:
        if not 0 < n_positive < n or self.k > n:
            few = f"{n_positive} of {n} examples are positive"
            raise InputError(f"problem.loss = {self.loss!r} needs examples of both classes, and k of them: {few}")

    def _chosen(self, positive: Floats, negative: Floats, n: int) -> Chosen:
        if self.loss == "f1":
            return worst_f1(positive, negative, n)
        k = self.k or len(positive)
        return worst_at(positive, negative, n, k, share_of_k=self.loss != "recall@k")

    def whole_magnitude(self, shard: Magnitude, n: int) -> Magnitude:
        """That of the constraint of all n examples, of which the longest rows of all shards are known.

        Outputs are compared by running sums over all scores, which add and take away each of them, before the slack of
        the best is added up.
        """
        terms = shard.terms + 3.0 * n + 8.0
        return Magnitude(terms, 2.0 * MARGIN * n * shard.row, float(n), float(n), gamma(shard.terms), 1.0)

    def shard_magnitude(self, shard: Shard) -> Magnitude:
        return linear_magnitude(shard, self.bias, 1.0)

    def shard_scores(self, w: Floats, shard: Shard) -> Floats:
        return scores(w, shard, self.bias)

    def sum_shard(self, shard: Shard, coefficient: Floats) -> Floats:
        """(n_weights,) Σ coefficient_i (features_i, bias), the shard's part of a row."""
        whole = np.array([0, len(coefficient)])
        row = np.zeros(self.n_weights)
        row[: self.n_features] = as_dense(
            sum_rows(shard.x, coefficient, whole, self.n_features), self.n_features
        ).values
        if self.bias:
            row[-1] = float(np.float32(self.bias)) * float(coefficient.sum())
        return row

    def key_of(self, w: Floats) -> Keys:
        """The weights that a constraint was found at."""
        return Keys(np.array([0, 2 * len(w)]), w.astype(np.float64).view(np.int32).copy())

    def weights_of(self, keys: Keys) -> Floats:
        """(n, n_weights) the weights of keys, which may be forged."""
        if (np.diff(keys.indptr) != 2 * self.n_weights).any():
            raise InputError(f"the key of a constraint of the whole data set does not hold {self.n_weights} weights")
        found: Floats = keys.values.view(np.float64).reshape(-1, self.n_weights)
        if not np.isfinite(found).all():
            raise InputError("the key of a constraint of the whole data set holds weights that are not finite")
        return found

    def costs(self, shard: Shard) -> Floats:
        return np.ones(shard.n_examples)

    def predict(self, w: Floats, shard: Shard) -> NDArray[Any]:
        """The class of each example, or its score where the loss only compares scores."""
        found = self.shard_scores(w, shard)
        return (found > 0).astype(np.int32) if self.decides else found

    def decision(self, w: Floats, shard: Shard) -> Floats:
        return self.shard_scores(w, shard)

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        """F1, precision and recall; or the AUC, over the pairs within each shard alone."""
        if not self.decides:
            right, pairs = pair_sums(y.astype(np.float64), predicted)
            return {"n": float(len(y)), "auc": right, "n:auc": pairs}
        right, found, there = float((y & predicted).sum()), float(predicted.sum()), float(y.sum())
        sums = {"f1": (2.0 * right, found + there), "precision": (right, found), "recall": (right, there)}
        parts = {name: each[0] for name, each in sums.items()} | {f"n:{name}": each[1] for name, each in sums.items()}
        return {"n": float(len(y)), **parts, "accuracy": float((y == predicted).sum())}

    def offenders(self, w: Floats, shard: Shard) -> Offenders:  # noqa: ARG002
        self._refuse()

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:  # noqa: ARG002
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise InputError(f"a {self.kind} problem has constraints of all examples together, none of single ones")


def falling(values: Floats) -> Floats:
    found: Floats = -np.sort(-values)
    return found


def highest(values: Floats, most: int) -> Floats:
    """The highest values, in falling order."""
    return falling(np.partition(values, len(values) - most)[len(values) - most :])


def top(values: Floats, order: Floats, count: int) -> Ints:
    """Where the first values of `order` are, which is falling; of those that equal the last, the first places."""
    if not count:
        return np.empty(0, dtype=np.int64)
    above = np.flatnonzero(values > order[count - 1])
    equal = np.flatnonzero(values == order[count - 1])
    return np.concatenate([above, equal[: count - len(above)]])
