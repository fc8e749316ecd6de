"""A latent problem of a user's own reaches what the built-in one does, and `verify` checks it."""

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import distdual
from distdual.config import ClusterConfig, LocalCluster
from distdual.data.prepare.api import prepare_arrays
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.problems.latent.base import Completed
from distdual.problems.registry import problem_from
from distdual.testing import ProblemContract
from tests import naive
from tests.build import as_sparse
from tests.coordinator.test_latent_loop import clouds, falls
from tests.problems.latent.test_multiclass import CLASSES, three_classes
from tests.shell import assert_refused, call


@dataclass(frozen=True, kw_only=True)
class Mixtures(distdual.LatentUserProblem):
    """Components of classes, word for word: an output is a class and a component of it."""

    components: int = 2

    @property
    def n_weights(self) -> int:
        return len(self.classes) * self.components * self.n_features

    def feature_map(self, x: Any, y: tuple[int, int]) -> Any:
        return (y[0] * self.components + y[1]) * self.n_features + np.arange(self.n_features), x

    def loss(self, y_true: int, y: tuple[int, int]) -> float:
        return float(y[0] != y_true)

    def argmax(self, w: Any, x: Any, y_true: int) -> tuple[int, int]:
        scores = w.reshape(-1, self.n_features) @ x.astype(np.float64)
        best = int(np.argmax(scores + (np.arange(len(scores)) // self.components != y_true)))
        return divmod(best, self.components)

    def outputs(self, x: Any) -> Any:
        return [(y, h) for y in range(len(self.classes)) for h in range(self.components)]

    def latent_values(self, x: Any, y_true: int) -> Any:
        return range(self.components)

    def complete(self, y_true: int, h: int) -> tuple[int, int]:
        return y_true, h


def every_component(problem: Completed, shard: Shard, i: int) -> dict[tuple[int, ...], tuple[Any, float, float]]:
    """All components, those of its own class too."""
    own, h, y = problem.problem, int(problem.values[i]), int(shard.y[i])
    features = naive.dense(shard.x, own.n_features)[i]
    found = {}
    for j in range(len(own.classes) * own.components):
        row = np.zeros((len(own.classes) * own.components, len(features)))
        row[y * own.components + h] += features
        row[j] -= features
        found[(h, *divmod(j, own.components))] = (row.ravel(), float(j // own.components != y), 1.0)
    return found


class TestOwnMixtures(ProblemContract):
    every_constraint = staticmethod(every_component)
    shard = three_classes(0)
    mixtures = Mixtures(n_features=3, classes=CLASSES)
    problem = Completed(mixtures, mixtures.draw(shard, 0), shard.first)

    def test_it_comes_back_from_its_description(self):
        assert problem_from(json.loads(json.dumps(self.problem.describe())), Mixtures) == self.mixtures

    def test_it_travels_to_workers(self):
        assert self.problem.part(self.shard.first, self.shard.first + 3).problem == self.mixtures

    def test_dense_and_sparse_features_say_the_same(self, w):
        """Predictions are text here."""
        dense, sparse = (self.problem.predict(w, shard) for shard in (self.shard, as_sparse(self.shard)))
        np.testing.assert_array_equal(dense, sparse)

    def test_there_is_one_prediction_for_each_label(self, examples, w):
        assert self.problem.predict(w, examples).shape == examples.y.shape

    def test_what_is_imputed_has_the_highest_score(self, examples, w):
        scores = naive.dense(examples.x, 3) @ w.reshape(6, 3).T
        for i, h in enumerate(self.mixtures.impute(w, examples)):
            own = scores[i, 2 * examples.y[i] : 2 * examples.y[i] + 2]
            assert own[h] == pytest.approx(own.max(), rel=1e-12)


@pytest.fixture
def data(tmp_path) -> str:
    x, y = clouds(0, n=60)
    x = np.hstack([x, np.ones((60, 1), dtype=np.float32)])
    prepare_arrays(x, y, tmp_path / "data", "multiclass", shard_bytes=300)
    return str(tmp_path / "data")


def told(data: str, model: Any, **solver: Any) -> dict[str, Any]:
    problem = {"kind": Mixtures.kind, "components": 3, "restarts": 2}
    return {
        "data": {"url": data},
        "problem": problem,
        "solver": {"C": 1.0, "gap": 1e-3, **solver},
        "output": {"url": str(model)},
    }


def test_a_run_is_certified_and_its_objective_falls(data, tmp_path):
    result = distdual.train(told(data, tmp_path / "model"))
    falls(result)
    assert result.certificate["certified"]
    assert distdual.verify(str(tmp_path / "model"), problem=Mixtures).certified
    assert distdual.predict(str(tmp_path / "model"), data, problem=Mixtures).score["loss"] < 0.2
    distdual.train(told(data, tmp_path / "next", start=str(tmp_path / "model")))


@pytest.mark.slow
def test_a_cluster_can_verify_it(data, tmp_path):
    distdual.train(told(data, tmp_path / "model"))
    cluster = ClusterConfig(local=LocalCluster(workers=1))
    assert distdual.verify(str(tmp_path / "model"), problem=Mixtures, cluster=cluster).certified


def test_a_latent_value_that_does_not_exist_is_refused(data, tmp_path):
    distdual.train(told(data, tmp_path / "model"))
    values = np.load(tmp_path / "model" / "latent.npy")
    values[4] = 3
    np.save(tmp_path / "model" / "latent.npy", values)
    with pytest.raises(InputError, match="example 4 cannot have the latent value 3"):
        distdual.verify(str(tmp_path / "model"), problem=Mixtures)


@dataclass(frozen=True, kw_only=True)
class Careless(Mixtures):
    exact = False


def test_inexact_inference_is_refused(data, tmp_path):
    with pytest.raises(InputError, match="a latent problem needs exact inference"):
        distdual.train({**told(data, tmp_path / "model"), "problem": {"kind": Careless.kind}})


@dataclass(frozen=True, kw_only=True)
class Stubborn(Mixtures):
    def impute_one(self, w: Any, x: Any, y_true: int) -> int:
        return 0


@dataclass(frozen=True, kw_only=True)
class Inventive(Mixtures):
    def impute_one(self, w: Any, x: Any, y_true: int) -> int:
        return 7


@dataclass(frozen=True, kw_only=True)
class Beyond(Mixtures):
    def latent_values(self, x: Any, y_true: int) -> Any:
        return range(self.components + 1)


@dataclass(frozen=True, kw_only=True)
class Picky(Mixtures):
    def loss(self, y_true: int, y: tuple[int, int]) -> float:
        return float(y != (y_true, 0))


@dataclass(frozen=True, kw_only=True)
class Halves(Mixtures):
    def latent_values(self, x: Any, y_true: int) -> Any:
        return [0, 0.5]


def test_check_problem_tries_latent_values(capsys):
    ran = call(capsys, "check-problem", Mixtures.kind, "--json")
    checks = {check["name"]: check for check in json.loads(ran.out)["checks"]}
    assert ran.code == 0, ran.out
    assert "best of 240 latent values, all there are" in checks["latent"]["sentence"]  # 40 examples, 3 weights, 2 each
    assert "all outputs" in checks["argmax"]["sentence"]
    assert "those of LatentUserProblem" in checks["kernels"]["sentence"]


@pytest.mark.parametrize(
    ("cls", "check", "sentence"),
    [
        (Stubborn, "latent", r"impute_one is not the best for example \d+: it gives 0 with .*, 1 has"),
        (Inventive, "latent", "impute_one gives 7 for example 0, which is_latent rejects"),
        (Beyond, "latent", r"complete\(y_true, 2\) of example 0 is rejected by is_output or not in outputs"),
        (Picky, "loss", r"loss\(y, y\) is 1 for the right output of example 0"),
    ],
)
def test_a_fault_of_latent_values_is_named(cls, check, sentence):
    found = {each.name: each for each in distdual.check_problem(cls)}
    assert not found[check].ok
    assert re.search(sentence, found[check].sentence), found[check]


def test_latent_values_that_are_no_whole_numbers_are_refused(capsys):
    assert_refused(call(capsys, "check-problem", Halves.kind), "draw_one gives the latent value 0.5", "whole number")


def test_what_cannot_take_latent_problems_says_so():
    with pytest.raises(InputError, match=r"train latent problems with distdual\.train"):
        distdual.StructuralSVM(Mixtures).fit(np.eye(4), [0, 1, 0, 1])
