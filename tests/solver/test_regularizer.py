"""Priors: R(w) and its conjugate, the config's [prior], and answers that are known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from distdual.solver.regularizer import Prior
from tests.build import examples


def some_prior(kind: str) -> Prior:
    rng = np.random.default_rng(7)
    root = rng.normal(size=(4, 4))
    precision = {"diagonal": rng.uniform(0.5, 2, 4), "full": root @ root.T + np.eye(4), "plain": None}[kind]
    mean = None if kind == "plain" else rng.normal(size=4)
    return Prior(4, mean, precision, np.array([1, 3]) if kind == "diagonal" else None)


@pytest.mark.parametrize("kind", ["plain", "diagonal", "full"])
def test_the_conjugate_is_the_supremum_and_its_gradient_attains_it(kind: str) -> None:
    rng = np.random.default_rng(0)
    prior = some_prior(kind)
    for _ in range(50):
        v = rng.normal(size=4) * 3
        w = prior.weights(v)
        best = prior.conjugate(v)
        assert best == pytest.approx(v @ w - prior.penalty(w))
        others = [prior.feasible(w + rng.normal(size=4) * scale) for scale in (1e-3, 0.1, 1.0) for _ in range(10)]
        assert all(v @ other - prior.penalty(other) <= best + 1e-9 for other in others)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": np.zeros(3)}, r"prior.mean must be 4 finite numbers.*\(3,\)"),
        ({"precision": np.array([1.0, 1, 0, 1])}, "must be positive, got 0.0 for weight 2"),
        ({"precision": np.array([1.0, 1, 5e-324, 1])}, r"must be 1e-100 to 1e\+100, got 4.94066e-324"),
        ({"precision": np.diag([1.0, 1, 1e200, 1])}, r"must be 1e-100 to 1e\+100, got 1e\+200"),
        ({"precision": np.zeros((4, 4)) - np.eye(4)}, "positive definite"),
        ({"precision": np.arange(16.0).reshape(4, 4)}, "symmetric"),
        ({"precision": np.eye(3)}, r"shape \(4,\) or \(4, 4\), got \(3, 3\)"),
        ({"nonnegative": np.array([0, 4])}, "names weight 4 of 4"),
    ],
)
def test_a_prior_that_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Prior(4, **options)


def train(tmp_path: Path, name: str, prior: dict[str, Any], **solver: Any) -> distdual.Result:
    return distdual.train(
        {
            "data": {"url": str(tmp_path / "data")},
            "problem": {"kind": "binary"},
            "solver": {"C": 0.1, "gap": 1e-5, **solver},
            "prior": prior,
            "output": {"url": str(tmp_path / name)},
        }
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = examples(2, 300, 6)
    prepare_arrays(made.x, made.y, str(tmp_path / "data"), "binary", shard_bytes=2000)
    return tmp_path


def test_a_prior_from_files_is_certified_and_verified(data: Path) -> None:
    rng = np.random.default_rng(1)
    root = rng.normal(size=(6, 6))
    np.save(data / "precision.npy", root @ root.T + np.eye(6))
    np.save(data / "mean.npy", rng.normal(size=6))
    told = {"mean": str(data / "mean.npy"), "precision": str(data / "precision.npy"), "nonnegative": [0, "2:5"]}
    result = train(data, "model", told)
    checked = distdual.verify(str(data / "model"))
    assert checked.certified, checked.findings
    assert checked.lower == pytest.approx(result.certificate["lower"], rel=1e-9)
    assert (result.model.w[[0, 2, 3, 4]] >= 0).all()


def test_a_very_precise_prior_returns_its_mean_and_a_tiny_C_too(data: Path) -> None:
    """Transfer: with nothing to gain from the data, the weights are another model's."""
    other = train(data, "other", {}).model.w
    for name, prior, C in (("precise", {"precision": 1e9}, 0.1), ("tiny", {}, 1e-12)):
        found = train(data, name, {"mean": str(data / "other"), **prior}, C=C).model.w
        np.testing.assert_allclose(found, other, atol=1e-6)


def test_scaling_the_precision_is_scaling_C(data: Path) -> None:
    """R/λ + C Σ = (R + λC Σ)/λ: the weights are those of C/λ, and P is λ times as large."""
    scaled = train(data, "scaled", {"precision": 4.0}, C=0.4)
    plain = train(data, "plain", {}, C=0.1)
    assert scaled.certificate["lower"] == pytest.approx(4 * plain.certificate["lower"], rel=1e-4)
    np.testing.assert_allclose(scaled.model.w, plain.model.w, atol=0.02)


def test_a_model_that_breaks_a_sign_or_a_multiplier_is_not_verified(data: Path) -> None:
    np.save(data / "precision.npy", np.eye(6) + 0.1)
    train(data, "model", {"precision": str(data / "precision.npy"), "nonnegative": ["0:6"]})
    beta = np.load(data / "model" / "dual" / "beta.npy")
    np.save(data / "model" / "dual" / "beta.npy", -1.0 - beta)
    with pytest.raises(InputError, match=r"beta\.npy: -\S+ is below 0"):
        distdual.verify(str(data / "model"))
    np.save(data / "model" / "dual" / "beta.npy", beta)
    w = np.load(data / "model" / "weights.npy")
    np.save(data / "model" / "weights.npy", w - 1.0)
    assert "a weight is negative" in " ".join(distdual.verify(str(data / "model")).findings)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ({"precision": -1.0}, "prior.precision must be positive"),
        ({"nonnegative": ["5:2"]}, "ranges such as"),
        ({"nonnegative": [-1]}, "takes numbers from 0"),
        ({"nonnegative": [9]}, "names weight 9 of 6"),
        ({"mean": "nowhere.npy"}, "nowhere.npy: not found"),
    ],
)
def test_a_config_with_a_bad_prior_is_refused(data: Path, prior: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(data, "model", prior)
    assert not (data / "model").exists()
