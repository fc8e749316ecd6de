"""Multiclass classification where each class is a mixture of m hidden components.

    l_ij = loss(y_i, class of j),   x_ij = (e_{h_i} − e_j) ⊗ (features_i, bias)   for all components j of other classes

Components are numbered class after class: those of class k are k m … k m + m − 1. The latent value h_i is one of its
class's, and an example is predicted to be of the class whose best component has the highest score. w has one block of
weights a component. The key of a constraint is (h_i, j).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.jit import kernel
from distdual.kernels.rows import Floats, Int32s, Ints
from distdual.problems.base import Constraints, Keys, Magnitude, Offenders, Problem, check_key_lengths
from distdual.problems.latent.bags import sum_members
from distdual.problems.latent.base import LatentProblem, StartWeights, check_range, latent_of, told_apart
from distdual.problems.linear import check_class_cost, costs_by_class
from distdual.problems.multiclass import Multiclass, check_loss_matrix

CLUSTERING = 20  # rounds of k-means


@dataclass(frozen=True, kw_only=True)
class LatentMulticlass(LatentProblem):
    kind: ClassVar[str] = "latent_multiclass"
    oracle_work: ClassVar[float] = 4.0
    reads_often: ClassVar[bool] = True
    starts: ClassVar[tuple[str, ...]] = ("latent_multiclass", "multiclass")

    n_features: int
    classes: tuple[str, ...]

    components: int = 2
    """Of each class."""

    min_examples: int = 1
    """Examples that a component keeps, where its class has enough: the first that would leave it stay."""

    bias: float = 0.0
    """The constant feature of every component's bias weight; 0 for none."""

    class_cost: Mapping[str, float] = field(default_factory=dict)
    """What a unit of slack costs in a class, by label; 1 for a label that is not named."""

    loss: list[Any] = field(default_factory=list)
    """`loss[y][j]` of predicting j where y is right, classes in the order of `distdual info`; 0/1 if not given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.components < 1 or self.min_examples < 0:
            raise InputError(
                "problem.components must be at least 1 and problem.min_examples at least 0, "
                f"got {self.components} and {self.min_examples}"
            )
        check_class_cost(self.class_cost, self.classes)
        check_loss_matrix(self.loss, len(self.classes))
        _ = self.mixture

    @property
    def mixture(self) -> Multiclass:
        """The problem in which each component is a class."""
        names = tuple(f"{name}/{h}" for name in self.classes for h in range(self.components))
        return Multiclass(n_features=self.n_features, classes=names, bias=self.bias)

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.mixture.n_weights

    @property
    def losses(self) -> Floats:
        """(K, K) loss of predicting j where y is right."""
        return np.array(self.loss, dtype=np.float64) if self.loss else 1.0 - np.eye(len(self.classes))

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        latent = latent_of(shard)
        slack, worst = np.empty(shard.n_examples), np.empty((shard.n_examples, 2), dtype=np.int32)
        worst[:, 0] = latent
        for begin, scores in self.mixture.score_blocks(w, shard):
            here = slice(begin, begin + len(scores))
            find_worst(scores, latent[here], self.components, self.losses, slack[here], worst[here])
        return Offenders(slack, Keys(np.arange(0, 2 * shard.n_examples + 1, 2), worst.ravel()))

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:
        largest = float(self.losses.max())
        return self.mixture.magnitude(shard, found)._replace(margin=largest)

    def costs(self, shard: Shard) -> Floats:
        return costs_by_class(self.class_cost, self.classes, shard)

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        right, wrong = np.ascontiguousarray(keys.values[::2]), np.ascontiguousarray(keys.values[1::2])
        rows = self.mixture.outer_rows(shard, chosen, right, wrong, np.ones(len(chosen)))
        loss = self.losses[right // self.components, wrong // self.components]
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], loss, rows, keys)

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        check_key_lengths(shard, keys, 2)
        right, wrong = keys.values[::2], keys.values[1::2]
        outside = (wrong < 0) | (wrong >= len(self.classes) * self.components)
        bad = outside | (right != latent_of(shard)[chosen]) | (wrong // self.components == shard.y[chosen])
        if bad.any():
            at = int(np.argmax(bad))
            raise InputError(
                f"example {shard.first + chosen[at]} has no constraint of components {right[at]} and {wrong[at]}"
            )

    def impute(self, w: Floats, shard: Shard) -> Int32s:
        return self._best(w, np.zeros(len(self.classes) * self.components), shard)

    def rebase(self, shard: Shard, chosen: Ints, keys: Keys) -> Keys:
        values = keys.values.copy()
        values[::2] = latent_of(shard)[chosen]
        return keys._replace(values=values)

    def check_latent(self, shard: Shard) -> None:
        check_range(shard, shard.y * self.components, (shard.y + 1) * self.components)

    def draw(self, shard: Shard, seed: int) -> Int32s:
        drawn = np.random.default_rng([seed, shard.first]).integers(self.components, size=shard.n_examples)
        return (shard.y * self.components + drawn).astype(np.int32)

    def start_from(self, model: Problem, w: Floats, seed: int) -> StartWeights:
        """Those of a convex model are copied to all components of a class; clusters, or noise, make these differ."""
        if not isinstance(model, Multiclass):
            return super().start_from(model, w, seed)
        if model.classes != self.classes or model.width != self.mixture.width:
            raise InputError(
                f"solver.start: the model has {len(model.classes)} classes of {model.width} weights, this problem "
                f"{len(self.classes)} of {self.mixture.width}; the same classes, features and bias are needed"
            )
        copies = np.repeat(w.reshape(len(self.classes), -1), self.components, axis=0).ravel()
        return StartWeights(copies, imputes=False) if self.guesses(0) else StartWeights(told_apart(copies, seed))

    def guesses(self, restart: int) -> int:  # noqa: ARG002 - values drawn with another seed lead to other clusters
        return CLUSTERING if self.init == "guess" and self.components > 1 else 0

    def summary(self, shard: Shard) -> Floats:
        """(components of all classes, n_features + 1) the sum of the examples of each, and how many there are."""
        sums = np.zeros((len(self.classes) * self.components, self.n_features + 1))
        sum_members(shard.x, latent_of(shard), sums)
        sums[:, -1] = np.bincount(latent_of(shard), minlength=len(sums))
        return sums

    def guess(self, total: Floats, shard: Shard) -> Int32s:
        """k-means: the nearest mean c of its class has the largest ⟨x, c⟩ − ||c||² / 2; one of nothing is far."""
        means = total[:, :-1] / np.maximum(total[:, -1:], 1.0)
        far = np.where(total[:, -1] > 0, 0.5 * (means**2).sum(axis=1), np.inf)
        w = np.hstack([means, np.zeros((len(means), self.mixture.width - self.n_features))])
        return self._best(w.ravel(), -far, shard)

    def settle(self, old: Int32s, new: Int32s) -> Int32s:
        """Where a component would have too few, the first that leave it stay; that may leave another with too few."""
        settled, n = new.copy(), len(self.classes) * self.components
        while True:
            missing = self.min_examples - np.bincount(settled, minlength=n)
            back = [np.flatnonzero((old == h) & (settled != h))[: missing[h]] for h in np.flatnonzero(missing > 0)]
            if not sum(map(len, back)):
                return settled
            for which in back:
                settled[which] = old[which]

    def predict(self, w: Floats, shard: Shard) -> NDArray[np.int32]:
        return self.mixture.predict(w, shard) // np.int32(self.components)

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        found = {"n": float(len(y)), "accuracy": float((y == predicted).sum())}
        return {**found, "loss": float(self.losses[y, predicted].sum())} if self.loss else found

    def _best(self, w: Floats, offset: Floats, shard: Shard) -> Int32s:
        """The component of its own class with the highest score + offset, for each example."""
        best = np.empty(shard.n_examples, dtype=np.int32)
        for begin, scores in self.mixture.score_blocks(w, shard):
            y = shard.y[begin : begin + len(scores)]
            find_best(scores + offset, y, self.components, best[begin : begin + len(scores)])
        return best


@kernel
def find_worst(scores: Floats, latent: Int32s, m: int, losses: Floats, slack: Floats, worst: Int32s) -> None:
    """The component j of another class that maximises loss + s_j − s_h, h the latent value; a NaN stays NaN.

    Fills `slack` with max(0, ·) and column 1 of `worst` with j.
    """
    for i in range(len(latent)):
        own = latent[i] // m
        best, at = 0.0, 0
        for j in range(scores.shape[1]):
            if j // m == own:
                continue
            found = losses[own, j // m] + scores[i, j] - scores[i, latent[i]]
            if not found <= best:
                best, at = found, j
        slack[i], worst[i, 1] = best, at


@kernel
def find_best(scores: Floats, y: Int32s, m: int, best: Int32s) -> None:
    """The first component of class y_i with the highest score; fills `best`. What is NaN will show in slacks."""
    for i in range(len(y)):
        at = y[i] * m
        for j in range(y[i] * m + 1, y[i] * m + m):
            if scores[i, j] > scores[i, at]:
                at = j
        best[i] = at
