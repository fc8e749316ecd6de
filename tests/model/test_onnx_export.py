"""An exported model predicts as the model does, from the same raw rows."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest

import distdual
from distdual.data.prepare.api import prepare_arrays, prepare_frame
from distdual.errors import InputError
from distdual.model.onnx_export import export_onnx


def flowers(n: int = 150) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"length": rng.normal(5, 2, n), "colour": rng.choice(["red", "blue", "white"], n)})
    frame["kind"] = np.where(frame["length"] > 5, "rose", np.where(frame["colour"] == "blue", "iris", "daisy"))
    frame.loc[[2, 8], "length"] = np.nan
    frame.loc[4, "colour"] = None
    return frame


def run(file: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return dict(zip(["label", "scores"], session.run(["label", "scores"], inputs), strict=True))


@pytest.mark.parametrize("missing", ["mean", "indicator"])
@pytest.mark.parametrize(
    ("label", "problem"), [("kind", {"kind": "multiclass", "bias": 1.0}), ("red", {"kind": "binary"})]
)
def test_a_table_model(label: str, problem: dict[str, Any], missing: str, tmp_path: Path) -> None:
    frame = flowers().assign(red=lambda table: (table["kind"] == "rose").astype(int))
    options: dict[str, Any] = {"features": ["length", "colour"], "missing": missing, "scale": "unit-variance"}
    prepare_frame(frame, tmp_path / "data", problem["kind"], label=label, **options)
    config = {"data": {"url": f"{tmp_path}/data"}, "problem": problem, "output": {"url": f"{tmp_path}/model"}}
    distdual.train(config)
    known = distdual.predict(tmp_path / "model", frame, scores=True)
    export_onnx(distdual.load_model(tmp_path / "model"), tmp_path / "model.onnx")
    colours = frame["colour"].fillna("").to_numpy(dtype=object)
    found = run(tmp_path / "model.onnx", {"length": frame[["length"]].to_numpy(), "colour": colours[:, None]})
    assert found["label"].tolist() == known.labels.tolist()
    assert known.scores is not None
    np.testing.assert_allclose(found["scores"].reshape(known.scores.shape), known.scores, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", ["none", "unit-variance", "unit-rows"])
def test_an_array_model(scale: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(80, 3)).astype(np.float32) * [1, 10, 100]
    x[0] = 0
    x = x.astype(np.float32)
    prepare_arrays(x, np.where(x[:, 0] > 0, 2, 1), tmp_path / "data", "binary", scale=scale)
    problem = {"kind": "binary", "bias": 1.0}
    distdual.train({"data": {"url": f"{tmp_path}/data"}, "problem": problem, "output": {"url": f"{tmp_path}/model"}})
    known = distdual.predict(tmp_path / "model", tmp_path / "data", scores=True)
    export_onnx(tmp_path / "model", tmp_path / "model.onnx")
    found = run(tmp_path / "model.onnx", {"x": x})
    assert found["label"].tolist() == known.labels.tolist()
    assert known.scores is not None
    np.testing.assert_allclose(found["scores"][:, 0], known.scores, rtol=1e-6, atol=1e-9)


def test_a_hashed_column_is_refused(tmp_path: Path) -> None:
    prepare_frame(flowers(), tmp_path / "data", "multiclass", label="kind", features=["colour"], hashed=["colour"],
                  hash_bits=3, missing="zero")  # fmt: skip
    problem = {"kind": "multiclass"}
    distdual.train({"data": {"url": f"{tmp_path}/data"}, "problem": problem, "output": {"url": f"{tmp_path}/model"}})
    with pytest.raises(InputError, match="'colour': a hash column"):
        export_onnx(distdual.load_model(tmp_path / "model"), tmp_path / "model.onnx")
