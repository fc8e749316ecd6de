"""Losses over a whole data set are trained to a certificate, verified, swept, resumed and predicted."""

import json

import numpy as np
import pytest
import scipy.sparse
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.svm import LinearSVC

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError, Suspended
from distdual.model.io import load_model

C = 0.01


def rare(n=300):
    """A tenth of the examples is positive."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 4)).astype(np.float32)
    score = x @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=n)
    return x, score > np.quantile(score, 0.9)


def config_of(folder, **problem):
    return {
        "data": {"url": str(folder / "data")},
        "problem": {"kind": "multivariate", **problem},
        "solver": {"C": C, "gap": 1e-3},
        "output": {"url": str(folder / "model"), "overwrite": True},
    }


@pytest.fixture
def data(tmp_path):
    x, y = rare()
    prepare_arrays(x, np.where(y, 1, -1), tmp_path / "data", "binary", shard_bytes=1500)
    return tmp_path


def pairwise_objective(x, y):
    """P(w*) of the AUC loss, by LinearSVC on all pairs."""
    pairs = (x[y][:, None] - x[~y][None]).reshape(-1, x.shape[1]).astype(float)
    sign, cost = np.where(np.arange(len(pairs)) % 2, 1.0, -1.0), C * len(y) / len(pairs)
    peer = LinearSVC(loss="hinge", C=cost, fit_intercept=False, tol=1e-6, max_iter=100_000)
    w = peer.fit(sign[:, None] * pairs, sign).coef_[0]
    return 0.5 * float(w @ w) + cost * float(np.maximum(0.0, 1.0 - pairs @ w).sum())


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_auc_has_the_optimum_of_all_pairs(tmp_path, sparse):
    x, y = rare()
    features = scipy.sparse.csr_matrix(x) if sparse else x
    prepare_arrays(features, np.where(y, 1, -1), tmp_path / "data", "multivariate", shard_bytes=3000)
    config = config_of(tmp_path, loss="auc")
    config["solver"]["gap"] = 2e-4
    found = distdual.train(config).certificate
    assert found["certified"]
    expected = pairwise_objective(x, y)
    assert found["lower"] <= expected * (1 + 1e-6)
    assert found["upper"] == pytest.approx(expected, rel=1e-3)
    checked = distdual.verify(str(tmp_path / "model"))
    assert checked.certified, checked.findings
    assert checked.lower == pytest.approx(found["lower"], rel=1e-9)


@pytest.mark.parametrize("problem", [{"loss": "f1", "bias": 1.0}, {"loss": "recall@k", "k": 40}, {"loss": "prbep"}])
def test_other_losses_are_certified_and_verified(data, problem):
    found = distdual.train(config_of(data, **problem))
    assert found.certificate["certified"]
    assert found.certificate["bytes_read"] > 0
    assert distdual.verify(str(data / "model")).certified


def test_predictions_are_classes_for_f1_and_scores_for_auc(data):
    _, y = rare()
    distdual.train(config_of(data, loss="f1", bias=1.0))
    found = distdual.predict(str(data / "model"), str(data / "data"))
    assert found.score["f1"] == pytest.approx(f1_score(y, found.labels == 1))
    distdual.train(config_of(data, loss="auc"))
    found = distdual.predict(str(data / "model"), str(data / "data"))
    assert roc_auc_score(y, found.labels) > 0.9
    assert found.score["auc"] > 0.9  # over the pairs within shards


def test_a_support_constraint_that_is_changed_lowers_the_proven_bound(data):
    """Whatever weights a key names, the offender there is a constraint: only D(α) can fall."""
    distdual.train(config_of(data, loss="auc"))
    values = np.load(data / "model" / "dual" / "key_values.npy")
    np.save(data / "model" / "dual" / "key_values.npy", (-values.view(np.float64)).view(np.int32))
    checked = distdual.verify(str(data / "model"))
    assert not checked.certified
    assert checked.lower <= load_model(str(data / "model")).certificate["upper"]


def test_alpha_that_overflows_proves_nothing(data):
    distdual.train(config_of(data, loss="auc"))
    path = data / "model" / "dual" / "alpha.npy"
    np.save(path, np.full_like(np.load(path), 1e308))
    checked = distdual.verify(str(data / "model"))
    assert not checked.certified
    assert any("α is not feasible" in finding for finding in checked.findings)


def test_a_sweep_leaves_folds_out(data):
    found = distdual.sweep(config_of(data, loss="auc"), C="0.001,0.01", folds=2)
    assert found.score == "auc"
    assert all(point.certified for points in found.folds for point in points)


def test_a_suspended_run_is_resumed_to_the_same_weights(data):
    whole = distdual.train(config_of(data, loss="auc")).model.w
    calls = iter(range(10**6))
    with pytest.raises(Suspended):
        distdual.train(config_of(data, loss="auc"), terminated=lambda: next(calls) >= 5)
    again = distdual.train(config_of(data, loss="auc"), resume=True)
    np.testing.assert_array_equal(again.model.w, whole)
    assert json.loads((data / "model" / "certificate.json").read_text())["certified"]


@pytest.mark.parametrize("solver", [{"slack": "block:4"}, {"slack": "all", "offender_cache": 1}])
def test_other_slacks_are_refused(data, solver):
    config = config_of(data, loss="auc")
    config["solver"] |= solver
    with pytest.raises(InputError, match=r"one slack for all examples|offender_cache"):
        distdual.train(config)


@pytest.mark.parametrize("solver", [{"mode": "async"}, {"schedule": "ratio:3"}, {"stream": "yes"}], ids=str)
def test_settings_of_other_loops_are_refused(data, solver):
    config = config_of(data, loss="auc")
    config["solver"] |= solver
    with pytest.raises(
        InputError, match=f"solver.{next(iter(solver))} = .* is not possible with a multivariate problem"
    ):
        distdual.train(config)


def test_costs_of_examples_are_refused(tmp_path):
    x, y = rare(50)
    prepare_arrays(x, np.where(y, 1, -1), tmp_path / "data", "multivariate", cost=np.ones(50))
    with pytest.raises(InputError, match="no costs of examples"):
        distdual.train(config_of(tmp_path, loss="auc"))
