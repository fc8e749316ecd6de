"""Exact kernels for several classes and for targets: certified, verified, and equal to what a QP solver finds."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdual
from distdual import train, verify
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from distdual.feature_maps.kernel_function import KernelFunction, Landmarks
from distdual.kernels.rows import DenseRows
from distdual.problems.binary import Binary
from distdual.problems.expansion_form import ExpansionForm, expansion_form_of
from distdual.problems.multiclass import Multiclass
from distdual.problems.ordinal import Ordinal
from distdual.problems.regression import Regression
from tests import naive

DRAW = np.random.default_rng(5)
N, EPSILON, BIAS = 45, 0.2, 0.5
X = DRAW.normal(size=(N, 3)).astype(np.float32)
CLASS = np.argmax(X + 0.7 * DRAW.normal(size=X.shape), axis=1)
TARGET = np.round(np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * DRAW.normal(size=N), 4)
COST = 0.5 + DRAW.random(N)
LOSS = [[0.0, 1.0, 2.0], [0.5, 0.0, 1.0], [1.0, 0.0, 0.0]]
KINDS: dict[str, dict[str, Any]] = {
    "multiclass": {"kind": "multiclass", "bias": BIAS},
    "losses": {"kind": "multiclass", "bias": BIAS, "loss": LOSS},
    "regression": {"kind": "regression", "bias": BIAS, "epsilon": EPSILON},
    "no tube": {"kind": "regression", "bias": BIAS, "epsilon": 0.0},
}


def told(folder: Path, name: str, kind: str, **sections: Any) -> dict[str, Any]:
    return {
        "data": {"url": str(folder / KINDS[kind]["kind"])},
        "problem": KINDS[kind],
        "solver": {"gap": 1e-4, "C": 2.0},
        "kernel": {"kind": "rbf", "gamma": 0.4},
        "output": {"url": str(folder / name)},
        **sections,
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forms")
    prepare_arrays(
        X, np.array(["a", "b", "c"])[CLASS], str(folder / "multiclass"), "multiclass", cost=COST, shard_bytes=300
    )
    prepare_arrays(X, TARGET, str(folder / "regression"), "regression", cost=COST, shard_bytes=300)
    for kind in ("multiclass", "regression"):
        assert train(told(folder, f"{kind} model", kind)).certificate["certified"]
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    shutil.copytree(prepared, tmp_path / "copy")
    return tmp_path / "copy"


def program(kind: str, C: float) -> naive.Program:
    """The same problem on explicit features, from a factor of the kernel matrix."""
    matrix = KernelFunction(kind="rbf", gamma=0.4).between(DenseRows(X), Landmarks(DenseRows(X), 3)) + BIAS**2
    features = np.linalg.cholesky(matrix + 1e-11 * np.eye(N))
    rows, margin, group = [], [], []
    losses = np.array(KINDS[kind].get("loss", 1.0 - np.eye(3)))
    epsilon = KINDS[kind].get("epsilon")
    for i in range(N):
        if epsilon is not None:
            rows += [features[i], -features[i]]
            margin += [np.float32(TARGET[i]) - epsilon, -np.float32(TARGET[i]) - epsilon]
            group += [i, i]
            continue
        for c in {0, 1, 2} - {int(CLASS[i])}:
            difference = np.eye(3)[CLASS[i]] - np.eye(3)[c]
            rows.append(np.kron(difference, features[i]))
            margin.append(losses[CLASS[i], c])
            group.append(i)
    return naive.Program(np.array(rows), np.array(margin), np.array(group), C * COST)


@pytest.mark.parametrize("C", [0.05, 2.0, 50.0])
@pytest.mark.parametrize("kind", KINDS)
def test_the_bounds_enclose_the_optimum(prepared: Path, tmp_path: Path, kind: str, C: float) -> None:
    sections = {"solver": {"gap": 1e-4, "C": C}, "output": {"url": str(tmp_path / "model")}}
    found = train(told(prepared, "", kind, **sections)).certificate
    best = naive.optimum(program(kind, C), 1e-6)
    assert found["certified"], found["reason"]
    assert found["lower"] <= best.upper * (1 + 1e-6)
    assert found["upper"] >= best.lower * (1 - 1e-6)
    checked = verify(str(tmp_path / "model"))
    assert checked.findings == ()
    assert checked.certified


@pytest.mark.parametrize("kind", ["multiclass", "regression"])
@pytest.mark.parametrize(
    ("name", "at", "by", "finding"),
    [
        ("support/x", (3, 1), 0.01, "a row is not that of its example"),
        ("dual/alpha", 0, 100.0, "α is not feasible for 1 examples"),
        ("dual/alpha", 1, -1e-3, "lower is .* when recomputed"),
        ("dual/example", -1, 1000, "does not name the examples of the support rows"),
        ("weights", 2, 0.5, "upper is .* when recomputed"),
    ],
)
def test_verify_notices_what_was_changed(folder: Path, kind: str, name: str, at: Any, by: float, finding: str) -> None:
    path = folder / f"{kind} model" / f"{name}.npy"
    changed = np.load(path)
    changed[at] += by
    np.save(path, changed)
    found = verify(str(folder / f"{kind} model"), str(folder / kind))
    assert not found.certified
    text = "\n".join(found.findings)
    assert f"{name}.npy is not what training wrote" in text
    assert re.search(finding, text), text


@pytest.mark.parametrize("key", [-1, 3])
def test_verify_notices_a_class_that_is_none(folder: Path, key: int) -> None:
    path = folder / "multiclass model" / "dual" / "key_values.npy"
    changed = np.load(path)
    changed[0] = key
    np.save(path, changed)
    found = verify(str(folder / "multiclass model"), str(folder / "multiclass"))
    assert any("does not name the examples" in each for each in found.findings)


@pytest.mark.parametrize("kind", ["multiclass", "regression"])
def test_predictions_are_those_of_numpy_alone(prepared: Path, kind: str) -> None:
    by_hand = """
