"""Low-rank kernels: trained, certified, verified and applied on mapped features, wherever the map is computed."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.kernel_approximation import Nystroem

import distdual
from distdual import train, verify
from distdual.cluster import threads
from distdual.cluster.resources import Resources
from distdual.config import ClusterConfig
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.feature_maps.nystroem import NystroemMap
from distdual.model.io import load_model
from distdual.problems.latent.bags import Latent
from distdual.problems.mapped import Mapped, check_takes_map
from tests import naive
from tests.s3_server import S3Server

DRAW = np.random.default_rng(11)
X = DRAW.normal(size=(150, 3)).astype(np.float32)
RING = np.where((X**2).sum(axis=1) > 2.0, "out", "in")
KERNEL = {"kind": "rbf", "gamma": 0.5, "basis": 25}


def told(folder: Path, name: str = "model", **sections: Any) -> dict[str, Any]:
    return {
        "data": {"url": str(folder / "data")},
        "problem": {"kind": "binary", "bias": 1.0},
        "solver": {"gap": 1e-3, "stream": "no"},
        "kernel": KERNEL,
        "output": {"url": str(folder / name)},
        **sections,
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set in several shards, and a certified model of it."""
    folder = tmp_path_factory.mktemp("mapped")
    prepare_arrays(X, RING, str(folder / "data"), "binary", shard_bytes=600)
    assert train(told(folder)).certificate["certified"]
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy to be tampered with."""
    shutil.copytree(trained, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_kernel_separates_what_no_line_does(trained: Path) -> None:
    found = distdual.predict(str(trained / "model"), str(trained / "data"))
    assert found.score is not None
    assert found.score["accuracy"] > 0.95
    assert distdual.SVC().fit(X, RING).score(X, RING) < 0.8


def test_the_bounds_enclose_the_optimum_of_the_mapped_problem(trained: Path) -> None:
    model = load_model(Location(str(trained / "model")))
    assert isinstance(model.problem, Mapped)
    rows = model.problem.feature_map.rows(distdual.kernels.rows.DenseRows(X)).values.astype(np.float64)
    y = np.where(RING == "out", 1.0, -1.0)
    signed = y[:, None] * np.hstack([rows, np.ones((len(y), 1))])
    best = naive.optimum(naive.Program(signed, np.ones(len(y)), np.arange(len(y)), np.ones(len(y))))
    assert model.certificate["lower"] <= best.upper
    assert model.certificate["upper"] >= best.lower


def test_verify_recomputes_the_certificate(trained: Path) -> None:
    found = verify(str(trained / "model"))
    assert found.findings == ()
    assert found.certified
    kernel = json.loads((trained / "model" / "certificate.json").read_text())["kernel"]
    assert "mapped features" in kernel["certifies"]
    assert 0 < kernel["relative_error"] < 0.2
    assert kernel["sample"] == len(X)


@pytest.mark.parametrize("name", ["landmarks_x", "factor"])
def test_verify_notices_a_changed_map(folder: Path, name: str) -> None:
    path = folder / "model" / "map" / f"{name}.npy"
    changed = np.load(path)
    changed[3, 2] += 0.01
    np.save(path, changed)
    found = verify(str(folder / "model"), str(folder / "data"))
    assert not found.certified
    assert any(f"map/{name}.npy is not what training wrote" in finding for finding in found.findings)
    assert any("when recomputed" in finding for finding in found.findings)


def test_a_damaged_map_is_refused(folder: Path) -> None:
    path = folder / "model" / "map" / "factor.npy"
    np.save(path, np.load(path).T)
    with pytest.raises(InputError, match=r"factor\.npy: expected a lower triangular matrix"):
        load_model(Location(str(folder / "model")))
    np.save(path, np.eye(3))
    with pytest.raises(InputError, match=r"factor.npy: expected float64 of shape 25×25"):
        load_model(Location(str(folder / "model")))


def test_a_map_whose_features_overflow_is_refused(folder: Path) -> None:
    path = folder / "model" / "map" / "factor.npy"
    np.save(path, 1e-200 * np.load(path))
    with pytest.raises(InputError, match="the nystroem map gives a number that is NaN or above"):
        distdual.predict(str(folder / "model"), str(folder / "data"))


def test_mapped_on_the_fly_or_kept_the_weights_are_the_same_to_the_last_bit(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing fits in memory, so each pass reads raw shards and maps them again."""
    kept = load_model(Location(str(trained / "model")))
    monkeypatch.setattr(threads, "of_threads", lambda: Resources(1, 2, None, 0.0))
    streamed = train(told(trained, "streamed")).model
    assert streamed.certificate["bytes_read"] > 2 * kept.certificate["bytes_read"]
    np.testing.assert_array_equal(streamed.w, kept.w)


