"""A problem on mapped features: the same oracle and the same rows, of φ(x) instead of x.

What is certified is the mapped problem: min over w of P(w) with ⟨w, φ(x)⟩ for scores.
"""

from dataclasses import dataclass, replace
from typing import Any

from distdual.data.dataset import Dataset
from distdual.data.layout import MAP_TEXT
from distdual.data.preprocess.preprocessing import Preprocessing
from distdual.data.shard import Shard
from distdual.data.training_data import TrainingData
from distdual.errors import InputError
from distdual.feature_maps.feature_map import FeatureMap
from distdual.feature_maps.quality import Quality
from distdual.kernels.rounding import row_norm_bound
from distdual.problems.base import Problem
from distdual.problems.wrapping import Wrapping

MAP = "feature_map"  # the key of a problem's description
CERTIFIES_PREPARED = "the problem on mapped features, which `prepare --map` has made"
CERTIFIES = "the problem on mapped features, which the map in this folder defines"


@dataclass(frozen=True, eq=False)
class Mapped(Wrapping):
    """`problem` on the features of a map. Its methods take shards that `prepared` has mapped."""

    feature_map: FeatureMap
    quality: Quality | None = None  # of the map, where it was measured in this run

    def prepared(self, shard: Shard) -> Shard:
        if shard.mapped:
            return shard
        x = self.feature_map.rows(shard.x)
        return replace(shard, x=x, norm=row_norm_bound(x), mapped=True)

    def loaded_bytes(self, nbytes: int, n_rows: int) -> int:
        return nbytes + 4 * self.feature_map.width * n_rows

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


def certified_kernel(problem: Problem, preprocessing: Preprocessing) -> dict[str, Any]:
    """The entry of certificate.json about the kernel, if there is one: of the problem, or of features mapped before."""
    if isinstance(problem, Mapped):
        return {} if problem.quality is None else {"kernel": {"certifies": CERTIFIES, **problem.quality._asdict()}}
    if preprocessing.map is None:
        return {}
    return {"kernel": {"certifies": CERTIFIES_PREPARED, **preprocessing.map.quality._asdict()}}


def check_takes_map(problem: Problem) -> None:
    if not problem.takes_map:
        raise InputError(
            f"a {problem.kind} problem takes no [kernel]: its weights are not those of one row of features"
        )


def check_not_mapped(dataset: TrainingData) -> None:
    """Refuse a kernel of features that are those of a kernel already."""
    if isinstance(dataset, Dataset) and MAP_TEXT in dataset.layout.texts:
        raise InputError(f"{dataset.location}: its features were mapped by `prepare --map`; leave the kernel out")


def unmapped(problem: Problem) -> Problem:
    """The problem on the features that w belongs to."""
    return problem.problem if isinstance(problem, Mapped) else problem
