"""Exact kernels: certified, verified and applied by the support expansion."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdual
from distdual import train, verify
from distdual.certificate.expansion_bounds import LEAST, pieces_of_shards
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.feature_maps.kernel_function import KernelFunction, Landmarks
from distdual.feature_maps.kernel_sums import COLUMNS, KernelSums
from distdual.kernels.rows import DenseRows, as_csr
from distdual.model.io import load_model
from distdual.problems.expanded import Expanded
from tests import naive

DRAW = np.random.default_rng(21)
X = DRAW.normal(size=(160, 3)).astype(np.float32)
Y = np.where((X**2).sum(axis=1) + 0.5 * DRAW.normal(size=160) > 2.0, "out", "in")
COST = 0.5 + DRAW.random(160)
CLASS = np.argmax(X**2, axis=1)
TARGET = np.sin(2 * X[:, 0]) + X[:, 1]


def told(folder: Path, name: str = "model", **sections: Any) -> dict[str, Any]:
    return {
        "data": {"url": str(folder / "data")},
        "problem": {"kind": "binary", "bias": 0.5},
        "solver": {"gap": 1e-3, "C": 2.0},
        "kernel": {"kind": "rbf", "gamma": 0.4},
        "output": {"url": str(folder / name)},
        **sections,
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("expanded")
    prepare_arrays(X, Y, str(folder / "data"), "binary", cost=COST, shard_bytes=600)
    assert train(told(folder)).certificate["certified"]
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "copy")
    return tmp_path / "copy"


def optimum(function: KernelFunction, C: float) -> naive.Optimum:
    """Of the same problem on explicit features, from a factor of the kernel matrix."""
    matrix = function.between(DenseRows(X), Landmarks(DenseRows(X), 3)) + 0.25
    features = np.linalg.cholesky(matrix + 1e-10 * np.eye(len(X)))
    sign = np.where(Y == "out", 1.0, -1.0)
    return naive.optimum(naive.Program(sign[:, None] * features, np.ones(len(X)), np.arange(len(X)), C * COST))


@pytest.mark.parametrize(
    ("kernel", "C"),
    [
        ({"kind": "rbf", "gamma": 0.4}, 2.0),
        ({"kind": "rbf", "gamma": 0.4}, 1e4),
        ({"kind": "polynomial", "gamma": 0.5, "degree": 2, "coef0": 1.0}, 0.1),
        ({"kind": "laplacian", "gamma": 0.3}, 2.0),
    ],
    ids=["rbf", "large C", "polynomial", "laplacian"],
)
def test_the_bounds_enclose_the_optimum(trained: Path, tmp_path: Path, kernel: dict[str, Any], C: float) -> None:
    sections = {"kernel": kernel, "solver": {"gap": 1e-3, "C": C}, "output": {"url": str(tmp_path / "model")}}
    found = train(told(trained, **sections)).certificate
    best = optimum(KernelFunction(**kernel), C)
    assert found["certified"], found["reason"]
    assert found["lower"] <= best.upper * (1 + 1e-6)
    assert found["upper"] >= best.lower * (1 - 1e-6)
    assert verify(str(tmp_path / "model")).findings == ()


def test_predictions_are_those_of_the_expansion(trained: Path) -> None:
    model = load_model(Location(str(trained / "model")))
    assert isinstance(model.problem, Expanded)
    function, support = model.problem.function, model.problem.support
    scores = (function.between(DenseRows(X), Landmarks(support, 3)) + 0.25) @ model.w
    found = distdual.predict(str(trained / "model"), str(trained / "data"), scores=True)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-12)
    assert found.score is not None
    assert found.score["accuracy"] > 0.8


def test_sums_are_those_of_a_loop_within_their_error() -> None:
    z = np.tile(X, (8, 1))[: COLUMNS + 70]
    beta = DRAW.normal(size=(len(z), 2))
    function = KernelFunction(kind="rbf", gamma=0.3)
    for rows in (DenseRows(X), as_csr(DenseRows(X), np.int32)):
        sums = KernelSums(function, DenseRows(z), 3)
        apart = ((X[:, None, :].astype(np.longdouble) - z[None, :, :]) ** 2).sum(axis=2)
        exact = np.exp(-np.longdouble(0.3) * apart) @ beta.astype(np.longdouble)
        norm = float(np.linalg.norm(X, axis=1).max())
        for k in range(2):
            off = np.abs(sums.of(rows, beta)[:, k] - exact[:, k]).max()
            assert off <= sums.error(beta[:, k], norm) < 1e-9


def test_workers_of_a_cluster_find_the_same_bounds(trained: Path) -> None:
    from distributed import Client, LocalCluster

    threads_as_workers = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(**threads_as_workers) as cluster, Client(cluster) as client:
        found = train(told(trained, "cluster"), client=client).certificate
        assert found["certified"]
        assert verify(str(trained / "cluster"), client=client).certified


def change(folder: Path, name: str, at: Any, by: float) -> None:
    path = folder / "model" / f"{name}.npy"
    changed = np.load(path)
    changed[at] += by
    np.save(path, changed)


@pytest.mark.parametrize(
    ("name", "at", "by", "finding"),
    [
        ("support/x", (3, 1), 0.01, "a row is not that of its example"),
        ("dual/alpha", 0, 100.0, "α is not feasible for 1 examples"),
        ("dual/example", -1, 1000, "does not name the examples of the support rows"),
        ("weights", 2, 0.5, "upper is .* when recomputed"),
        ("weights", slice(None), -1.0, "α is not feasible"),
    ],
)
def test_verify_notices_what_was_changed(folder: Path, name: str, at: Any, by: float, finding: str) -> None:
    change(folder, name, at, by)
    found = verify(str(folder / "model"), str(folder / "data"))
    assert not found.certified
    text = "\n".join(found.findings)
    assert f"{name}.npy is not what training wrote" in text
    assert re.search(finding, text), text


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"solver": {"schedule": "gap"}}, "solver.schedule is not possible with an exact kernel"),
        ({"prior": {"precision": 2.0}}, "prior is not possible"),
        ({"kernel": {"kind": "sigmoid"}}, "is not positive definite"),
        ({"kernel": {"kind": "polynomial", "coef0": -5.0}}, "coef0 = -5 is not positive definite"),
        ({"kernel": {"kind": "rbf", "map": "fourier"}}, "needs kernel.basis"),
        ({"solver": {"cache_bytes": 1000.0}}, "cached examples takes .* give kernel.basis"),
    ],
)
def test_what_an_exact_kernel_cannot_do_is_refused(trained: Path, sections: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(told(trained, "never", **sections))
    assert not (trained / "never").exists()


@pytest.mark.parametrize("forged", [{"kind": "sigmoid"}, {"kind": "polynomial", "coef0": -1.0}], ids=str)
def test_a_stored_kernel_that_proves_no_bound_is_refused(folder: Path, forged: dict[str, Any]) -> None:
    path = folder / "model" / "model.json"
    about = json.loads(path.read_text())
    about["problem"]["expansion"] |= forged
    path.write_text(json.dumps(about))
    with pytest.raises(InputError, match="proves no bound"):
        verify(str(folder / "model"), str(folder / "data"))


def test_a_forged_support_row_that_names_columns_twice_is_refused(folder: Path) -> None:
    """Its sum is the row of the data, so that rows agree, but its norm is not, and each kernel value comes out as 0."""
    model, n = folder / "model", len(X)
    shards = open_dataset(Location(str(folder / "data")))
    x = np.concatenate([shards.read(k).shard.x.values for k in range(shards.n_shards)])
    thrice = np.stack([np.full_like(x, 1e3), np.full_like(x, -1e3), x], axis=2)
    arrays = {
        "support/indptr": np.arange(0, thrice.size + 1, 9),
        "support/indices": np.tile(np.repeat(np.arange(3, dtype=np.int32), 3), n),
        "support/values": thrice.ravel(),
        "weights": np.where(Y == "out", 2.0, -2.0) * COST,
        "dual/alpha": 2.0 * COST,
        "dual/example": np.arange(n),
        "dual/key_indptr": np.zeros(n + 1, dtype=np.int64),
    }
    for name, array in arrays.items():
        np.save(model / f"{name}.npy", array)
    (model / "support" / "x.npy").unlink()
    about = json.loads((model / "model.json").read_text())
    about["problem"] |= {"bias": 0.0, "expansion": {**about["problem"]["expansion"], "support": n}}
    (model / "model.json").write_text(json.dumps(about))
    bound = 2.0 * float(COST.sum())
    claimed = {"lower": bound, "upper": bound, "gap": 0.0, "rounding": 1e-3, "support": n, "sha256": {}}
    certificate = json.loads((model / "certificate.json").read_text())
    (model / "certificate.json").write_text(json.dumps(certificate | claimed))
    with pytest.raises(InputError, match="row 0 names column 0 twice"):
        verify(str(model), str(folder / "data"))


@pytest.mark.parametrize("degree", [30, 100])
def test_a_kernel_that_overflows_is_refused(trained: Path, degree: int) -> None:
    kernel = {"kind": "polynomial", "gamma": 1e3, "degree": degree}
    with pytest.raises(InputError, match=rf"degree {degree} and coef0 0 overflows on rows as long as"):
        train(told(trained, "never", kernel=kernel))


class TestEstimator:
    def test_svc_agrees_with_scikit_learns_where_there_is_no_bias(self) -> None:
        from sklearn.svm import SVC

        model = distdual.SVC(kernel="rbf", gamma=0.4, C=2.0, fit_intercept=False, gap=1e-6)
        ours = model.fit(X, Y, sample_weight=COST)
        assert ours.certificate_["certified"]
        theirs = SVC(kernel="rbf", gamma=0.4, C=2.0, tol=1e-6).fit(X, Y, sample_weight=COST)
        assert np.mean(ours.predict(X) == theirs.predict(X)) > 0.9
        np.testing.assert_array_equal(ours.support_vectors_, X[ours.support_])
        assert len(ours.support_) == ours.dual_coef_.shape[1] == ours.certificate_["support"]

    def test_a_model_folder_gives_the_same_estimator(self, trained: Path, tmp_path: Path) -> None:
        found = distdual.SVC.from_model(str(trained / "model"))
        expected = distdual.predict(str(trained / "model"), str(trained / "data"), scores=True)
        np.testing.assert_allclose(found.decision_function(X), expected.scores, rtol=1e-12)
        found.save(tmp_path / "again")
        again = distdual.SVC.from_model(str(tmp_path / "again"))
        np.testing.assert_array_equal(again.decision_function(X), found.decision_function(X))
        assert found.get_params()["n_components"] is None

    @pytest.mark.parametrize("name", ["SVC", "SVR"])
    def test_several_classes_and_targets(self, name: str, tmp_path: Path) -> None:
        y = np.array(["a", "b", "c"])[CLASS] if name == "SVC" else TARGET
        made = getattr(distdual, name)(kernel="rbf", gamma=0.4, C=5.0, intercept_scaling=0.5)
        model = made.fit(X, y)
        assert model.certificate_["certified"]
        assert model.score(X, y) > 0.8
        assert model.dual_coef_.shape == (3 if name == "SVC" else 1, len(model.support_))
        values = model.decision_function(X) if name == "SVC" else model.predict(X)
        apart = ((X[:, None] - model.support_vectors_) ** 2).sum(axis=2)
        by_hand = np.exp(-0.4 * apart) @ model.dual_coef_.T + model.intercept_
        np.testing.assert_allclose(values, by_hand if name == "SVC" else by_hand[:, 0], rtol=1e-5, atol=1e-5)
        model.save(tmp_path / "model")
        again = getattr(distdual, name).from_model(str(tmp_path / "model"))
        np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_pieces_cover_every_example_once_and_do_not_depend_on_the_cluster() -> None:
    first = np.array([0, 3, 3 + LEAST, 3 + 12 * LEAST])
    for most in (None, 7):
        seen = [first[shard] + np.arange(begin, end) for shard, begin, end in pieces_of_shards(first, most)]
        np.testing.assert_array_equal(np.concatenate(seen), np.arange(first[-1]))
    assert max(end - begin for _, begin, end in pieces_of_shards(first, 7)) == 7