def test_workers_of_a_cluster_find_the_same_weights(trained: Path) -> None:
    from distributed import Client, LocalCluster

    kept = load_model(Location(str(trained / "model")))
    threads_as_workers = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(**threads_as_workers) as cluster, Client(cluster) as client:
        found = train(told(trained, "cluster"), client=client).model
        assert verify(str(trained / "cluster"), client=client).certified
    np.testing.assert_array_equal(found.w, kept.w)


NO_PAUSE = {f"distributed.worker.memory.{each}": False for each in ("target", "spill", "pause", "terminate")}


def test_a_worker_with_less_memory_than_the_mapped_rows_maps_those_on_s3_in_each_pass(
    s3: S3Server, tmp_path: Path
) -> None:
    """A worker of 40 MB and 41 MB of mapped rows. It is a thread of this process, so that Dask must not count this."""
    import dask
    from distributed import Client, LocalCluster

    n, basis, url = 5000, 2048, s3.url()
    x = np.random.default_rng(5).normal(size=(n, 8)).astype(np.float32)
    y = np.where((x**2).sum(axis=1) > 8.0, 1, -1)
    prepare_arrays(x, y, url, "binary", shard_bytes=8 * 4 * 500, storage_options=s3.storage_options)
    common = {
        "data": {"url": url, "storage_options": s3.storage_options},
        "kernel": {"kind": "rbf", "gamma": 0.1, "basis": basis, "map": "fourier"},
        "solver": {"gap": 1e-9, "max_passes": 3, "C": 1e-3, "slack": "block:50"},
    }
    kept = train(told(tmp_path, "kept", **common)).model
    small = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with (
        dask.config.set(NO_PAUSE),
        LocalCluster(**small, memory_limit="40MB") as cluster,
        Client(cluster) as client,
    ):
        streamed = train(told(tmp_path, "streamed", **common), client=client).model
    scans = streamed.certificate["oracle_calls"] // n
    assert 4 * n * basis > 40e6
    assert scans >= streamed.certificate["passes"] == 3
    assert streamed.certificate["bytes_read"] == scans * kept.certificate["bytes_read"]
    np.testing.assert_array_equal(streamed.w, kept.w)


def test_landmarks_may_be_a_data_set(trained: Path, tmp_path: Path) -> None:
    prepare_arrays(X[:20], RING[:20], str(tmp_path / "landmarks"), "binary")
    kernel = {**KERNEL, "basis": str(tmp_path / "landmarks")}
    problem = train(told(trained, "given", kernel=kernel)).model.problem
    assert isinstance(problem, Mapped)
    assert isinstance(problem.feature_map, NystroemMap)
    np.testing.assert_array_equal(np.sort(problem.feature_map.landmarks.values, axis=0), np.sort(X[:20], axis=0))


