"""By turns imputing and solving never raises the objective, finds what was planted, and ends with a certificate."""

import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from distributed import Client
from distributed import LocalCluster as LocalDask

import distdual
from distdual.config import ClusterConfig, LocalCluster
from distdual.coordinator.latent_loop import Turn, check_fall
from distdual.coordinator.run import Result
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from distdual.solver.regularizer import Prior
from distdual.solver.solver import Solver
from tests import naive
from tests.build import constraints_of
from tests.problems.latent.test_chain import every_path


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


def counting(n: int = 40) -> tuple[Any, Any]:
    """Every third token is a "b". Features tell nothing, and the tag before does not tell how many "a" there were."""
    lengths = np.random.default_rng(0).integers(2, 9, size=n)
    tags = [np.array(["a", "a", "b"])[np.arange(length) % 3] for length in lengths]
    return [np.ones((length, 1), dtype=np.float32) for length in lengths], tags


def crossed(seed: int, n: int = 40) -> tuple[Any, Any]:
    """Sequences of tokens from four clouds; those at opposite corners have the same tag."""
    rng = np.random.default_rng(seed)
    x, y = [], []
    for length in rng.integers(3, 8, size=n):
        cloud = rng.integers(4, size=length)
        corner = np.array([[-1.5, -1.5], [1.5, 1.5], [-1.5, 1.5], [1.5, -1.5]])[cloud]
        features = corner + 0.4 * rng.normal(size=(length, 2))
        x.append(np.hstack([features, np.ones((length, 1))]).astype(np.float32))
        y.append(np.array(["a", "b"])[cloud // 2])
    return x, y


def train(folder: Path, problem: dict[str, Any], client: Any = None, **sections: Any) -> Result:
    told = {"solver": {"gap": 1e-4}, **sections}
    result = distdual.train(
        {
            "data": {"url": str(folder / "data")},
            "problem": problem,
            "output": {"url": str(folder / "model"), "overwrite": True, "log": str(folder / "run.jsonl")},
            **told,
        },
        client,
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
    problem, dataset = result.model.problem, distdual.data.dataset.open_dataset(location(tmp_path))
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
    return distdual.data.storage.location.Location(str(folder / "data"))


def test_components_tell_apart_what_one_plane_a_class_cannot(tmp_path):
    x, y = clouds(0)
    prepare_arrays(x, y, tmp_path / "data", "latent_multiclass", shard_bytes=300)
    problem = {"kind": "latent_multiclass", "bias": 1.0, "components": 3, "restarts": 3, "min_examples": 5}
    result = train(tmp_path, problem, solver={"gap": 1e-4, "C": 10.0})
    assert np.bincount(result.model.problem.values, minlength=6).min() >= 5
    assert distdual.verify(str(tmp_path / "model")).certified
    flat = train_flat(tmp_path, kind="multiclass", bias=1.0)
    found = distdual.predict(str(tmp_path / "model"), str(tmp_path / "data")).score
    assert found["accuracy"] > 0.97
    assert flat["accuracy"] < 0.9


def train_flat(folder: Path, **problem: Any) -> dict[str, float]:
    """The score of a convex model, which stays in the folder "flat"."""
    output = {"url": str(folder / "flat")}
    distdual.train({"data": {"url": str(folder / "data")}, "problem": problem, "output": output})
    return distdual.predict(output["url"], str(folder / "data")).score


def test_sub_states_count_where_a_chain_of_tags_cannot(tmp_path):
    x, y = counting()
    prepare_arrays(x, y, tmp_path / "data", "latent_chain", shard_bytes=100)
    problem = {"kind": "latent_chain", "init": "random", "restarts": 8}
    result = train(tmp_path, problem, solver={"gap": 1e-3})
    assert result.certificate["certified"]
    checked = distdual.verify(str(tmp_path / "model"))
    assert checked.certified, checked.findings
    assert checked.objective == pytest.approx(min(result.certificate["latent"]["restarts"]), rel=1e-9)
    found = distdual.predict(str(tmp_path / "model"), str(tmp_path / "data")).score
    assert found == {"accuracy": 1.0, "sequence_accuracy": 1.0}
    assert train_flat(tmp_path, kind="chain")["accuracy"] < 0.8


def test_clusters_of_tokens_are_a_good_start_for_sub_states(tmp_path):
    x, y = crossed(0)
    prepare_arrays(x, y, tmp_path / "data", "chain", shard_bytes=800)
    result = train(tmp_path, {"kind": "latent_chain"}, solver={"gap": 1e-3})
    assert distdual.verify(str(tmp_path / "model")).certified
    assert distdual.predict(str(tmp_path / "model"), str(tmp_path / "data")).score["accuracy"] == 1.0
    flat = train_flat(tmp_path, kind="chain")
    assert flat["accuracy"] < 0.9
    from_flat = train(tmp_path, {"kind": "latent_chain"}, solver={"gap": 1e-3, "start": str(tmp_path / "flat")})
    assert from_flat.certificate["latent"]["objective"] == pytest.approx(
        result.certificate["latent"]["objective"], rel=5e-3
    )


def test_the_last_convex_problem_of_a_latent_chain_is_solved_as_an_independent_solver_does(tmp_path):
    x, y = crossed(1, n=6)
    x, y = [part[:2] for part in x], [part[:2] for part in y]
    prepare_arrays(x, y, tmp_path / "data", "latent_chain", shard_bytes=50)
    result = train(tmp_path, {"kind": "latent_chain", "init": "random"}, solver={"gap": 1e-6, "C": 0.3})
    problem, dataset = result.model.problem, distdual.data.dataset.open_dataset(location(tmp_path))
    each = []
    for s in range(dataset.n_shards):
        shard = dataset.read(s).shard
        here = problem.of(shard)
        each += [
            (shard.first + i, *found) for i in range(shard.n_examples) for found in every_path(here, shard, i).values()
        ]
    group, rows, margin, _ = (np.array(part) for part in zip(*each, strict=True))
    best = naive.optimum(naive.Program(rows, margin, group, np.full(6, 0.3)), 1e-6)
    assert result.certificate["lower"] == pytest.approx(best.upper, rel=3e-6)


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


@pytest.mark.parametrize("init", ["guess", "random"])
def test_class_weights_can_be_the_start_of_components(tmp_path, init):
    x, y = clouds(2)
    prepare_arrays(x, y, tmp_path / "data", "multiclass", shard_bytes=300)
    train_flat(tmp_path, kind="multiclass", bias=1.0)
    problem = {"kind": "latent_multiclass", "bias": 1.0, "components": 3, "init": init}
    solver = {"gap": 1e-4, "C": 10.0, "start": str(tmp_path / "flat")}
    result = train(tmp_path, problem, solver=solver)
    assert distdual.verify(str(tmp_path / "model")).certified
    assert len(np.unique(result.model.problem.values)) > 2
    assert distdual.predict(str(tmp_path / "model"), str(tmp_path / "data")).score["accuracy"] > 0.9
    with pytest.raises(InputError, match="the model has 2 classes of 3 weights, this problem 2 of 2"):
        train(tmp_path, {**problem, "bias": 0.0}, solver=solver)


def test_a_run_ends_no_higher_than_the_model_it_began_with(tmp_path):
    made = planted(4)
    prepare_arrays(made.x, made.y, tmp_path / "data", "latent", shard_bytes=1500)
    problem = {"kind": "latent", "init": "random"}
    first = train(tmp_path, problem, solver={"gap": 1e-4, "C": 0.1})
    (tmp_path / "model").rename(tmp_path / "start")
    again = train(tmp_path, problem, solver={"gap": 0.5, "C": 0.1, "start": str(tmp_path / "start"), "max_passes": 1})
    assert again.certificate["latent"]["objective"] <= first.certificate["latent"]["objective"] * (1 + 1e-9)


def test_early_turns_are_loose_and_the_last_is_tight(tmp_path):
    made = planted(2)
    prepare_arrays(made.x, made.y, tmp_path / "data", "latent", shard_bytes=1500)
    trace = train(tmp_path, {"kind": "latent", "init": "random"}).certificate["latent"]["trace"]
    targets = [turn["target"] for turn in trace]
    assert len(targets) > 2
    assert targets[0] == 1e-2
    assert all(1e-4 < target <= 0.1 for target in targets[1:-1])
    assert targets[-1] == 1e-4


@pytest.mark.parametrize(
    ("previous", "upper", "objective"), [(10.0, 10.1, 9.0), (10.0, 9.0, 9.1), (10.0, float("nan"), 9.0)]
)
def test_an_objective_that_rises_is_an_error(previous, upper, objective):
    with pytest.raises(AssertionError, match="the objective must not rise"):
        check_fall(previous, Turn(0, objective, upper, 1.0, 0.1, 0, 0, 0))


@pytest.mark.parametrize("solver", [{"slack": "block:4"}, {"slack": "all"}, {"cache_bytes": 1e6}])
def test_shared_slacks_are_refused(tmp_path, solver):
    made = planted(0, n=10)
    prepare_arrays(made.x, made.y, tmp_path / "data", "latent")
    with pytest.raises(InputError, match='needs solver\\.slack = "example"'):
        train(tmp_path, {"kind": "latent"}, solver=solver)


@pytest.mark.slow
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


@pytest.mark.parametrize("kind", ["latent", "latent_chain"])
def test_an_asynchronous_run_is_certified_and_never_rises(tmp_path, kind):
    x, y = planted(0)[:2] if kind == "latent" else crossed(0)
    prepare_arrays(x, y, tmp_path / "data", kind, shard_bytes=800)
    problem = {"kind": kind, "restarts": 2, **({"bias": 1.0} if kind == "latent" else {})}
    result = train(tmp_path, problem, solver={"gap": 1e-3, "mode": "async"})
    assert result.certificate["certified"]
    assert distdual.verify(str(tmp_path / "model")).certified
    assert distdual.predict(str(tmp_path / "model"), str(tmp_path / "data")).score["accuracy"] == 1.0


def test_a_cluster_gives_the_same_sub_states(tmp_path):
    x, y = crossed(3, n=20)
    prepare_arrays(x, y, tmp_path / "data", "chain", shard_bytes=400)
    here = train(tmp_path, {"kind": "latent_chain"}, solver={"gap": 1e-2})
    told = {"processes": False, "n_workers": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalDask(**told) as cluster, Client(cluster) as client:
        there = train(tmp_path, {"kind": "latent_chain"}, client, solver={"gap": 1e-2})
        assert distdual.verify(str(tmp_path / "model"), client=client).certified
        one = tmp_path / "one"
        prepare_arrays(x[:1], y[:1], one, "chain")
        assert len(distdual.predict(str(tmp_path / "model"), str(one), client).labels) == len(y[0])
    np.testing.assert_array_equal(here.model.w, there.model.w)
    np.testing.assert_array_equal(here.model.problem.values, there.model.problem.values)


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

    def test_another_objective_is_noticed(self, folder):
        path = folder / "model" / "certificate.json"
        certificate = json.loads(path.read_text())
        right = certificate["latent"]["objective"]
        certificate["latent"]["objective"] = 0.99 * right
        path.write_text(json.dumps(certificate))
        checked = distdual.verify(str(folder / "model"))
        assert checked.findings == (
            f"latent.objective is {right:.12g} when recomputed, certificate.json says {0.99 * right:.12g}",
        )
        assert not checked.certified
        del certificate["latent"]
        path.write_text(json.dumps(certificate))
        assert "certificate.json says nan" in distdual.verify(str(folder / "model")).findings[0]

    def test_bounds_that_do_not_divide_latent_values_are_refused(self, tmp_path):
        x, y = crossed(4, n=10)
        prepare_arrays(x, y, tmp_path / "data", "chain")
        train(tmp_path, {"kind": "latent_chain"}, solver={"gap": 1e-2})
        path = tmp_path / "model" / "latent_indptr.npy"
        indptr = np.load(path)
        for wrong in (indptr[:-1], indptr[::-1].copy(), np.empty(0, dtype=np.int64)):
            np.save(path, wrong)
            with pytest.raises(InputError, match=r"latent_indptr\.npy: must rise from 0 to \d+"):
                distdual.verify(str(tmp_path / "model"))
        indptr[1] += 1
        np.save(path, indptr)
        assert "latent_indptr.npy is not what training wrote" in distdual.verify(str(tmp_path / "model")).findings[0]

    def test_latent_values_that_no_example_has_are_refused(self, folder):
        values = np.load(folder / "model" / "latent.npy")
        values[3] = 1000
        self.change(folder, values)
        with pytest.raises(InputError, match="example 3 cannot have the latent value 1000"):
            distdual.verify(str(folder / "model"))

    def test_too_few_latent_values_are_refused(self, folder):
        self.change(folder, np.zeros(3, dtype=np.int32))
        with pytest.raises(InputError, match="20 examples, but the model has latent values of 3"):
            distdual.verify(str(folder / "model"))


def test_alpha_moves_and_the_bounds_are_those_of_the_new_problem():
    rng = np.random.default_rng(0)
    old, new = (rng.normal(scale=0.5, size=(n, 3)).astype(np.float32) for n in (4, 2))
    solver = Solver(1.0, 0, Prior(3))
    solver.start_from(constraints_of(old, np.ones(4), [0, 1, 2, 3]), np.array([0.5, 0.2, 1.0, 0.0]))
    moved = constraints_of(new, np.ones(2), [0, 2], keys=[7, 8])
    solver.move(np.array([1, 3]), [moved], np.array([0.5, 1.0]))
    v = 0.2 * old[1] + 0.5 * new[0] + 1.0 * new[1]
    np.testing.assert_allclose(solver.w, v, rtol=1e-6)
    assert solver.lower == pytest.approx(1.7 - 0.5 * float(v @ v), rel=1e-6)
