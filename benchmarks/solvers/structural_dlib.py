"""dlib's structural solver: 1-slack cutting planes. The oracle is ours, for all examples at once when w has changed."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from benchmarks.case import Case
from benchmarks.objective import Solution
from benchmarks.solvers.base import Ladder, Peer, Tolerance
from distdual.kernels.rows import CsrRows, DenseRows, OuterRows, add

PROBES = 64  # places of w that tell whether it is another one


class Dlib(Peer):
    """Its C is ours · n. It gets 0 for φ(x, y) and −(φ(x, y) − φ(x, ŷ)) for φ(x, ŷ): only the difference counts."""

    name: ClassVar[str] = "dlib"
    package: ClassVar[str] = "dlib"
    kinds: ClassVar[tuple[str, ...]] = ("multiclass", "chain")
    effort: ClassVar[str] = "epsilon"
    apart: ClassVar[bool] = True

    def ladder(self, case: Case) -> Ladder:  # noqa: ARG002
        return Tolerance(4.0)

    def ready(self, case: Case) -> Callable[[float], Any]:
        import dlib

        return lambda effort: dlib.solve_structural_svm_problem(Structural(dlib, case, effort))

    def solution(self, case: Case, fitted: Any) -> Solution:  # noqa: ARG002
        return Solution(np.array(fitted))


class Structural:
    """The methods that dlib requires."""

    be_verbose = False
    use_sparse_feature_vectors = True
    max_cache_size = 0

    def __init__(self, dlib: Any, case: Case, epsilon: float) -> None:
        self.dlib, self.case, self.epsilon = dlib, case, epsilon
        data = case.train()
        self.shards = [data.read(number).shard for number in range(data.n_shards)]
        self.num_samples, self.num_dimensions = data.n_examples, case.problem.n_weights
        self.C = case.C * data.n_examples
        self.seen: tuple[float, ...] | None = None
        self.answers: list[tuple[float, Any]] = []

    def get_truth_joint_feature_vector(self, _: int) -> Any:
        return self.dlib.sparse_vector()

    def separation_oracle(self, example: int, solution: Any) -> tuple[float, Any]:
        places = range(0, len(solution), max(1, len(solution) // PROBES))
        probe = tuple(solution[place] for place in places)
        if probe != self.seen:
            self.seen, self.answers = (
                probe,
                [one for shard in self.shards for one in self.ask(np.array(solution), shard)],
            )
        loss, (indices, values) = self.answers[example]
        row = self.dlib.sparse_vector()
        row.extend([self.dlib.pair(i, v) for i, v in zip(indices.tolist(), values.tolist(), strict=True)])
        return loss, row

    def ask(self, w: Any, shard: Any) -> Any:
        problem = self.case.problem
        found = problem.offenders(w, shard)
        made = problem.constraints(shard, np.arange(shard.n_examples), found.keys)
        for k, margin in enumerate(made.margin.tolist()):
            yield margin, negative(made.rows, k, problem)


def negative(rows: Any, k: int, problem: Any) -> tuple[Any, Any]:
    """Places and values of −x_k."""
    if isinstance(rows, CsrRows):
        at = slice(rows.indptr[k], rows.indptr[k + 1])
        return rows.indices[at], -rows.values[at].astype(float)
    assert isinstance(rows, DenseRows | OuterRows)
    whole = np.zeros(problem.n_weights)
    add(rows, k, -1.0, whole)
    places = np.flatnonzero(whole)
    return places, whole[places]