def test_a_run_that_replaces_another_kind_of_map_leaves_nothing_of_it(folder: Path) -> None:
    fourier = {"kind": "laplacian", "basis": 40, "map": "fourier", "gamma": 0.3}
    train(told(folder, kernel=fourier, output={"url": str(folder / "model"), "overwrite": True}))
    assert [path.name for path in (folder / "model" / "map").iterdir()] == ["frequencies.npy"]
    assert verify(str(folder / "model"), str(folder / "data")).findings == ()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ({"basis": 0}, "kernel.basis must be positive"),
        ({"gamma": "wide"}, "kernel.gamma must be one of"),
        ({"gamma": -1.0}, "kernel.gamma must be positive and finite"),
        ({"map": "fourier", "landmarks": "k-means++"}, "random features have no landmarks"),
        ({"kind": "sigmoid", "gamma": 1.0, "coef0": -1.0}, "sigmoid kernel .* is not positive definite on the basis"),
        ({"kind": "polynomial", "map": "fourier", "basis": 10}, "needs a kernel of x − z"),
    ],
)
def test_what_makes_no_map_is_refused(trained: Path, kernel: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(told(trained, "never", kernel={**KERNEL, **kernel}))
    assert not (trained / "never").exists()


def test_a_problem_whose_examples_are_not_rows_takes_no_kernel() -> None:
    with pytest.raises(InputError, match=r"a latent problem takes no \[kernel\]"):
        check_takes_map(Latent(n_features=3, classes=("no", "yes")))


MEASURES = {"multiclass": "accuracy", "ordinal": "accuracy", "ranking": "pairwise_accuracy"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["multiclass", "regression", "chain", "ranking", "ordinal"])
def test_every_problem_of_rows_takes_a_kernel(kind: str, tmp_path: Path) -> None:
    radius = (X.astype(np.float64) ** 2).sum(axis=1)
    y = radius if kind == "regression" else np.digitize(radius, [1.5, 4.0])
    lengths = np.full(30, 5) if kind in ("chain", "ranking") else None
    prepare_arrays(X, y, str(tmp_path / "data"), kind, lengths=lengths, shard_bytes=600)
    found = train(told(tmp_path, problem={"kind": kind}, solver={"gap": 1e-2, "C": 1.0})).certificate
    assert found["certified"], found["reason"]
    assert verify(str(tmp_path / "model")).findings == ()
    if kind in MEASURES:
        every, none = {**KERNEL, "basis": len(X)}, {}
        score, best, linear = (measured(kind, tmp_path, kernel) for kernel in (KERNEL, every, none))
        assert score > best - 0.1  # of all rows as landmarks: the exact kernel
        assert score > linear + 0.4


def measured(kind: str, folder: Path, kernel: dict[str, Any]) -> float:
    """How well a model with this kernel scores on the data that it was trained on; linear, if there is none."""
    name = f"basis-{kernel.get('basis', 'none')}"
    config = told(folder, name, problem={"kind": kind}, solver={"gap": 1e-2, "C": 1.0}, kernel=kernel)
    train(config if kernel else {key: section for key, section in config.items() if key != "kernel"})
    found = distdual.predict(str(folder / name), str(folder / "data")).score
    assert found is not None
    return float(found[MEASURES[kind]])


class TestEstimators:
    def test_svc_takes_the_parameters_of_scikit_learn(self) -> None:
        found = distdual.SVC(kernel="rbf", gamma="scale", n_components=40, gap=1e-3).fit(X, RING)
        assert found.score(X, RING) > 0.95
        assert found.coef_.shape == (1, 40)
        assert found.certificate_["certified"]
        assert found.certificate_["kernel"]["relative_error"] < 0.2
        assert found._problem.feature_map.function.gamma == pytest.approx(1 / (3 * X.astype(float).var()))

    def test_svr_fits_what_is_not_linear(self) -> None:
        y = (X[:, 0] * X[:, 1]).astype(np.float64)
        found = distdual.SVR(kernel="poly", degree=2, coef0=1.0, gamma=0.5, n_components=30, epsilon=0.01).fit(X, y)
        assert found.coef_.shape == (10,)  # all that products of three features can span
        assert found.score(X, y) > 0.9 > distdual.SVR().fit(X, y).score(X, y)

    def test_several_classes_agree_with_scikit_learns_features(self) -> None:
        y = np.digitize((X**2).sum(axis=1), [1.5, 4.0])
        ours = distdual.SVC(kernel="rbf", gamma=0.5, n_components=len(X), gap=1e-6).fit(X, y)
        theirs = Nystroem(kernel="rbf", gamma=0.5, n_components=len(X), random_state=0).fit(X)
        linear = distdual.SVC(gap=1e-6).fit(theirs.transform(X).astype(np.float32), y)
        scores = ours.decision_function(X), linear.decision_function(theirs.transform(X).astype(np.float32))
        np.testing.assert_allclose(*scores, atol=5e-3)

    def test_a_model_folder_gives_the_same_estimator(self, trained: Path, tmp_path: Path) -> None:
        from scipy.sparse import csr_matrix

        found = distdual.SVC.from_model(str(trained / "model"))
        labels = distdual.predict(str(trained / "model"), str(trained / "data"), scores=True)
        np.testing.assert_allclose(found.decision_function(X), labels.scores, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.decision_function(csr_matrix(X)), labels.scores, rtol=1e-6, atol=1e-6)
        assert found.get_params()["kernel"] == "rbf"
        found.save(tmp_path / "again")
        np.testing.assert_array_equal(
            distdual.SVC.from_model(str(tmp_path / "again")).decision_function(X), found.decision_function(X)
        )

    def test_later_examples_are_mapped_as_the_first_ones(self) -> None:
        found = distdual.SVC(kernel="rbf", n_components=15)
        found.partial_fit(X[:80], RING[:80])
        before = found._problem.feature_map
        found.partial_fit(X[80:], RING[80:])
        assert found._problem.feature_map is before
        assert found.score(X, RING) > 0.9

    def test_the_number_of_features_must_be_positive(self) -> None:
        with pytest.raises(InputError, match="n_components must be positive"):
            distdual.SVC(kernel="rbf", n_components=0).fit(X, RING)

    def test_a_parameter_without_effect_warns_and_unknown_kernels_are_refused(self) -> None:
        with pytest.warns(UserWarning, match="n_components has no effect"):
            distdual.SVC(n_components=10).fit(X, RING)
        with pytest.raises(InputError, match=r"kernel must be one of 'linear', 'rbf', .*, got 'gauss'"):
            distdual.SVC(kernel="gauss").fit(X, RING)


def test_a_dry_run_counts_mapped_features(trained: Path) -> None:
    from distdual.config import from_table
    from distdual.coordinator.dry_run import dry_run

    found = dry_run(from_table(told(trained)))
    assert found.weights == 27  # an even number of stand-in features, and the bias
    assert ClusterConfig() == from_table(told(trained)).cluster
