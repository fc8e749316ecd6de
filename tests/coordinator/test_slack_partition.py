"""Whoever shares a slack, the optimum is the same, the bounds are proven, and `verify` rebuilds them from the data."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdual import train, verify
from distdual.cluster.threads import InlineExecutor
from distdual.config import SolverConfig
from distdual.coordinator.outcome import Outcome
from distdual.coordinator.run import Result
from distdual.coordinator.trainer import Trainer
from distdual.data.in_memory import in_memory
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.problems.multiclass import Multiclass
from tests.build import examples

OWN = "tests.problems.mine:PlainMulticlass"
SLACKS = ["example", "block:1", "block:7", "shard", "all"]
OPTIONS: dict[str, dict[str, Any]] = {
    "binary": {"bias": 1.0, "class_cost": {"1": 2.0}},
    "multiclass": {"bias": 1.0},
    "regression": {"epsilon": 0.05},
    "chain": {},
    OWN: {},
}
PRIORS: dict[str, dict[str, Any]] = {
    "no prior": {},
    "a precision": {"precision": 2.0},
    "no negative weights": {"nonnegative": ["1:3"]},
    "a precision and no negative weights": {"precision": 2.0, "nonnegative": ["1:3"]},
}


def write(folder: Path, kind: str, n: int = 90) -> str:
    """A small data set of three shards or so, with costs where there can be any."""
    made, rng = examples(3, n, 4, cost=True), np.random.default_rng(0)
    place = str(folder / "data")
    if kind == "chain":
        lengths = rng.integers(1, 5, size=30)
        x = rng.normal(size=(lengths.sum(), 3)).astype(np.float32)
        y = (x @ rng.normal(size=(3, 3)) + rng.normal(size=(len(x), 3))).argmax(axis=1)
        prepare_arrays(x, y, place, "chain", lengths=lengths, shard_bytes=x.nbytes // 3)
        return place
    y = np.where(made.y == 1, 1, -1)
    if kind in ("multiclass", OWN):
        y = (made.x @ rng.normal(size=(4, 3)) + rng.normal(size=(n, 3))).argmax(axis=1)
    if kind == "regression":
        y = made.x @ rng.normal(size=4) + 0.3 * rng.normal(size=n)
    how = "multiclass" if kind == OWN else kind
    prepare_arrays(made.x, y, place, how, cost=made.cost, shard_bytes=made.x.nbytes // 3)
    return place


def run(data: str, model: Path, kind: str, *, prior: Any = None, output: Any = None, **solver: Any) -> Result:
    return train(
        {
            "data": {"url": data},
            "problem": {"kind": kind, **OPTIONS[kind]},
            "solver": {"C": 0.3, "gap": 1e-4, "max_passes": 3000, **solver},
            "prior": prior or {},
            "output": {"url": str(model), **(output or {})},
        }
    )


def rebuilt(model: Path, kind: str) -> None:
    found = verify(str(model), problem=kind if kind == OWN else None)
    assert found.findings == ()
    assert found.certified


@pytest.mark.parametrize(
    "prior", [pytest.param(p, marks=[] if p == "no prior" else [pytest.mark.slow]) for p in PRIORS]
)
@pytest.mark.parametrize("kind", OPTIONS)
def test_the_optimum_is_the_same_whoever_shares_a_slack(kind, prior, tmp_path):
    data = write(tmp_path, kind)
    found = {}
    for slack in SLACKS:
        model = tmp_path / slack.replace(":", "-")
        found[slack] = run(data, model, kind, prior=PRIORS[prior], slack=slack).certificate
        assert found[slack]["certified"]
        assert found[slack]["slack"] == ("example" if slack == "block:1" else slack)
        rebuilt(model, kind)
    assert max(c["lower"] for c in found.values()) <= min(c["upper"] for c in found.values()) * (1 + 1e-9)


@pytest.mark.parametrize("slack", ["block:7", "all"])
@pytest.mark.parametrize("budget", [np.inf, 4000.0])
def test_a_full_prior_with_signs_goes_with_groups(slack, budget, tmp_path):
    data, rng = write(tmp_path, "binary"), np.random.default_rng(1)
    root = rng.normal(size=(5, 5))
    np.save(tmp_path / "precision.npy", root @ root.T + np.eye(5))
    prior = {"precision": str(tmp_path / "precision.npy"), "nonnegative": ["0:3"]}
    single = run(data, tmp_path / "single", "binary", prior=prior).certificate
    group = run(data, tmp_path / "group", "binary", prior=prior, slack=slack, cache_bytes=budget).certificate
    assert group["certified"]
    assert max(single["lower"], group["lower"]) <= min(single["upper"], group["upper"])
    rebuilt(tmp_path / "group", "binary")


@pytest.mark.parametrize("share", [0.6, pytest.param(0.2, marks=pytest.mark.slow), 0.05])
@pytest.mark.parametrize("slack", ["example", "block:7", "shard"])
@pytest.mark.parametrize("kind", ["binary", "multiclass", "chain"])
def test_the_budget_holds_the_lower_bound_does_not_fall_and_training_goes_on(kind, slack, share, tmp_path):
    data = write(tmp_path, kind)
    free = run(data, tmp_path / "free", kind, slack=slack)
    least = 2 * (8 * len(free.model.w) + 160) + 1024
    budget = max(least, share * max(line.cache_bytes for line in free.history))
    tight = run(data, tmp_path / "tight", kind, slack=slack, cache_bytes=budget)
    assert max(line.cache_bytes for line in tight.history) <= budget
    assert (np.diff([line.lower for line in tight.history]) >= 0).all()
    assert tight.certificate["certified"]
    assert tight.certificate["lower"] <= free.certificate["upper"]
    assert free.certificate["lower"] <= tight.certificate["upper"]
    rebuilt(tmp_path / "tight", kind)


def test_the_log_tells_what_was_done_for_want_of_room(tmp_path):
    data = write(tmp_path, "binary", 900)
    log = {"log": str(tmp_path / "log")}
    result = run(data, tmp_path / "model", "binary", slack="example", cache_bytes=2600.0, output=log)
    rebuilt(tmp_path / "model", "binary")
    lines = map(json.loads, (tmp_path / "log").read_text().splitlines())
    events = [event for line in lines for event in line["events"]]
    assert any("coalesced" in event for event in events)
    assert any(event.startswith("slack example is now ") for event in events)
    assert result.certificate["slack"] == result.history[-1].slack != "example"


def test_a_budget_that_is_too_small_for_anything_says_what_is_needed(tmp_path):
    with pytest.raises(InputError, match=r"solver.cache_bytes: 100 bytes .*; set at least 1424"):
        run(write(tmp_path, "binary"), tmp_path / "model", "binary", cache_bytes=100.0)
    assert not (tmp_path / "model").exists() or not list((tmp_path / "model").rglob("*.*"))


@pytest.mark.parametrize("end", ["example", "block:10", "all"])
@pytest.mark.parametrize("start", ["example", "block:7", "shard", "all"])
def test_a_run_may_start_from_a_model_of_other_groups(start, end, tmp_path):
    data = write(tmp_path, "multiclass")
    old = run(data, tmp_path / "old", "multiclass", slack=start)
    new = run(data, tmp_path / "new", "multiclass", slack=end, start=str(tmp_path / "old"))
    assert new.history[0].lower >= old.certificate["lower"] * (1 - 1e-12)
    rebuilt(tmp_path / "new", "multiclass")


def test_more_capacity_carries_over_to_groups(tmp_path):
    data = write(tmp_path, "binary")
    run(data, tmp_path / "old", "binary", slack="block:7")
    for slack in ("example", "block:7"):
        run(data, tmp_path / slack, "binary", slack=slack, C=0.9, start=str(tmp_path / "old"))
        rebuilt(tmp_path / slack, "binary")


@pytest.mark.parametrize("slack", ["block:16", "shard", "all"])
def test_weights_do_not_depend_on_the_number_of_workers(slack):
    made = examples(7, 400, 4)
    whole = in_memory(made.x, made.y)
    problem = Multiclass(n_features=4, classes=whole.classes)

    def weights(threads: int) -> Outcome:
        executor = InlineExecutor(whole, problem, threads=threads)
        try:
            return Trainer(problem, whole, executor, SolverConfig(slack=slack), lambda _: None).run()
        finally:
            executor.close()

    np.testing.assert_array_equal(weights(1).w, weights(3).w)


def test_a_cluster_finds_the_same_weights_as_threads_and_its_members_can_be_rebuilt(tmp_path):
    data = write(tmp_path, "multiclass")
    told = {"data": {"url": data}, "problem": {"kind": "multiclass"}}
    solver = {"slack": "block:7", "cache_bytes": 9000.0, "offender_cache": 3}
    found = []
    for name, cluster in (("threads", {}), ("cluster", {"local": {"workers": 2}})):
        output = {"url": str(tmp_path / name)}
        found.append(train({**told, "solver": solver, "cluster": cluster, "output": output}).model.w)
        rebuilt(tmp_path / name, "multiclass")
    np.testing.assert_array_equal(*found)


@pytest.fixture
def grouped(tmp_path) -> Path:
    run(write(tmp_path, "multiclass"), tmp_path / "model", "multiclass", slack="block:7")
    return tmp_path / "model"


def change(path: Path, **changes: Any) -> None:
    arrays = dict(np.load(path))
    np.savez(path, **{**arrays, **{name: made(arrays[name]) for name, made in changes.items()}})


def support_file(model: Path) -> Path:
    return sorted(model.glob("dual/members-*/*.npz"))[0]


def test_forged_members_prove_another_bound(grouped):
    change(support_file(grouped), keys=lambda keys: (keys + 1) % 3)
    found = verify(str(grouped))
    assert not found.certified
    assert any(finding.startswith("lower is ") for finding in found.findings)
    assert found.lower <= found.upper


def test_forged_alpha_of_groups_is_not_feasible(grouped):
    path = grouped / "dual" / "alpha.npy"
    np.save(path, 3 * np.load(path))
    assert any("α is not feasible" in finding for finding in verify(str(grouped)).findings)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"keys": lambda keys: keys + 5}, "the class in the key of a constraint: 5 is not from 0 to 2"),
        ({"bits": lambda bits: bits[:-1]}, "bytes of bits"),
        ({"end": lambda end: end - 100}, r"not a members file: end: -\d+ is below 1"),
        ({"begin": lambda begin: begin + 1000, "end": lambda end: end + 1000}, "names example 10"),
        ({"lengths": lambda lengths: lengths + 1}, "numbers in keys"),
        ({"keys": lambda keys: keys.astype(float)}, "not a members file: keys: expected int8 or int16 or int32"),
    ],
)
def test_members_that_make_no_sense_are_named(changes, words, grouped):
    change(support_file(grouped), **changes)
    with pytest.raises(InputError, match=words):
        verify(str(grouped))


def test_a_missing_file_of_members_is_named(grouped):
    support_file(grouped).unlink()
    with pytest.raises(InputError, match=r"00000000.npz: not found"):
        verify(str(grouped))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("row", 10_000, "rows, not 10000"), ("shard", -1, "do not fit together"), ("file", 999, "not found")],
)
def test_references_to_rows_that_are_not_there_are_named(name, value, words, grouped):
    path = grouped / "dual" / f"{name}.npy"
    column = np.load(path)
    column[0] = value
    np.save(path, column)
    with pytest.raises(InputError, match=words):
        verify(str(grouped))


@pytest.mark.parametrize("slack", ["example", "block:7"])
def test_of_a_summary_verify_says_that_it_believes_the_trainer(slack, tmp_path):
    run(write(tmp_path, "binary"), tmp_path / "model", "binary", slack=slack, output={"dual": "summary"})
    found = verify(str(tmp_path / "model"))
    assert found.findings == ("the model holds a summary of its dual: the lower bound rests on the trainer's rows",)
    assert not found.certified
    assert found.gap <= 1e-4
    assert not list((tmp_path / "model").rglob("*.npz"))
    with pytest.raises(InputError, match="without constraints to start from"):
        run(str(tmp_path / "data"), tmp_path / "next", "binary", start=str(tmp_path / "model"))


def test_only_files_with_support_rows_stay_and_overwriting_leaves_none_behind(tmp_path):
    data, model = write(tmp_path, "binary"), tmp_path / "model"
    run(data, model, "binary", slack="block:7")
    files = {int(path.stem) for path in model.glob("dual/members-*/*.npz")}
    assert files == set(np.load(model / "dual" / "file.npy").tolist())
    run(data, model, "binary", slack="all", output={"overwrite": True})
    assert len(list(model.glob("dual/members-*"))) == 1
    rebuilt(model, "binary")
    run(data, model, "binary", output={"overwrite": True})
    assert not list(model.glob("dual/members-*"))
    assert not (model / "dual" / "row.npy").exists()
    rebuilt(model, "binary")


def test_what_a_killed_run_has_left_is_tidied_up_by_the_next(tmp_path):
    data, model = write(tmp_path, "binary"), tmp_path / "model"
    place = Location(str(model))
    place.write("run.json", b'{"members": "dual/members-dead"}')
    place.write("dual/members-dead/00000000.npz", b"half of it")
    run(data, model, "binary", slack="block:7")
    assert not (model / "dual" / "members-dead").exists()
    rebuilt(model, "binary")


def test_a_run_that_fails_leaves_no_members(tmp_path):
    data, model = write(tmp_path, "binary"), tmp_path / "model"

    def fail(_: Any) -> None:
        raise InputError("enough")

    told = {"data": {"url": data}, "problem": {"kind": "binary"}, "output": {"url": str(model)}}
    with pytest.raises(InputError, match="enough"):
        train({**told, "solver": {"slack": "block:7"}}, watch=fail)
    assert not [path for path in model.rglob("*") if path.is_file()]


@pytest.mark.parametrize("slack", ["block:7", "shard", "all"])
@pytest.mark.parametrize("kind", ["multiclass", pytest.param("chain", marks=pytest.mark.slow)])
def test_recent_offenders_save_oracle_calls_and_enter_no_upper_bound(kind, slack, tmp_path):
    data = write(tmp_path, kind)
    without = run(data, tmp_path / "without", kind, slack=slack).certificate
    result = run(data, tmp_path / "model", kind, slack=slack, offender_cache=5)
    found = result.certificate
    assert found["certified"]
    assert found["calls_saved"] > 0
    assert found["oracle_calls"] < without["oracle_calls"] + (slack == "block:7")  # small groups need few passes anyway
    assert max(found["lower"], without["lower"]) <= min(found["upper"], without["upper"])
    for before, line in itertools.pairwise(result.history):
        if line.totals["calls_saved"] > before.totals["calls_saved"]:
            assert (line.upper, line.certify) == (before.upper, False)
            assert line.totals["oracle_calls"] == before.totals["oracle_calls"]
    rebuilt(tmp_path / "model", kind)


@pytest.mark.parametrize("change", [{"slack": "example"}, {"output": {"dual": "summary"}}, {}])
def test_a_cache_of_offenders_where_there_can_be_none_is_refused(change, tmp_path):
    options = {"slack": "auto" if change == {} else "all", **change}
    with pytest.raises(InputError, match=r"solver.offender_cache needs groups of examples"):
        run(write(tmp_path, "binary"), tmp_path / "model", "binary", offender_cache=5, **options)
    assert not [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
