"""A bias that is not regularised: certified, verified, and equal to what an independent solver finds."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quadprog
from sklearn import svm

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.distdual_check import check
from distdual.errors import InputError, Suspended
from tests.build import Examples, examples
from tests.coordinator.test_checkpoint import after, weights

N, D = 120, 4
MADE = examples(4, N, D, cost=True, margin=True, flip=0.2)._replace(x=examples(4, N, D).x + np.float32(1.5))
EPSILON = 0.2
TARGET = (MADE.x @ np.array([1.0, -2.0, 0.5, 0.0]) + 7.0 + 0.3 * np.random.default_rng(0).normal(size=N)).astype(float)


def prepared(folder: Path, made: Examples = MADE, *, regression: bool = False) -> str:
    place = folder / ("line" if regression else "data")
    if not place.exists():
        kind, y = ("regression", TARGET[: len(made.x)]) if regression else ("binary", np.where(made.y == 1, 1, -1))
        margin = {} if regression else {"margin": made.margin}
        prepare_arrays(made.x, y, str(place), kind, cost=made.cost, **margin, shard_bytes=16 * 25)
    return str(place)


def config(folder: Path, name: str = "model", *, regression: bool = False, prior: Any = None, **solver: Any) -> Any:
    kind = {"kind": "regression", "epsilon": EPSILON} if regression else {"kind": "binary"}
    return {
        "data": {"url": prepared(folder, regression=regression)},
        "problem": {**kind, "bias": "free"},
        "solver": {"C": 0.5, "gap": 1e-6, **solver},
        "prior": prior or {},
        "output": {"url": str(folder / name), "overwrite": True},
    }


def optimum(x: Any, margin: Any, sign: Any, capacity: Any, *, mean: Any = 0.0, precision: Any = 1.0) -> float:
    """max D(α) over 0 ≤ α ≤ C_i with Σ α sign = 0, by quadprog, for rows sign_i x_i."""
    rows = sign[:, None] * x
    gram = rows @ np.diag(np.broadcast_to(1.0 / np.asarray(precision), x.shape[1])) @ rows.T
    n, offset = len(margin), margin - rows @ np.broadcast_to(mean, x.shape[1])
    sides = np.vstack([sign, np.eye(n), -np.eye(n)]).T
    alpha = quadprog.solve_qp(gram + 1e-6 * np.eye(n), offset, sides, np.concatenate([[0], np.zeros(n), -capacity]), 1)[
        0
    ]
    return float(offset @ alpha - 0.5 * alpha @ gram @ alpha)


def binary_optimum(**prior: Any) -> float:
    return optimum(MADE.x.astype(float), MADE.margin, np.where(MADE.y == 1, 1.0, -1.0), 0.5 * MADE.cost, **prior)


def agree(found: dict[str, Any], expected: float, gap: float = 1e-6) -> None:
    assert found["certified"], found["reason"]
    slack = 2e-6 * expected  # what keeps the QP solver stable costs so much
    assert found["lower"] <= expected + slack
    assert expected - slack <= found["upper"] <= expected * (1 + 1.1 * gap) + slack


@pytest.mark.parametrize("slack", ["example", "block:7", "shard", "all"])
def test_the_optimum_is_that_of_a_qp_solver_for_all_slack_groups(slack: str, tmp_path: Path) -> None:
    gap = 1e-3 if slack == "all" else 1e-6
    told = config(tmp_path, slack=slack, gap=gap, max_passes=1000)
    agree(distdual.train(told).certificate, binary_optimum(), gap)
    assert distdual.verify(str(tmp_path / "model")).certified


@pytest.mark.parametrize("mode", ["deterministic", "async"])
def test_regression_too(mode: str, tmp_path: Path) -> None:
    found = distdual.train(config(tmp_path, regression=True, mode=mode)).certificate
    x, cost = MADE.x.astype(float), np.ones(N) if MADE.cost is None else MADE.cost
    n = len(x)
    sign, margin = np.repeat([1.0, -1.0], n), np.concatenate([TARGET, -TARGET]) - EPSILON
    agree(found, optimum(np.vstack([x, x]), margin, sign, 0.5 * np.tile(cost, 2)))
    assert distdual.verify(str(tmp_path / "model")).certified
    assert "checked" in check(str(tmp_path / "model"))


@pytest.mark.parametrize(
    "solver",
    [
        {"mode": "async"},
        {"mode": "async", "slack": "block:7"},
        {"schedule": "gap"},
        {"schedule": "ratio:5"},
        {"schedule": "reprocess:5"},
        {"slack": "example", "cache_bytes": 6000},
    ],
    ids=str,
)
def test_every_way_of_training_certifies_the_same(solver: dict[str, Any], tmp_path: Path) -> None:
    gap = 1e-4 if "cache_bytes" in solver else 1e-6
    found = distdual.train(config(tmp_path, **solver, gap=gap, max_passes=2000)).certificate
    agree(found, binary_optimum(), gap)
    assert distdual.verify(str(tmp_path / "model")).certified


def test_priors_leave_the_bias_alone(tmp_path: Path) -> None:
    mean, precision = np.array([0.5, -0.2, 0.0, 1.0, 99.0]), np.array([2.0, 0.5, 1.0, 3.0, 99.0])
    np.save(tmp_path / "mean.npy", mean)
    np.save(tmp_path / "precision.npy", precision)
    full = np.diag(precision)
    np.save(tmp_path / "full.npy", full)
    for file in ("precision.npy", "full.npy"):
        told = {"mean": str(tmp_path / "mean.npy"), "precision": str(tmp_path / file)}
        found = distdual.train(config(tmp_path, prior=told)).certificate
        agree(found, binary_optimum(mean=mean[:-1], precision=precision[:-1]))
        assert distdual.verify(str(tmp_path / "model")).certified


def test_weights_that_must_not_be_negative_leave_the_bias_free(tmp_path: Path) -> None:
    found = distdual.train(config(tmp_path, prior={"nonnegative": ["0:4"]})).certificate
    assert found["certified"]
    w = distdual.load_model(str(tmp_path / "model")).w
    assert (w[:-1] >= 0).all()
    assert found["lower"] > binary_optimum() * 1.001
    assert distdual.verify(str(tmp_path / "model")).certified


def test_the_bias_is_the_best_for_the_weights(tmp_path: Path) -> None:
    """No other bias has a smaller loss: it is searched, not guessed."""
    distdual.train(config(tmp_path, gap=0.05))
    model = distdual.load_model(str(tmp_path / "model"))
    unit = model.problem.describe()["bias_unit"]
    score, sign = MADE.x.astype(float) @ model.w[:-1], np.where(MADE.y == 1, 1.0, -1.0)

    def loss(b: float) -> float:
        return float((MADE.cost * np.maximum(0.0, MADE.margin - sign * (score + b))).sum())

    least = min(loss(b) for b in sign * MADE.margin - score)
    assert loss(unit * model.w[-1]) <= least * (1 + 1e-12)


def test_a_killed_run_goes_on_bit_by_bit(tmp_path: Path) -> None:
    made = examples(0, 2400, 12, flip=0.3)
    prepare_arrays(made.x + np.float32(1), made.y, str(tmp_path / "data"), "binary", shard_bytes=48 * 300)
    told = config(tmp_path, max_passes=6, schedule="slope")
    told["output"]["checkpoint_every"] = 1e-9
    distdual.train({**told, "output": {"url": str(tmp_path / "whole")}})
    lower = -np.inf
    for rounds in (2, 3, 2):
        with pytest.raises(Suspended):
            distdual.train(told, resume=True, terminated=after(rounds))
        manifest = json.loads((tmp_path / "model" / "checkpoint" / "manifest.json").read_text())
        assert manifest["summary"]["lower"] >= lower
        lower = manifest["summary"]["lower"]
    distdual.train(told, resume=True)
    assert weights(tmp_path / "model") == weights(tmp_path / "whole")


def test_a_warm_start_at_another_c_begins_from_the_dual(tmp_path: Path) -> None:
    distdual.train(config(tmp_path))
    told = config(tmp_path, "second", C=1.0, start=str(tmp_path / "model"))
    told["output"]["log"] = str(tmp_path / "log.jsonl")
    found = distdual.train(told).certificate
    capacity = 1.0 * MADE.cost
    expected = optimum(MADE.x.astype(float), MADE.margin, np.where(MADE.y == 1, 1.0, -1.0), capacity)
    agree(found, expected)
    rounds = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    first = next(line["lower"] for line in rounds if line.get("upper"))
    assert first >= 0.5 * expected


def test_a_sweep_certifies_every_point(tmp_path: Path) -> None:
    found = distdual.sweep(config(tmp_path), [0.05, 0.5, 5.0], 2)
    assert found.certified
    agree({**asdict(found.points[1]), "reason": ""}, binary_optimum())


def test_verify_notices_a_changed_bias_and_an_unbalanced_dual(tmp_path: Path) -> None:
    distdual.train(config(tmp_path))
    model = tmp_path / "model"
    w, alpha = np.load(model / "weights.npy"), np.load(model / "dual" / "alpha.npy")
    changed = w.copy()
    changed[-1] += 0.01
    np.save(model / "weights.npy", changed)
    found = distdual.verify(str(model))
    assert not found.certified
    assert any("upper is" in each for each in found.findings)
    np.save(model / "weights.npy", w)
    assert distdual.verify(str(model)).certified
    alpha[np.argmax(alpha)] *= 0.999
    np.save(model / "dual" / "alpha.npy", alpha)
    found = distdual.verify(str(model))
    assert not found.certified
    assert any("lower is" in each for each in found.findings)


@pytest.mark.parametrize("C", [0.01, 1.0])
def test_estimators_agree_with_libsvm(C: float) -> None:
    made = examples(7, 300, 5, flip=0.15)
    x = made.x + np.float32(2)
    ours, peer = (
        distdual.SVC(C=C, gap=1e-6, fit_intercept="free").fit(x, made.y),
        svm.SVC(kernel="linear", C=C, tol=1e-7),
    )
    peer.fit(x.astype(float), made.y)
    np.testing.assert_allclose(ours.coef_, peer.coef_, rtol=1e-2, atol=3e-3)
    np.testing.assert_allclose(ours.decision_function(x), peer.decision_function(x.astype(float)), atol=2e-2)


def test_a_saved_estimator_keeps_its_free_bias(tmp_path: Path) -> None:
    x = MADE.x
    made = distdual.SVR(C=0.1, gap=1e-4, fit_intercept="free").fit(x, TARGET)
    assert abs(made.intercept_[0]) > 1
    made.save(tmp_path / "model")
    again = distdual.SVR.from_model(str(tmp_path / "model"))
    assert again.fit_intercept == "free"
    np.testing.assert_allclose(again.predict(x), made.predict(x))


def test_a_single_class_needs_no_loss(tmp_path: Path) -> None:
    x = MADE.x
    prepare_arrays(x[:2], np.array([1, -1]), str(tmp_path / "data"), "binary")
    found = distdual.train(config(tmp_path, C=1e-3)).certificate
    assert found["certified"]


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    y = np.arange(N) % 3
    with pytest.raises(InputError, match="needs 2 classes, found 3"):
        distdual.SVC(fit_intercept="free").fit(MADE.x, y)
    with pytest.raises(InputError, match="intercept_scaling"):
        distdual.SVC(fit_intercept="free", intercept_scaling=2.0).fit(MADE.x, MADE.y)
    told = config(tmp_path, prior={"nonnegative": ["4:5"]})
    with pytest.raises(InputError, match="the bias, which is free"):
        distdual.train(told)
    told["problem"]["bias"] = "loose"
    with pytest.raises(InputError, match='a number or "free"'):
        distdual.train(told)
    full = np.eye(D + 1)
    full[0, -1] = full[-1, 0] = 0.5
    np.save(tmp_path / "full.npy", full)
    with pytest.raises(InputError, match="ties the bias"):
        distdual.train(config(tmp_path, prior={"precision": str(tmp_path / "full.npy")}))
    with pytest.raises(InputError, match="not possible with an exact kernel"):
        distdual.train({**config(tmp_path), "kernel": {"kind": "rbf", "gamma": 1.0}})


def test_low_rank_kernels_take_a_free_bias(tmp_path: Path) -> None:
    told = {**config(tmp_path, gap=1e-3), "kernel": {"kind": "rbf", "gamma": 0.3, "basis": 20}}
    assert distdual.train(told).certificate["certified"]
    assert distdual.verify(str(tmp_path / "model")).certified
