"""Problems of a user's own on structures: trained, verified, predicted; with bounds, and with many latent values."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import distdual
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_structures
from distdual.data.shard import Memo
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.estimators import StructuralSVM
from distdual.kernels.rows import DenseRows
from distdual.problems.user import self_check
from distdual.problems.user.self_check import check_problem
from tests.problems.structured import Hasty, Parts, Rescaled, Tags, images, tagged
from tests.shell import call


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "MEASURE", 0.01)
    monkeypatch.setattr(self_check, "N_EXAMPLES", 6)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("structures") / "data"
    prepare_structures(zip(*tagged(0), strict=True), place, shard_bytes=1500)
    return str(place)


def told(data: str, folder: Path, kind: type[Any], **solver: Any) -> dict[str, Any]:
    return {
        "data": {"url": data},
        "problem": {"kind": kind.kind},
        "solver": {"C": 0.1, "gap": 1e-4, "mode": "deterministic", **solver},
        "output": {"url": str(folder / "model"), "overwrite": True},
    }


@pytest.fixture(scope="module")
def trained(data: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("trained")
    return distdual.train(told(data, folder, Tags)), str(folder / "model")


def test_a_run_on_structures_is_certified_verified_and_scored(data, trained, tmp_path):
    result, model = trained
    assert result.certificate["certified"]
    assert result.certificate["relaxed"] == 0.0
    assert distdual.verify(model, problem=Tags).certified
    assert '"classes":[]' in Path(model, "model.json").read_text().replace(" ", "").replace("\n", "")
    found = distdual.predict(model, data, problem=Tags)
    x, y = tagged(0)
    expected = [Tags(n_features=0).predict_one(result.model.w, each) for each in x]
    assert [list(map(int, name.split())) for name in found.labels] == [each.tolist() for each in expected]
    wrong = np.mean([(a != b).sum() for a, b in zip(y, expected, strict=True)])
    assert found.score["loss"] == pytest.approx(wrong)
    prepare_structures([(each,) for each in x], tmp_path / "unlabelled")
    unlabelled = distdual.predict(model, str(tmp_path / "unlabelled"), problem=Tags)
    assert unlabelled.score is None
    assert unlabelled.labels.tolist() == found.labels.tolist()


def test_the_same_optimum_is_found_from_lists(data, trained):
    x, y = tagged(0)
    model = StructuralSVM(Tags, C=0.1, gap=1e-4).fit(x, y)
    assert model.certificate_["lower"] == pytest.approx(trained[0].certificate["lower"], rel=3e-4)
    predicted = model.predict(x)
    assert [each.tolist() for each in predicted] == [
        each.tolist() for each in map(model.problem_.predict_one, [model.coef_] * len(x), x)
    ]
    new = tagged(7, 20)
    assert model.score(*new) == pytest.approx(
        -np.mean([(a != b).sum() for a, b in zip(new[1], model.predict(new[0]), strict=True)])
    )
    assert model.score(data) == pytest.approx(model.score(x, y))


def test_predict_never_asks_for_the_loss(monkeypatch):
    x, y = tagged(0, 20)
    model = StructuralSVM(Tags, C=0.1, gap=1e-2).fit(x, y)
    monkeypatch.setattr(Tags, "loss", lambda *_: pytest.fail("loss was called"))
    assert len(model.predict(x)) == 20


def test_weights_are_kept_from_falling_below_zero():
    x, y = tagged(0)
    free = StructuralSVM(Tags, C=0.1, gap=1e-3).fit(x, y)
    signed = StructuralSVM(Tags, C=0.1, gap=1e-3, nonnegative=["0:2", 4]).fit(x, y)
    assert free.coef_[[0, 1, 4]].min() < 0
    assert signed.coef_[[0, 1, 4]].min() >= 0
    assert signed.certificate_["lower"] > free.certificate_["upper"]


def test_bounds_prove_a_gap_that_tells_what_they_leave_open(data, trained, tmp_path):
    result = distdual.train(told(data, tmp_path, Hasty))
    found, known = result.certificate, trained[0].certificate
    assert not found["certified"]
    assert found["stopped_by"] == "relaxed"
    assert found["passes"] < 60
    assert found["lower"] <= known["upper"]
    assert found["upper"] >= known["lower"]
    assert 0.5 * found["gap"] < found["relaxed"] <= found["gap"]
    checked = distdual.verify(str(tmp_path / "model"), problem=Hasty)
    assert checked.findings == ()
    assert (checked.upper, checked.relaxed) == pytest.approx((found["upper"], found["relaxed"]))
    wide = distdual.train(told(data, tmp_path, Hasty, gap=1.1 * found["gap"]))
    assert wide.certificate["certified"]
    assert distdual.verify(str(tmp_path / "model"), problem=Hasty).certified


def test_the_command_tells_what_bounds_leave_open(data, tmp_path, capsys):
    (tmp_path / "run.toml").write_text(
        f'[data]\nurl = "{data}"\n[problem]\nkind = "{Hasty.kind}"\n[solver]\nC = 0.1\n'
        f'gap = 1e-2\n[output]\nurl = "{tmp_path / "model"}"\n'
    )
    ran = call(capsys, "train", tmp_path / "run.toml")
    assert ran.code == 1
    assert "of the gap is what the oracle's bounds leave open" in ran.out
    ran = call(capsys, "verify", tmp_path / "model", "--problem", Hasty.kind)
    assert "of the gap is what the oracle's bounds leave open" in ran.out


def test_bounds_are_checked(data):
    checks = {each.name: each for each in check_problem(Hasty, data)}
    assert all(each.ok for each in checks.values()), checks
    assert "above what argmax finds" in checks["argmax"].sentence
    low = {each.name: each for each in check_problem(Hasty, data, ["slip=0.01"])}
    assert not low["argmax"].ok
    assert "bound" in low["argmax"].sentence


def test_a_bound_below_the_right_output_ends_a_run(data, tmp_path):
    config = told(data, tmp_path, Hasty)
    config["problem"]["slip"] = 100.0
    with pytest.raises(InputError, match=r"the bound of argmax is .* below the value of its own output"):
        distdual.train(config)


def optimum(constraints: list[Any], C: float, width: int) -> float:
    """min 1/2 ||w||² + C Σ ξ over all constraints of all examples, by a general solver."""
    n = len(constraints)

    def value(z: Any) -> float:
        return float(0.5 * z[:width] @ z[:width] + C * z[width:].sum())

    kept = []
    for i, own in enumerate(constraints):
        for loss, row in own:
            kept.append({"type": "ineq", "fun": lambda z, a=row, m=loss, i=i: a @ z[:width] - m + z[width + i]})
    found = minimize(
        value,
        np.ones(width + n),
        jac=lambda z: np.concatenate([z[:width], np.full(n, C)]),
        method="SLSQP",
        bounds=[(None, None)] * width + [(0, None)] * n,
        constraints=kept,
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success, found
    return float(found.fun)


def test_slack_rescaling_reaches_the_optimum_of_all_constraints():
    rng = np.random.default_rng(3)
    x = [{"rows": rng.normal(size=(n, 2))} for n in (1, 2, 1, 2)]
    y = [rng.integers(2, size=len(each["rows"])) for each in x]
    problem = Rescaled(n_features=0, width=2)
    every = []
    for one, right in zip(x, y, strict=True):
        best = problem.feature_map(one, right)
        found = [(problem.loss(right, z), problem.feature_map(one, z)) for z in problem.outputs(one)]
        every.append([(loss, loss * (best - other)) for loss, other in found])
    best = optimum(every, 0.5, 4)
    found = StructuralSVM(problem, C=0.5, gap=1e-6).fit(x, y).certificate_
    assert found["lower"] <= best * (1 + 1e-6)
    assert best <= found["upper"] * (1 + 1e-6)
    assert found["gap"] < 1e-6
    plain = StructuralSVM(Tags(n_features=0, width=2), C=0.5, gap=1e-6).fit(x, y).certificate_
    assert abs(plain["lower"] - best) > 1e-3


def test_check_problem_knows_slack_rescaling(tmp_path):
    prepare_structures(zip(*tagged(0), strict=True), tmp_path / "data")
    assert all(each.ok for each in check_problem(Rescaled, str(tmp_path / "data")))


def test_latent_values_are_tuples_that_nobody_lists(tmp_path):
    """25⁸ of them."""
    prepare_structures(zip(*images(0), strict=True), tmp_path / "data")
    checks = check_problem(Parts, str(tmp_path / "data"))
    assert all(each.ok for each in checks), checks
    config = told(str(tmp_path / "data"), tmp_path, Parts, C=1.0, gap=1e-2)
    result = distdual.train({**config, "problem": {"kind": Parts.kind, "rounds": 6}})
    assert result.certificate["certified"]
    assert np.load(tmp_path / "model" / "latent.npy").shape == (40 * 8,)
    objectives = [turn["objective"] for turn in result.certificate["latent"]["trace"]]
    assert objectives == sorted(objectives, reverse=True)
    assert distdual.verify(str(tmp_path / "model"), problem=Parts).certified
    assert distdual.predict(str(tmp_path / "model"), str(tmp_path / "data"), problem=Parts).score["loss"] < 0.2


def test_a_latent_value_that_is_none_is_named(tmp_path, monkeypatch):
    prepare_structures(zip(*images(0), strict=True), tmp_path / "data")
    monkeypatch.setattr(Parts, "draw_one", lambda *_: (1, 2))
    with pytest.raises(InputError, match=r"example 0 .*draw_one gives the latent value \(1, 2\); expected 8 whole"):
        distdual.train(told(str(tmp_path / "data"), tmp_path, Parts))


def test_the_right_output_is_mapped_once_and_each_offender_once(data, monkeypatch):
    calls = {"right": 0, "wrong": 0}
    whole = Tags.feature_map

    def counting(self: Any, x: Any, y: Any) -> Any:
        calls["right" if isinstance(y, np.ndarray) and not y.flags.writeable else "wrong"] += 1
        return whole(self, x, y)

    monkeypatch.setattr(Tags, "feature_map", counting)
    problem, w = Tags(n_features=0), np.random.default_rng(0).normal(size=6)
    shard = open_dataset(Location(data)).read(0).shard
    kept = replace(shard, memo=Memo())
    for k in range(3):
        found = problem.offenders((k + 1) * w, kept)
        violated = np.flatnonzero(found.slack > 0)
        reused = problem.constraints_of(kept, violated, found)
        assert calls == {"right": kept.n_examples, "wrong": (k + 1) * kept.n_examples}
    again = problem.constraints(kept, violated, found.keys.take(violated))
    np.testing.assert_array_equal(reused.margin, again.margin)
    assert isinstance(reused.rows, DenseRows) == isinstance(again.rows, DenseRows)
    for a, b in zip(reused.rows, again.rows, strict=True):
        np.testing.assert_array_equal(a, b)


def test_structures_cannot_be_changed(data):
    class Vandal(Tags):
        def argmax(self, w: Any, x: Any, y_true: Any) -> Any:
            x["rows"][0] = 0.0
            return y_true

    shard = open_dataset(Location(data)).read(0).shard
    with pytest.raises(InputError, match="example 0: raised ValueError: assignment destination is read-only"):
        Vandal(n_features=0).offenders(np.zeros(6), shard)


def test_examples_without_labels_cannot_be_trained_on(tmp_path):
    prepare_structures([(each,) for each in tagged(0)[0]], tmp_path / "data")
    with pytest.raises(InputError, match="has no y; training, verifying and scoring need labelled examples"):
        distdual.train(told(str(tmp_path / "data"), tmp_path, Tags))


@pytest.mark.parametrize("mode", ["deterministic", "async"])
def test_a_round_is_given_up_when_the_time_is_over(data, tmp_path, monkeypatch, mode):
    """The first pass, whose rounds grow, and a scan for the certificate: then no round is finished any more."""
    calls = []
    whole = Tags.argmax

    def slow(self: Any, w: Any, x: Any, y_true: Any) -> Any:
        calls.append(1)
        if len(calls) > 60:
            time.sleep(0.02)
        return whole(self, w, x, y_true)

    monkeypatch.setattr(Tags, "argmax", slow)
    result = distdual.train(told(data, tmp_path, Tags, max_seconds=0.3, gap=1e-12, mode=mode))
    assert result.certificate["stopped_by"] == "max_seconds"
    assert result.certificate["upper"] is not None
    assert len(calls) < 60 + 2 * 60 + 40
