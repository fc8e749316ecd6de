"""A problem made of another one, which answers for it unless the wrapping knows better."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard
from distdual.kernels.rows import Floats, Ints
from distdual.problems.base import Best, BiasKinks, Constraints, Keys, Magnitude, Offenders, Problem


@dataclass(frozen=True, eq=False)
class Wrapping(Problem):
    problem: Problem

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
    def reads_often(self) -> bool:  # type: ignore[override]
        return self.problem.reads_often

    @property
    def most_best(self) -> int:  # type: ignore[override]
        return self.problem.most_best

    @property
    def holds_gil(self) -> bool:  # type: ignore[override]
        return self.problem.holds_gil

    @property
    def has_boundary(self) -> bool:  # type: ignore[override]
        return self.problem.has_boundary

    @property
    def many_constraints(self) -> bool:  # type: ignore[override]
        return self.problem.many_constraints

    @property
    def free_bias(self) -> float:  # type: ignore[override]
        return self.problem.free_bias

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.problem.n_weights

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        return self.problem.offenders(w, shard)

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:
        return self.problem.magnitude(shard, found)

    def costs(self, shard: Shard) -> Floats:
        return self.problem.costs(shard)

    def constraints(self, shard: Shard, chosen: Ints, keys: Keys) -> Constraints:
        return self.problem.constraints(shard, chosen, keys)

    def constraints_of(self, shard: Shard, chosen: Ints, found: Offenders) -> Constraints:
        return self.problem.constraints_of(shard, chosen, found)

    def check_keys(self, shard: Shard, chosen: Ints, keys: Keys) -> None:
        self.problem.check_keys(shard, chosen, keys)

    def nonnegative_weights(self) -> Ints:
        return self.problem.nonnegative_weights()

    def bias_kinks(self, shard: Shard, found: Offenders, cost: Floats, most: int) -> BiasKinks:
        return self.problem.bias_kinks(shard, found, cost, most)

    def predict(self, w: Floats, shard: Shard) -> NDArray[Any]:
        return self.problem.predict(w, shard)

    def decision(self, w: Floats, shard: Shard) -> Floats | None:
        return self.problem.decision(w, shard)

    def k_best(self, w: Floats, shard: Shard, k: int) -> Best | None:
        return self.problem.k_best(w, shard, k)

    def spell(self, shard: Shard, predicted: NDArray[Any]) -> NDArray[Any] | None:
        return self.problem.spell(shard, predicted)

    def score(self, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        return self.problem.score(y, predicted)

    def score_shard(self, shard: Shard, y: NDArray[Any], predicted: NDArray[Any]) -> dict[str, float]:
        return self.problem.score_shard(shard, y, predicted)

    def judge(self, unknown: tuple[str, ...]) -> Problem | None:
        return self.problem.judge(unknown)

    def describe(self) -> dict[str, Any]:
        return self.problem.describe()
