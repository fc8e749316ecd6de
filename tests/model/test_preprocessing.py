"""A model predicts only on features that were made as those it was trained on."""

from pathlib import Path

import numpy as np
import pytest

import distdual
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from tests.shell import assert_refused, call

SCALES = 10.0 ** np.arange(-2, 4)  # of the features: five orders of magnitude


def houses(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, len(SCALES))) + 1
    return x * SCALES, x @ np.arange(1.0, 7.0) + rng.normal(size=n) / 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of scaled features, and the same test rows prepared in several ways."""
    made = tmp_path_factory.mktemp("houses")
    x, y = houses(0, 600)
    prepare_arrays(x, y, made / "train", "regression", scale="unit-variance", test_fraction=0.25)
    prepare_arrays(x, y, made / "unscaled", "regression")
    other, targets = houses(1, 50)
    np.savez(made / "rows.npz", x=other * 3, y=targets)
    prepare_arrays(other * 3, targets, made / "by-itself", "regression", scale="unit-variance")
    prepare_arrays(other * 3, targets, made / "like-model", "regression", like=made / "train" / "train")
    config = {"data": {"url": f"{made}/train/train"}, "problem": {"kind": "regression", "bias": 1.0}}
    distdual.train({**config, "solver": {"C": 10.0, "gap": 1e-2}, "output": {"url": f"{made}/model"}})
    return made


def test_the_test_split_is_scaled_like_the_training_data(folder: Path) -> None:
    score = distdual.predict(str(folder / "model"), str(folder / "train" / "test")).score
    assert score is not None
    assert score["absolute_error"] < 0.5


@pytest.mark.parametrize("data", ["unscaled", "by-itself"])
def test_features_of_another_scale_are_refused(
    folder: Path, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = call(capsys, "predict", folder / "model", folder / data, "--out", tmp_path / "out.txt")
    assert_refused(ran, str(folder / data), "--like")
    assert not (tmp_path / "out.txt").exists()


def test_data_prepared_like_the_training_data_is_accepted(folder: Path) -> None:
    """Its own statistics differ by a factor of 3, so that predictions far from the targets are expected."""
    found = distdual.predict(str(folder / "model"), str(folder / "like-model"))
    model = distdual.load_model(folder / "model")
    factors = np.array([float(line) for line in model.preprocessing.texts["scale"].splitlines()])
    x = (houses(1, 50)[0] * 3).astype(np.float32) / factors
    np.testing.assert_allclose(found.labels, x.astype(np.float32) @ model.w[:-1] + model.w[-1], rtol=1e-5)


def test_an_estimator_of_a_data_set_refuses_features_of_another_scale(folder: Path) -> None:
    model = distdual.SVR(C=10.0, gap=1e-2).fit(str(folder / "train" / "train"))
    assert model.score(str(folder / "train" / "test")) > 0.9
    for data in ("unscaled", "by-itself"):
        with pytest.raises(InputError, match="like"):
            model.predict(str(folder / data))


def test_an_estimator_of_a_data_set_scales_raw_rows(folder: Path) -> None:
    x, y = houses(2, 100)
    model = distdual.SVR(C=10.0, gap=1e-2).fit(str(folder / "train" / "train"))
    assert np.abs(model.predict(x) - y).mean() < 0.5


def test_an_estimator_of_arrays_refuses_scaled_data(folder: Path) -> None:
    x, y = houses(0, 600)
    with pytest.warns(UserWarning, match="scale the features"):
        model = distdual.SVR(C=1e-9, gap=0.5).fit(x, y)
    model.predict(str(folder / "unscaled"))
    with pytest.raises(InputError, match="scale"):
        model.predict(str(folder / "by-itself"))