import json, sys
import numpy as np
folder, x = sys.argv[1], np.load(sys.argv[2]).astype(np.float64)
about = json.load(open(folder + "/model.json"))["problem"]
support = np.load(folder + "/support/x.npy").astype(np.float64)
beta = np.load(folder + "/weights.npy").reshape(len(support), -1)
apart = ((x[:, None] - support) ** 2).sum(axis=2)
scores = (np.exp(-about["expansion"]["gamma"] * apart) + about["bias"] ** 2) @ beta
assert not any(name.startswith("distdual") for name in sys.modules)
print(json.dumps(scores.tolist()))
"""
    np.save(prepared / "x.npy", X)
    arguments = [sys.executable, "-c", by_hand, str(prepared / f"{kind} model"), str(prepared / "x.npy")]
    scores = np.array(json.loads(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout))
    found = distdual.predict(str(prepared / f"{kind} model"), str(prepared / kind), scores=True)
    np.testing.assert_allclose(np.reshape(found.scores, scores.shape), scores, rtol=1e-9, atol=1e-12)


FORMS = {
    "binary": Binary(n_features=3, classes=("a", "b")),
    "regression": Regression(n_features=3, epsilon=EPSILON),
    "multiclass": Multiclass(n_features=3, classes=("a", "b", "c"), loss=LOSS),
}


@pytest.mark.parametrize("kind", FORMS)
def test_coefficients_are_those_of_the_constraints_that_they_name(kind: str) -> None:
    form: ExpansionForm = expansion_form_of(FORMS[kind])
    beta = np.round(DRAW.normal(size=(6, form.columns)), 3)
    if kind == "multiclass":
        beta = -np.abs(beta)
        beta[np.arange(6), CLASS[:6]] = 0.0
        beta[2, :] = 0.0
        beta = np.round(beta * 1024) / 1024  # sums are exact
        beta[np.arange(6), CLASS[:6]] = -beta.sum(axis=1)
    row, keys, alpha = form.names(beta)
    assert (alpha > 0).all()
    np.testing.assert_array_equal(form.coefficients(row, keys, alpha, form.label_of(beta)), beta)


@pytest.mark.parametrize("kind", FORMS)
def test_what_is_not_feasible_is_noticed(kind: str) -> None:
    form, most = expansion_form_of(FORMS[kind]), np.full(4, 2.0)
    label = np.array([0, 1, 0, 1], dtype=np.int32)
    feasible = {
        "binary": [[-2.0], [2.0], [0.0], [1.0]],
        "regression": [[-2.0], [2.0], [0.0], [-1.0]],
        "multiclass": [[2.0, -1.5, -0.5], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.5, -0.5]],
    }[kind]
    assert not form.infeasible(np.array(feasible), label, most).any()
    wrong = {
        "binary": [[0.1], [-0.1], [-2.1], [2.1]],
        "regression": [[-2.1], [2.1], [3.0], [np.nan]],
        "multiclass": [[2.5, -2.0, -0.5], [-1.0, 1.1, 0.0], [-0.5, 0.5, 0.0], [0.5, 0.0, -0.5]],
    }[kind]
    assert form.infeasible(np.array(wrong), label, most).all()


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Multiclass(n_features=3, classes=("a", "b"), rescaling="slack"), 'needs problem.rescaling = "margin"'),
        (Ordinal(n_features=3, classes=("1", "2")), "needs a binary, multiclass or regression problem, not ordinal"),
        (Regression(n_features=3, bias="free"), "a free bias is not possible with an exact kernel"),
    ],
    ids=["slack rescaling", "ordinal", "free bias"],
)
def test_what_has_no_form_is_refused(problem: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        expansion_form_of(problem)
