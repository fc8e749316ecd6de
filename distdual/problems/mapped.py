"""A problem on mapped features: the same oracle and the same rows, of φ(x) instead of x.

What is certified is the mapped problem: min over w of P(w) with ⟨w, φ(x)⟩ for scores.
"""

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.feature_maps.feature_map import FeatureMap
from distdual.feature_maps.quality import Quality
from distdual.kernels.rounding import row_norm_bound
from distdual.kernels.rows import Floats, Ints
from distdual.problems.base import BiasKinks, Constraints, Keys, Magnitude, Offenders, Problem

MAP = "feature_map"  # the key of a problem's description
CERTIFIES = "the problem on mapped features, which the map in this folder defines"


@dataclass(frozen=True, eq=False)
class Mapped(Problem):
    """`problem` on the features of a map. Its methods take shards that `prepared` has mapped."""

    problem: Problem
    feature_map: FeatureMap
    quality: Quality | None = None  # of the map, where it was measured in this run

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.problem.kind

    @property
    def data_spec(self) -> DataSpec:  # type: ignore[override]
        return self.problem.data_spec

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return self.problem.exact

    @property
    def estimator(self) -> str | None:  # type: ignore[override]
        return self.problem.estimator

    @property
    def uses_margin(self) -> bool:  # type: ignore[override]
        return self.problem.uses_margin

    @property
    def oracle_work(self) -> float:  # type: ignore[override]
        return self.problem.oracle_work

    @property
    def many_constraints(self) -> bool:  # type: ignore[override]
        return self.problem.many_constraints

    @property
    def has_boundary(self) -> bool:  # type: ignore[override]
        return self.problem.has_boundary

    @property
    def free_bias(self) -> float:  # type: ignore[override]
        return self.problem.free_bias

    def bias_kinks(self, shard: Shard, found: Offenders, cost: Floats, most: int) -> BiasKinks:
        return self.problem.bias_kinks(shard, found, cost, most)

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.problem.n_weights

    def prepared(self, shard: Shard) -> Shard:
        if shard.mapped:
            return shard
        x = self.feature_map.rows(shard.x)
        return replace(shard, x=x, norm=row_norm_bound(x), mapped=True)

    def loaded_bytes(self, nbytes: int, n_rows: int) -> int:
        return nbytes + 4 * self.feature_map.width * n_rows

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        return self.problem.offenders(w, shard)

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:
        return self.problem.magnitude(shard, found)

    def costs(self, shard: Shard) -> Floats:
        return self.problem.costs(shard)

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        return self.problem.constraints(shard, chosen, keys)

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        self.problem.check_keys(shard, chosen, keys)

    def predict(self, w: Floats, shard: Shard) -> NDArray[Any]:
        return self.problem.predict(w, shard)

    def decision(self, w: Floats, shard: Shard) -> Floats | None:
        return self.problem.decision(w, shard)

    def spell(self, shard: Shard, predicted: NDArray[Any]) -> NDArray[Any] | None:
        return self.problem.spell(shard, predicted)

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        return self.problem.score(y, predicted)

    def score_shard(self, shard: Shard, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        return self.problem.score_shard(shard, y, predicted)

    def judge(self, unknown: tuple[str, ...]) -> Problem | None:
        return self.problem.judge(unknown)

    def describe(self) -> dict[str, Any]:
        """The problem's own description on raw features, and the map."""
        return {**self.problem.describe(), "n_features": self.feature_map.n_inputs, MAP: described(self.feature_map)}


def described(feature_map: FeatureMap) -> dict[str, Any]:
    """What model.json says about a map."""
    function = feature_map.function
    return {
        "kind": function.kind,
        "gamma": function.gamma,
        "degree": function.degree,
        "coef0": function.coef0,
        "map": feature_map.kind,
        "width": feature_map.width,
        "sha256": feature_map.digest,
    }


def mapped(problem: Problem, feature_map: FeatureMap, quality: Quality | None = None) -> Mapped:
    """The problem on mapped features, of a problem on raw ones."""
    check_takes_map(problem)
    made: Any = problem
    return Mapped(replace(made, n_features=feature_map.width), feature_map, quality)


def certified_kernel(problem: Problem) -> dict[str, Any]:
    """The entry of certificate.json about the kernel, if there is one."""
    if not isinstance(problem, Mapped) or problem.quality is None:
        return {}
    return {"kernel": {"certifies": CERTIFIES, **problem.quality._asdict()}}


def check_takes_map(problem: Problem) -> None:
    if not problem.takes_map:
        raise InputError(
            f"a {problem.kind} problem takes no [kernel]: its weights are not those of one row of features"
        )


def unmapped(problem: Problem) -> Problem:
    """The problem on the features that w belongs to."""
    return problem.problem if isinstance(problem, Mapped) else problem
