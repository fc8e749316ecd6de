"""Pipelines converted by skl2onnx predict in onnxruntime what they predict in scikit-learn."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
import skl2onnx
from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import distdual
from distdual.estimators.onnx_converter import register_onnx_converters

X, Y = load_iris(return_X_y=True)
register_onnx_converters()


def outputs(pipeline: Any, kind: Any) -> dict[str, Any]:
    graph = skl2onnx.to_onnx(pipeline, initial_types=[("x", kind([None, 4]))])
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    values = session.run(None, {"x": X.astype(np.float64 if kind is DoubleTensorType else np.float32)})
    return dict(zip([output.name for output in session.get_outputs()], values, strict=True))


@pytest.mark.parametrize("kind", [FloatTensorType, DoubleTensorType])
@pytest.mark.parametrize("estimator", [distdual.SVC(), distdual.LinearSVC(C=0.1)], ids=["SVC", "LinearSVC"])
@pytest.mark.parametrize(
    "labels",
    [Y, Y == 1, np.array(["a", "b", "c"])[Y], np.array(["no", "yes"], dtype=object)[(Y == 1).astype(int)]],
    ids=["three", "two", "three texts", "two texts"],
)
def test_a_classifier(estimator: Any, labels: Any, kind: Any) -> None:
    pipeline = make_pipeline(StandardScaler(), estimator).fit(X, labels)
    found = outputs(pipeline, kind)
    expected = pipeline.decision_function(X).reshape(len(X), -1)
    np.testing.assert_allclose(found["scores"], expected, atol=1e-4)
    sure = np.abs(expected).min(axis=1) > 1e-3
    assert found["label"][sure].tolist() == pipeline.predict(X)[sure].astype(found["label"].dtype).tolist()


@pytest.mark.parametrize("estimator", [distdual.SVR(), distdual.LinearSVR()], ids=["SVR", "LinearSVR"])
def test_a_regressor(estimator: Any) -> None:
    pipeline = make_pipeline(StandardScaler(), estimator).fit(X, X[:, 0] * 2 + X[:, 2])
    np.testing.assert_allclose(outputs(pipeline, FloatTensorType)["variable"][:, 0], pipeline.predict(X), atol=1e-4)
