"""`prepare --map`: the mapped data set is stored, and raw rows are mapped wherever they come in later."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import distdual
from distdual import distdual_check, train, verify
from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_arrays, prepare_frame, prepare_structures
from distdual.data.preprocess.preprocessing import of_dataset
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows
from distdual.model.onnx_export import export_onnx
from distdual.report.weights import largest_weights
from tests.shell import assert_refused, call

DRAW = np.random.default_rng(11)
X = DRAW.normal(size=(240, 3)).astype(np.float32)
RING = np.where((X**2).sum(axis=1) > 2.0, "out", "in")
KERNEL = {"kind": "rbf", "gamma": 0.5, "basis": 30}


def config(folder: Path, **sections: Any) -> dict[str, Any]:
    told = {"data": {"url": str(folder / "data" / "train")}, "problem": {"kind": "binary", "bias": 1.0}}
    return {**told, "output": {"url": str(folder / "model")}, "solver": {"C": 10.0}, **sections}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mapped")
    options = {"shard_bytes": 4000, "test_fraction": 0.2, "scale": "unit-variance", "shuffle": 3, "map": KERNEL}
    prepare_arrays(X, RING, str(folder / "data"), "binary", **options)
    assert train(config(folder)).certificate["certified"]
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def stored(place: Path) -> Any:
    dataset = open_dataset(Location(str(place)))
    return dataset, np.concatenate([dataset.read(s).shard.x.values for s in range(dataset.n_shards)])


def test_what_is_stored_is_the_map_of_scaled_rows(trained: Path) -> None:
    dataset, rows = stored(trained / "data" / "train")
    made = of_dataset(dataset)
    assert made.map is not None
    assert dataset.n_features == 30
    raw = DenseRows((X / made.factors).astype(np.float32))
    every = made.map.feature_map.rows(raw).values
    assert {row.tobytes() for row in rows} < {row.tobytes() for row in every}


def test_the_landmarks_are_rows_of_the_training_part(trained: Path) -> None:
    made = of_dataset(open_dataset(Location(str(trained / "data" / "train"))))
    assert made.map is not None
    landmarks = made.map.feature_map.landmarks  # type: ignore[attr-defined]
    on_them = made.map.feature_map.rows(landmarks).values
    _, rows = stored(trained / "data" / "train")
    _, held_out = stored(trained / "data" / "test")
    assert {row.tobytes() for row in on_them} <= {row.tobytes() for row in rows}
    assert not {row.tobytes() for row in on_them} & {row.tobytes() for row in held_out}


def test_it_is_the_problem_that_a_run_with_that_map_has(trained: Path) -> None:
    """Solved to a gap of 1e-6 both on stored features and on those computed in memory, here by hand."""
    _, rows = stored(trained / "data" / "train")
    model = train(config(trained, solver={"C": 1.0, "gap": 1e-6}, output={"url": str(trained / "exact")})).model
    dataset = open_dataset(Location(str(trained / "data" / "train")))
    y = np.concatenate([dataset.read(s).shard.y for s in range(dataset.n_shards)])
    by_hand = distdual.SVC(C=1.0, gap=1e-6).fit(rows, np.array(dataset.classes)[y])
    assert model.certificate["lower"] <= by_hand.certificate_["upper"]
    assert by_hand.certificate_["lower"] <= model.certificate["upper"]


def test_both_checks_recompute_the_certificate(trained: Path) -> None:
    found = verify(str(trained / "model"))
    assert found.findings == ()
    assert found.certified
    assert distdual_check.main([str(trained / "model")]) == 0
    kernel = json.loads((trained / "model" / "certificate.json").read_text())["kernel"]
    assert "prepare --map" in kernel["certifies"]
    assert 0 < kernel["relative_error"] < 0.3


def test_raw_rows_are_mapped_to_be_predicted(trained: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "raw.npz", x=X, y=RING)
    found = distdual.predict(str(trained / "model"), str(tmp_path / "raw.npz"), scores=True)
    assert found.score is not None
    assert found.score["accuracy"] > 0.95
    estimator = distdual.SVC.from_model(str(trained / "model"))
    assert estimator.n_features_in_ == 3
    assert_allclose(estimator.decision_function(X), found.scores, rtol=1e-12, atol=1e-12)
    (like,) = prepare_arrays(X, RING, str(tmp_path / "like"), "binary", like=str(trained / "model"))
    on_data_set = distdual.predict(str(trained / "model"), like.url, scores=True)
    assert_array_equal(on_data_set.scores, found.scores)
    assert estimator.score(like.url) == pytest.approx(found.score["accuracy"])


def test_an_estimator_fitted_on_the_data_set_takes_raw_rows(trained: Path) -> None:
    estimator = distdual.SVC(C=10.0).fit(str(trained / "data" / "train"))
    assert estimator.coef_.shape == (1, 30)
    assert estimator.score(X, RING) > 0.95
    assert "prepare --map" in estimator.certificate_["kernel"]["certifies"]


def test_raw_data_are_refused_and_say_what_to_do(trained: Path, tmp_path: Path) -> None:
    (raw,) = prepare_arrays(X, RING, str(tmp_path / "raw"), "binary")
    with pytest.raises(InputError, match=r"unchanged features .* with a feature map and scale unit-variance .*--like"):
        distdual.predict(str(trained / "model"), raw.url)
    with pytest.raises(InputError, match="the arrays has 4 features, more than the n_features of 3"):
        prepare_arrays(np.ones((2, 4)), RING[:2], str(tmp_path / "wide"), "binary", like=str(trained / "model"))


def test_appended_rows_are_mapped(folder: Path) -> None:
    place = folder / "data" / "train"
    before = stored(place)[0].n_examples
    prepare_arrays(X[:50], RING[:50], str(place), "binary", append=True, scale="unit-variance")
    dataset, rows = stored(place)
    made = of_dataset(dataset)
    assert made.map is not None
    raw = DenseRows((X[:50] / made.factors).astype(np.float32))
    assert_array_equal(rows[before:], made.map.feature_map.rows(raw).values)
    assert verify(str(folder / "model")).certified


def test_a_changed_map_is_noticed(folder: Path) -> None:
    path = folder / "model" / "preprocessing" / "map.json"
    told = json.loads(path.read_text())
    told["gamma"] = 0.51
    path.write_text(json.dumps(told))
    with pytest.raises(InputError, match=r"map.json: is not what model.json describes"):
        distdual.predict(str(folder / "model"), str(folder / "data" / "test"))


@pytest.mark.parametrize("kind", ["multiclass", "regression", "ordinal", "ranking", "chain", "multivariate"])
def test_every_problem_of_rows_takes_mapped_data(kind: str, tmp_path: Path) -> None:
    radius = (X.astype(np.float64) ** 2).sum(axis=1)
    y = radius if kind == "regression" else np.digitize(radius, [1.5] if kind == "multivariate" else [1.5, 4.0])
    lengths = np.full(48, 5) if kind in ("chain", "ranking") else None
    options = {"shard_bytes": 4000, "lengths": lengths, "map": KERNEL}
    prepare_arrays(X, y, str(tmp_path / "data" / "train"), kind, **options)
    told = config(tmp_path, problem={"kind": kind}, solver={"C": 1.0, "gap": 1e-2})
    assert train(told).certificate["certified"]
    assert verify(str(tmp_path / "model")).findings == ()
    if kind in ("ranking", "chain"):
        estimator = getattr(distdual, {"ranking": "SVMRank", "chain": "ChainSVM"}[kind]).from_model(
            str(tmp_path / "model")
        )
        if kind == "ranking":
            assert estimator.score(X, y, qid=np.repeat(np.arange(48), 5)) > 0.8
        else:
            assert estimator.score(X, y, lengths=lengths) > 0.8


def test_columns_of_a_table_are_mapped(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "word": np.where(X[:, 0] > 0, "up", "down")})
    frame["y"] = RING
    prepare_frame(frame, str(tmp_path / "data" / "train"), "binary", label="y", map=KERNEL)
    model = train(config(tmp_path)).model
    assert model.feature_names is None
    assert largest_weights(model) == []
    estimator = distdual.SVC.from_model(model)
    assert estimator.score(frame.drop(columns="y"), RING) > 0.9
    with pytest.raises(InputError, match="mapped features cannot be exported"):
        export_onnx(model, str(tmp_path / "model.onnx"))


def test_the_command_reads_the_section_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "raw.npz", x=X, y=RING)
    (tmp_path / "kernel.toml").write_text('[kernel]\nkind = "rbf"\ngamma = 0.5\nbasis = 30\n')
    source, place = str(tmp_path / "raw.npz"), str(tmp_path / "data")
    call(capsys, "prepare", source, place, "--problem", "binary", "--map", str(tmp_path / "kernel.toml"))
    assert "nystroem, rbf kernel: 3 to 30 features" in call(capsys, "info", place).out
    (tmp_path / "more.toml").write_text('[kernel]\nkind = "rbf"\nbasis = 30\n[solver]\nC = 1.0\n')
    told = ["prepare", source, place, "--problem", "binary", "--overwrite"]
    assert_refused(call(capsys, *told, "--map", str(tmp_path / "more.toml")), "unknown key solver")


def test_a_kernel_on_top_of_mapped_features_is_refused(trained: Path) -> None:
    with pytest.raises(InputError, match="features were mapped by `prepare --map`; leave the kernel out"):
        train(config(trained, kernel=KERNEL, output={"url": str(trained / "never")}))
    for parameters in ({"n_components": 5}, {}):
        with pytest.raises(InputError, match="features were mapped by `prepare --map`"):
            distdual.SVC(kernel="rbf", **parameters).fit(str(trained / "data" / "train"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"map": {"kind": "rbf"}}, "map needs kernel.basis, the number of mapped features"),
        ({"map": {**KERNEL, "basis": "some/data"}}, "map needs kernel.basis, the number of mapped features"),
        ({"map": {**KERNEL, "wide": 1}}, "unknown key kernel.wide"),
        ({"map": KERNEL, "append": True}, "append takes the map of the data set itself"),
        ({"map": KERNEL, "unlabelled": True}, "unlabelled rows are mapped as those of a model"),
        ({"map": {**KERNEL, "kind": "sigmoid", "coef0": -1.0, "gamma": 1.0}}, "is not positive definite"),
    ],
)
def test_options_that_make_no_map_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        prepare_arrays(X, RING, str(tmp_path / "never"), "binary", **options)
    assert not (tmp_path / "never").exists()


def test_data_with_a_map_of_their_own_take_no_other(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="decides how features are mapped; leave map out"):
        prepare_arrays(X, RING, str(tmp_path / "never"), "binary", like=str(trained / "model"), map=KERNEL)
    with pytest.raises(InputError, match="leave options about features"):
        prepare_structures([(X[0], 1)], str(tmp_path / "never"), map=KERNEL)
