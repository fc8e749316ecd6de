"""By turns imputing and solving never raises the objective, finds what was planted, and ends with a certificate."""

import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import distdual
from distdual.config import ClusterConfig, LocalCluster
from distdual.coordinator.solver import Solver
from distdual.data.prepare import prepare_arrays
from distdual.errors import InputError
from distdual.prior import Prior
from distdual.training import Result
from tests import naive
from tests.build import constraints_of


class Planted(NamedTuple):
    x: list[Any]
    y: list[Any]
    hidden: Any  # the candidate that counts


def planted(seed: int, n: int = 80, width: int = 6) -> Planted:
    """Every second bag has one candidate on the other side of a plane; all others are on this side."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=width)
    normal /= np.linalg.norm(normal)
    x, y, hidden = [], [], []
    for i in range(n):
        bag = 0.5 * rng.normal(size=(rng.integers(2, 6), width))
        bag -= np.outer(np.maximum(bag @ normal, 0.0), normal)
        hidden.append(rng.integers(len(bag)))
        if i % 2:
            bag[hidden[-1]] += 3 * normal
        x.append(bag.astype(np.float32))
        y.append(np.full(len(bag), 1 if i % 2 else -1))
    return Planted(x, y, np.array(hidden))


def clouds(seed: int, n: int = 120) -> tuple[Any, Any]:
    """Two classes of three clouds each, which no plane tells apart."""
    rng = np.random.default_rng(seed)
    cloud = rng.integers(6, size=n)
    centre = np.array([[0, 0], [8, 0], [16, 0], [0, 8], [8, 8], [16, 8]])
    x = centre[cloud] + rng.normal(size=(n, 2))
    return ((x - x.mean(axis=0)) / 4).astype(np.float32), np.array(["a", "b"])[cloud % 2]


def train(folder: Path, problem: dict[str, Any], **sections: Any) -> Result:
    told = {"solver": {"gap": 1e-4}, **sections}
    result = distdual.train(
        {
            "data": {"url": str(folder / "data")},
            "problem": problem,
            "output": {"url": str(folder / "model"), "overwrite": True, "log": str(folder / "run.jsonl")},
            **told,
        }
    )
    falls(result)
    return result


def falls(result: Result) -> None:
    """The objective never rises within a restart, and each convex problem ends no higher than the objective before."""
    by_restart: dict[int, list[dict[str, Any]]] = {}
    for turn in result.certificate["latent"]["trace"]:
        by_restart.setdefault(turn["restart"], []).append(turn)
    for turns in by_restart.values():
        steps = [value for turn in turns for value in (turn["upper"], turn["objective"])]
        assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(steps)), steps


@pytest.mark.parametrize("init", ["guess", "random"])
@pytest.mark.parametrize("seed", [0, 1])
def test_planted_candidates_are_found_and_the_model_verifies(tmp_path, seed, init):
    made = planted(seed)
    prepare_arrays(made.x, made.y, tmp_path / "data", "latent", shard_bytes=1500)
    result = train(tmp_path, {"kind": "latent", "bias": 1.0, "init": init})
    assert result.certificate["certified"]
    np.testing.assert_array_equal(result.model.problem.values[1::2], made.hidden[1::2])
    checked = distdual.verify(str(tmp_path / "model"))
    assert checked.certified, checked.findings
    assert distdual.predict(str(tmp_path / "model"), str(tmp_path / "data")).score == {"accuracy": 1.0}


def test_the_last_convex_problem_is_solved_as_an_independent_solver_does(tmp_path):
    made = planted(3, n=30)
    prepare_arrays(made.x, made.y, tmp_path / "data", "latent", shard_bytes=800)
    result = train(tmp_path, {"kind": "latent", "bias": 1.0}, solver={"gap": 1e-6, "C": 0.3})
    problem, dataset = result.model.problem, distdual.data.store.open_dataset(location(tmp_path))
    rows, margins, groups, capacity = [], [], [], np.zeros(30)
    for s in range(dataset.n_shards):
        shard = dataset.read(s).shard
        for i in range(shard.n_examples):
            every = naive.bag_constraints(problem.problem, shard, i, int(problem.values[shard.first + i]))
            for row, margin, cost in every.values():
                rows.append(row)
                margins.append(margin)
                groups.append(shard.first + i)
                capacity[shard.first + i] = 0.3 * cost
    best = naive.optimum(naive.Program(np.array(rows), np.array(margins), np.array(groups), capacity))
    assert result.certificate["lower"] == pytest.approx(best.upper, rel=2e-6)


def location(folder: Path) -> Any:
    return distdual.data.location.Location(str(folder / "data"))


def test_components_tell_apart_what_one_plane_a_class_cannot(tmp_path):
    x, y = clouds(0)
    prepare_arrays(x, y, tmp_path / "data", "latent_multiclass", shard_bytes=300)
    problem = {"kind": "latent_multiclass", "bias": 1.0, "components": 3, "restarts": 3, "min_examples": 5}
    result = train(tmp_path, problem, solver={"gap": 1e-4, "C": 10.0})
    assert np.bincount(result.model.problem.values, minlength=6).min() >= 5
    assert distdual.verify(str(tmp_path / "model")).certified
    flat = train_flat(tmp_path)
    found = distdual.predict(str(tmp_path / "model"), str(tmp_path / "data")).score
    assert found["accuracy"] > 0.97
    assert flat["accuracy"] < 0.9


def train_flat(folder: Path) -> dict[str, float]:
    output = {"url": str(folder / "flat")}
    told = {"data": {"url": str(folder / "data")}, "problem": {"kind": "multiclass", "bias": 1.0}, "output": output}
    distdual.train(told)
    return distdual.predict(output["url"], str(folder / "data")).score


def test_the_best_of_several_restarts_is_kept(tmp_path):
    x, y = clouds(1)
    prepare_arrays(x, y, tmp_path / "data", "latent_multiclass", shard_bytes=300)
    problem = {"kind": "latent_multiclass", "bias": 1.0, "components": 2, "init": "random"}
    several = train(tmp_path, {**problem, "restarts": 4}).certificate
    assert distdual.verify(str(tmp_path / "model")).certified
    assert several["latent"]["objective"] == min(several["latent"]["restarts"])
    assert len(several["latent"]["restarts"]) == 4
    singles = [train(tmp_path, problem, solver={"gap": 1e-4, "seed": s}).certificate for s in range(2)]
    assert several["latent"]["objective"] <= min(one["latent"]["objective"] for one in singles) * (1 + 1e-3)
    assert several["oracle_calls"] > singles[0]["oracle_calls"]


def test_the_run_log_and_the_certificate_tell_each_turn(tmp_path):
    made = planted(2)
    prepare_arrays(made.x, made.y, tmp_path / "data", "latent", shard_bytes=1500)
    result = train(tmp_path, {"kind": "latent", "init": "random"})
    trace = result.certificate["latent"]["trace"]
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    told = [event for line in lines for event in line["events"] if event.startswith("latent ")]
    assert len(told) == len(trace) > 1
    assert f"objective={trace[-1]['objective']:.10g}" in told[-1]
    assert sum(turn["oracle_calls"] for turn in trace) == result.certificate["oracle_calls"]


def test_no_more_rounds_than_asked_for_and_the_last_is_tight(tmp_path):
    made = planted(2)
    prepare_arrays(made.x, made.y, tmp_path / "data", "latent", shard_bytes=1500)
    result = train(tmp_path, {"kind": "latent", "init": "random", "rounds": 1})
    assert [turn["target"] for turn in result.certificate["latent"]["trace"]] == [1e-4]
    assert result.certificate["certified"]
    assert distdual.verify(str(tmp_path / "model")).certified


@pytest.mark.parametrize("solver", [{"max_passes": 1}, {"max_seconds": 1e-9}, {"schedule": "one-pass"}])
def test_a_run_out_of_budget_ends_with_bounds_that_verify(tmp_path, solver):
    made = planted(2)
    prepare_arrays(made.x, made.y, tmp_path / "data", "latent", shard_bytes=1500)
    result = train(tmp_path, {"kind": "latent", "init": "random"}, solver={"gap": 1e-6, **solver})
    assert len(result.certificate["latent"]["trace"]) == 1
    checked = distdual.verify(str(tmp_path / "model"))
    assert checked.findings == ()
    assert not checked.certified


def test_a_convex_model_can_be_the_start(tmp_path):
    made = planted(4)
    prepare_arrays(made.x, made.y, tmp_path / "data", "latent", shard_bytes=1500)
    prepare_arrays(np.concatenate(made.x), np.concatenate(made.y), tmp_path / "flat", "binary")
    start = {"data": {"url": str(tmp_path / "flat")}, "problem": {"kind": "binary", "bias": 1.0}}
    distdual.train({**start, "output": {"url": str(tmp_path / "start")}})
    solver = {"gap": 1e-4, "start": str(tmp_path / "start")}
    result = train(tmp_path, {"kind": "latent", "bias": 1.0, "init": "random"}, solver=solver)
    np.testing.assert_array_equal(result.model.problem.values[1::2], made.hidden[1::2])
    with pytest.raises(InputError, match=r"latent problem of 6 weights .* not with binary of 7"):
        train(tmp_path, {"kind": "latent"}, solver=solver)


@pytest.mark.parametrize("solver", [{"slack": "block:4"}, {"slack": "all"}, {"cache_bytes": 1e6}])
def test_shared_slacks_are_refused(tmp_path, solver):
    made = planted(0, n=10)
    prepare_arrays(made.x, made.y, tmp_path / "data", "latent")
    with pytest.raises(InputError, match='needs solver\\.slack = "example"'):
        train(tmp_path, {"kind": "latent"}, solver=solver)


def test_a_cluster_gives_the_same_model(tmp_path):
    made = planted(5, n=40)
    prepare_arrays(made.x, made.y, tmp_path / "data", "latent", shard_bytes=800)
    problem = {"kind": "latent", "bias": 1.0, "init": "random"}
    here = train(tmp_path, problem)
    there = train(tmp_path, problem, cluster={"local": {"workers": 1}})
    np.testing.assert_array_equal(here.model.w, there.model.w)
    np.testing.assert_array_equal(here.model.problem.values, there.model.problem.values)
    cluster = ClusterConfig(local=LocalCluster(workers=1))
    assert distdual.verify(str(tmp_path / "model"), cluster=cluster).certified


class TestForgery:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        made = planted(6, n=20)
        prepare_arrays(made.x, made.y, tmp_path / "data", "latent")
        train(tmp_path, {"kind": "latent"})
        return tmp_path

    def change(self, folder: Path, values: Any) -> None:
        np.save(folder / "model" / "latent.npy", values)

    def test_other_latent_values_are_noticed(self, folder):
        values, used = np.load(folder / "model" / "latent.npy"), np.load(folder / "model" / "dual" / "example.npy")
        first = values.copy()
        other = next(i for i in range(1, 20, 2) if i not in used)
        values[other] = values[other] == 0
        self.change(folder, values)
        assert "latent.npy is not what training wrote" in distdual.verify(str(folder / "model")).findings[0]
        support = next(i for i in range(1, 20, 2) if i in used)
        first[support] = first[support] == 0
        self.change(folder, first)
        with pytest.raises(InputError, match=f"bag {support} has no constraint of candidate"):
            distdual.verify(str(folder / "model"))

    def test_latent_values_that_no_example_has_are_refused(self, folder):
        values = np.load(folder / "model" / "latent.npy")
        values[3] = 1000
        self.change(folder, values)
        with pytest.raises(InputError, match="example 3 cannot have the latent value 1000"):
            distdual.verify(str(folder / "model"))

    def test_too_few_latent_values_are_refused(self, folder):
        self.change(folder, np.zeros(3, dtype=np.int32))
        with pytest.raises(InputError, match="20 examples, but the model has 3 latent values"):
            distdual.verify(str(folder / "model"))


def test_alpha_moves_and_the_bounds_are_those_of_the_new_problem():
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=(2, 3)).astype(np.float32)
    solver = Solver(1.0, 0, Prior(3))
    solver.start_from(constraints_of(old, np.ones(4), [0, 1, 2, 3]), np.array([0.5, 0.2, 1.0, 0.0]))
    moved = constraints_of(new, np.ones(2), [0, 2], keys=[7, 8])
    solver.move(np.array([1, 3]), [moved], np.array([0.5, 1.0]))
    v = 0.2 * old[1] + 0.5 * new[0] + 1.0 * new[1]
    np.testing.assert_allclose(solver.w, v, rtol=1e-6)
    assert solver.lower == pytest.approx(1.7 - 0.5 * float(v @ v), rel=1e-6)
