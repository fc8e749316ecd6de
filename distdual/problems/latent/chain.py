"""Sequence tagging where each tag has m hidden sub-states.

    l_iz = loss(y_i, tags of z),   x_iz = φ(x_i, h_i) − φ(x_i, z)      for all paths z of sub-states, of y_i's as well

φ and the loss are those of a chain whose states are the sub-states of all tags, numbered as in `viterbi`, so that each
sub-state has emission and transition weights of its own, while a token counts as right if its tag is. The latent value
h_i of a sequence is a path of sub-states of its tags y_i: a number for each token. The key of a constraint is h_i and
then z. The tags of the best path are predicted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rows import Floats, Int32s, Ints
from distdual.problems.base import Constraints, Keys, Magnitude, Offenders, Problem
from distdual.problems.chain.path_rows import Paths, losses_of, path_rows
from distdual.problems.chain.problem import Chain, bounds_of
from distdual.problems.chain.viterbi import find_margin_rescaled, find_own
from distdual.problems.latent.base import LatentProblem, StartWeights, check_range, latent_of, told_apart
from distdual.problems.latent.multiclass import LatentMulticlass


@dataclass(frozen=True, kw_only=True)
class LatentChain(LatentProblem):
    kind: ClassVar[str] = "latent_chain"
    data_spec: ClassVar[DataSpec] = DataSpec(examples="sequences")
    reads_often: ClassVar[bool] = True
    per_token: ClassVar[bool] = True
    starts: ClassVar[tuple[str, ...]] = ("latent_chain", "chain")

    n_features: int
    classes: tuple[str, ...]
    """The tags."""

    substates: int = 2
    """Of each tag."""

    transitions: bool = True
    """A weight for each pair of neighbouring sub-states."""

    boundaries: bool = True
    """A weight for each sub-state at the start, and at the end, of a sequence."""

    tag_cost: Mapping[str, float] = field(default_factory=dict)
    """What a token adds to the loss if its right tag is missed, by tag; 1 for a tag that is not named."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.substates < 1:
            raise InputError(f"problem.substates must be at least 1, got {self.substates}")
        _ = self.tags

    @property
    def tags(self) -> Chain:
        """The chain of tags without sub-states."""
        return self._chain(self.classes, self.tag_cost)

    @property
    def states(self) -> Chain:
        """The chain in which each sub-state is a tag."""
        return self._chain(tuple(f"{tag}/{h}" for tag in self.classes for h in range(self.substates)), {})

    def _chain(self, classes: tuple[str, ...], tag_cost: Mapping[str, float]) -> Chain:
        return Chain(
            n_features=self.n_features,
            classes=classes,
            transitions=self.transitions,
            boundaries=self.boundaries,
            tag_cost=tag_cost,
        )

    @property
    def mixture(self) -> LatentMulticlass:
        """Tokens as single examples, sub-states as components: what the first latent values come from."""
        return LatentMulticlass(
            n_features=self.n_features, classes=self.classes, components=self.substates, init=self.init
        )

    @property
    def oracle_work(self) -> float:  # type: ignore[override]
        return self.states.oracle_work

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.states.n_weights

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        tokens, h = bounds_of(shard), latent_of(shard)
        slack, worst = np.empty(shard.n_examples), np.empty(len(shard.y), dtype=np.int32)
        weights = self.states.split(w)
        find_margin_rescaled(shard.x, h, tokens, weights, self.tags.tag_costs, self.substates, slack, worst)
        return Offenders(slack, keys_of(tokens, h, worst))

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:
        return self.tags.magnitude(shard, found)

    def costs(self, shard: Shard) -> Floats:
        return self.tags.costs(shard)

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        tokens = bounds_of(shard)
        size, at = np.diff(tokens)[chosen], keys.indptr[:-1]
        self._check_paths(shard, chosen, keys, size)
        paths = Paths(tokens[chosen], size, keys.values, at, keys.values, at + size)
        rows = path_rows(shard.x, paths, np.ones(len(chosen)), self.states.shape)
        margin = losses_of(paths, self.tags.tag_costs, self.substates)
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], margin, rows, keys)

    def _check_paths(self, shard: Shard, chosen: Ints, keys: Keys, size: Ints) -> None:
        """Kernels trust keys; these may come from a file."""
        wrong = np.diff(keys.indptr) != 2 * size
        if wrong.any():
            at = shard.first + chosen[np.argmax(wrong)]
            raise InputError(f"the key of a constraint of sequence {at} is not two sub-states per token")
        n_states = len(self.classes) * self.substates
        if len(keys.values) and not (keys.values.min() >= 0 and keys.values.max() < n_states):
            raise InputError(f"a key names a sub-state beyond the {n_states} there are")

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        self._check_paths(shard, chosen, keys, np.diff(bounds_of(shard))[chosen])
        differ = np.flatnonzero(self.rebase(shard, chosen, keys).values != keys.values)
        if len(differ):
            at = chosen[np.searchsorted(keys.indptr, differ[0], side="right") - 1]
            raise InputError(f"sequence {shard.first + at} has other latent values than its key says")

    def impute(self, w: Floats, shard: Shard) -> Int32s:
        path = np.empty(len(shard.y), dtype=np.int32)
        find_own(shard.x, shard.y, bounds_of(shard), self.states.split(w), self.substates, path)
        if (path < 0).any():
            at = np.searchsorted(bounds_of(shard), np.argmax(path < 0), side="right") - 1
            raise InputError(
                f"shard {shard.number}, sequence {at}: a score is not a number; features are NaN, infinite or too large"
            )
        return path

    def rebase(self, shard: Shard, chosen: Ints, keys: Keys) -> Keys:
        tokens, values = bounds_of(shard), keys.values.copy()
        for at, i in zip(keys.indptr, chosen, strict=False):
            h = latent_of(shard)[tokens[i] : tokens[i + 1]]
            values[at : at + len(h)] = h
        return keys._replace(values=values)

    def check_latent(self, shard: Shard) -> None:
        if len(latent_of(shard)) != len(shard.y):
            raise InputError(f"shard {shard.number}: the model does not have one latent value per token")
        check_range(shard, shard.y * self.substates, (shard.y + 1) * self.substates, shard.tokens)

    def draw(self, shard: Shard, seed: int) -> Int32s:
        return self.mixture.draw(single_tokens(shard), seed)

    def start_from(self, model: Problem, w: Floats, seed: int) -> StartWeights:
        """Those of a convex chain are copied to all sub-states of a tag; clusters, or noise, make these differ."""
        if not isinstance(model, Chain):
            return super().start_from(model, w, seed)
        if model.classes != self.classes or model.shape != self.tags.shape:
            raise InputError(
                f"solver.start: the model is a chain of {model.shape}, this problem one of {self.tags.shape}; "
                "the same tags and features, and the same problem.transitions and problem.boundaries, are needed"
            )
        known = model.split(w)
        parts = (known.emission, known.pairs, known.start, known.end)
        by_state = [np.repeat(part, self.substates, axis=-1) for part in parts]
        by_state[1] = np.repeat(by_state[1], self.substates, axis=0)
        copies = np.concatenate([part.ravel() for part in by_state])[: self.n_weights]  # no boundaries are zeros
        return StartWeights(copies, imputes=False) if self.guesses(0) else StartWeights(told_apart(copies, seed))

    def guesses(self, restart: int) -> int:
        return self.mixture.guesses(restart)

    def summary(self, shard: Shard) -> Floats:
        return self.mixture.summary(single_tokens(shard))

    def guess(self, total: Floats, shard: Shard) -> Int32s:
        """k-means of the tokens of each tag."""
        return self.mixture.guess(total, single_tokens(shard))

    def predict(self, w: Floats, shard: Shard) -> NDArray[np.int32]:
        """(n_tokens,) tags, sequence after sequence."""
        return self.states.predict(w, shard) // np.int32(self.substates)

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        return self.tags.score(y, predicted)

    def score_shard(self, shard: Shard, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        return self.tags.score_shard(shard, y, predicted)

    def judge(self, unknown: tuple[str, ...]) -> Problem:
        return self.tags.judge(unknown)


def single_tokens(shard: Shard) -> Shard:
    """The tokens of all sequences, each an example."""
    return replace(shard, tokens=None, cost=None)


def keys_of(tokens: Ints, right: Int32s, found: Int32s) -> Keys:
    """The right path of each sequence and then the one found."""
    size = np.diff(tokens)
    at = np.arange(len(right)) + np.repeat(tokens[:-1], size)
    values = np.empty(2 * len(right), dtype=np.int32)
    values[at] = right
    values[at + np.repeat(size, size)] = found
    return Keys(2 * tokens, values)
