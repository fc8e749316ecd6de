"""Converters for skl2onnx, so that pipelines that end in SVC, SVR, LinearSVC or LinearSVR become ONNX graphs."""

from typing import Any

import numpy as np

from distdual.errors import InputError
from distdual.estimators.classifier import SVC
from distdual.estimators.drop_in import LinearSVC, LinearSVR
from distdual.estimators.kernel import LINEAR
from distdual.estimators.regressor import SVR


def register_onnx_converters() -> None:
    """Tell skl2onnx how to convert this package's linear estimators.

    Graphs have the outputs "label" and "scores", the decision function, of a classifier, and "variable" of a regressor.
    """
    try:
        import skl2onnx
    except ImportError:
        raise InputError("ONNX converters need skl2onnx, which is missing: pip install skl2onnx") from None
    for kind in (SVC, LinearSVC):
        name = f"Distdual{kind.__name__}"
        skl2onnx.update_registered_converter(kind, name, no_shapes, convert_classifier, parser=parser_of(name))
    for regressor in (SVR, LinearSVR):
        name = f"Distdual{regressor.__name__}"
        skl2onnx.update_registered_converter(regressor, name, regressor_shapes, convert_regressor)


def parser_of(name: str) -> Any:
    """A parser that declares the outputs of a classifier, without the dictionaries that skl2onnx makes by default."""
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType

    def parse(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:  # noqa: ARG001
        operator = scope.declare_local_operator(name, model)
        operator.inputs = inputs
        labels = StringTensorType if model.classes_.dtype.kind in "UO" else Int64TensorType
        for output, kind in (("label", labels([None])), ("scores", number_type(inputs[0])([None, len(model.coef_)]))):
            operator.outputs.append(scope.declare_local_variable(output, kind))
        return operator.outputs

    return parse


def number_type(variable: Any) -> Any:
    """Scores are in double precision where features are."""
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType

    return DoubleTensorType if isinstance(variable.type, DoubleTensorType) else FloatTensorType


def no_shapes(operator: Any) -> None:
    """The parser has declared the outputs of a classifier."""


def regressor_shapes(operator: Any) -> None:
    operator.outputs[0].type = number_type(operator.inputs[0])([None, 1])


def scores_of(operator: Any, container: Any, **named: Any) -> Any:
    """The node that computes ⟨w, x⟩ + intercept of each row."""
    from skl2onnx.algebra import onnx_ops
    from skl2onnx.common.data_types import guess_numpy_type

    if getattr(operator.raw_operator, "kernel", LINEAR) != LINEAR:
        raise InputError("a model with a kernel cannot be converted: ONNX export is for linear models")
    model, dtype = operator.raw_operator, guess_numpy_type(operator.inputs[0].type)
    coef = np.atleast_2d(model.coef_).T.astype(dtype)
    version = {"op_version": container.target_opset}
    product = onnx_ops.OnnxMatMul(operator.inputs[0], coef, **version)
    return onnx_ops.OnnxAdd(product, model.intercept_.astype(dtype), **version, **named)


def convert_regressor(scope: Any, operator: Any, container: Any) -> None:
    scores_of(operator, container, output_names=operator.outputs).add_to(scope, container)


def convert_classifier(scope: Any, operator: Any, container: Any) -> None:
    from skl2onnx.algebra import onnx_ops
    from skl2onnx.common.data_types import guess_numpy_type

    model, version = operator.raw_operator, {"op_version": container.target_opset}
    label, scores = operator.outputs
    values = scores_of(operator, container, output_names=[scores])
    if len(model.classes_) == 2:
        zero = np.zeros(1, dtype=guess_numpy_type(scores.type))
        above = onnx_ops.OnnxCast(onnx_ops.OnnxGreater(values, zero, **version), to=7, **version)
        best = onnx_ops.OnnxReshape(above, np.array([-1]), **version)
    else:
        best = onnx_ops.OnnxArgMax(values, axis=1, keepdims=0, **version)
    names = model.classes_.astype(str if model.classes_.dtype.kind in "UO" else np.int64)
    onnx_ops.OnnxGather(names, best, output_names=[label], **version).add_to(scope, container)
