"""ONNX export: a linear model with its preprocessing as one graph from raw columns to labels and scores.

Inputs are the columns of the training table, each (n, 1): texts as strings, numbers as float64, where NaN and empty
texts are missing; or, for models of arrays, one input "x" of (n, d) float32. Outputs are "label" and "scores".
"""

from typing import Any

import numpy as np

from distdual.data.preprocess.columns import Column
from distdual.data.preprocess.preprocessing import RAW
from distdual.data.storage.location import Place, as_location
from distdual.errors import InputError
from distdual.kernels.rows import Floats
from distdual.model.io import Model, load_model
from distdual.model.predict import label_array
from distdual.problems.expanded import Expanded
from distdual.problems.linear import constant_feature
from distdual.problems.mapped import Mapped

OPSET, ML_OPSET = 17, 3
IR_VERSION = 9  # what runtimes of the last years read
FLOAT, INT64, DOUBLE = 1, 7, 11  # onnx.TensorProto's numbers of these types


class Graph:
    """Nodes, constants and inputs under construction; each method returns the name of a value."""

    def __init__(self, helper: Any, numpy_helper: Any) -> None:
        self.helper, self.numpy_helper = helper, numpy_helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []

    def add(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, list(inputs), [name], domain=domain, **attributes))
        return name

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(self.numpy_helper.from_array(np.asarray(value), name))
        return name

    def input(self, name: str, type_: Any, width: int) -> str:
        self.inputs.append(self.helper.make_tensor_value_info(name, type_, [None, width]))
        return name


def to_onnx(model: Model) -> bytes:
    """The model as an ONNX graph; for SVC and SVR models."""
    onnx = import_onnx()
    problem: Any = model.problem
    if problem.estimator not in ("SVC", "SVR"):
        raise InputError(f"a {problem.kind} model cannot be exported: ONNX export is for linear models")
    if isinstance(problem, Mapped | Expanded):
        raise InputError("a model with a kernel cannot be exported: ONNX export is for linear models")
    graph = Graph(onnx.helper, onnx.numpy_helper)
    features = add_scale(graph, model, raw_features(graph, model, onnx.TensorProto))
    coef, intercept = weights_and_bias(model)
    scores = graph.add("MatMul", features, graph.constant(coef.T))
    scores = graph.add("Add", scores, graph.constant(intercept))
    label = label_node(graph, problem, scores)
    graph.nodes.append(graph.helper.make_node("Identity", [scores], ["scores"]))
    graph.nodes.append(graph.helper.make_node("Identity", [label], ["label"]))
    results = outputs(onnx, problem, len(intercept))
    made = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "distdual", graph.inputs, results, graph.constants),
        opset_imports=[onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="distdual",
    )
    onnx.checker.check_model(made)
    content: bytes = made.SerializeToString()
    return content


def export_onnx(model: Model | Place, out: Place) -> None:
    """Write the graph of a model, or of the model folder at a path or URL, to a file, local or remote."""
    model = model if isinstance(model, Model) else load_model(model)
    place = as_location(out)
    folder, slash, name = place.url.rpartition("/")
    as_location(folder or slash or ".", place.storage_options).write(name, to_onnx(model))


def import_onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise InputError("ONNX export needs onnx, which is missing: pip install onnx") from None
    return onnx


def weights_and_bias(model: Model) -> tuple[Floats, Floats]:
    """Weights and bias of each output: (k, d) and (k,)."""
    problem: Any = model.problem
    constant = constant_feature(problem)
    blocks = model.w.reshape(-1, problem.n_features + (constant != 0))
    bias = constant * blocks[:, -1] if constant else np.zeros(len(blocks))
    return blocks[:, : problem.n_features], bias


def raw_features(graph: Graph, model: Model, types: Any) -> str:
    """The features before scaling, (n, d) in single precision, as training has them."""
    preprocessing = model.preprocessing or RAW
    problem: Any = model.problem
    if preprocessing.map is not None:
        raise InputError("a model of mapped features cannot be exported to ONNX")
    if preprocessing.recipe:
        raise InputError("a model of text templates cannot be exported to ONNX")
    if preprocessing.columns is None:
        return graph.input("x", types.FLOAT, problem.n_features)
    parts = [part for column in preprocessing.columns.columns for part in column_features(graph, column, types)]
    return graph.add("Concat", *parts, axis=1)


def column_features(graph: Graph, column: Column, types: Any) -> list[str]:
    if column.kind in ("hash", "date"):
        raise InputError(f"column {column.name!r}: a {column.kind} column cannot be exported to ONNX")
    if column.kind == "levels":
        texts = graph.input(column.name, types.STRING, 1)
        levels = [level.encode() for level in column.levels]
        hot = graph.add("OneHotEncoder", texts, domain="ai.onnx.ml", cats_strings=levels, zeros=1)
        own = [graph.add("Reshape", hot, graph.constant(np.array([-1, len(levels)])))]
        if column.indicator:
            empty = graph.add("OneHotEncoder", texts, domain="ai.onnx.ml", cats_strings=[b""], zeros=1)
            own.append(graph.add("Reshape", empty, graph.constant(np.array([-1, 1]))))
        return own
    number = graph.input(column.name, types.DOUBLE, 1)
    missing = graph.add("IsNaN", number)
    filled = number
    if column.fill is not None:
        filled = graph.add("Where", missing, graph.constant(np.array([[column.fill]])), number)
    own = [graph.add("Cast", filled, to=types.FLOAT)]
    return [*own, graph.add("Cast", missing, to=types.FLOAT)] if column.indicator else own


def add_scale(graph: Graph, model: Model, features: str) -> str:
    """The scale of training: divided in double precision, rounded to single, and then as float64."""
    preprocessing = model.preprocessing or RAW
    doubles = graph.add("Cast", features, to=DOUBLE)
    if preprocessing.factors is not None:
        wide = np.ones(len(weights_and_bias(model)[0][0]))
        wide[: len(preprocessing.factors)] = preprocessing.factors
        doubles = graph.add("Div", doubles, graph.constant(wide))
    elif preprocessing.scale == "unit-rows":
        norm = graph.add("ReduceL2", doubles, axes=[1], keepdims=1)
        zero = graph.add("Equal", norm, graph.constant(np.zeros((1, 1))))
        doubles = graph.add("Div", doubles, graph.add("Where", zero, graph.constant(np.ones((1, 1))), norm))
    return graph.add("Cast", graph.add("Cast", doubles, to=FLOAT), to=DOUBLE)


def label_node(graph: Graph, problem: Any, scores: str) -> str:
    """The target itself, or the label of the best class."""
    if not problem.classes:
        return graph.add("Reshape", scores, graph.constant(np.array([-1])))
    if len(problem.classes) == 2 and problem.n_weights <= problem.n_features + 1:
        positive = graph.add("Greater", scores, graph.constant(np.zeros((1, 1))))
        best = graph.add("Reshape", graph.add("Cast", positive, to=INT64), graph.constant(np.array([-1])))
    else:
        best = graph.add("ArgMax", scores, axis=1, keepdims=0)
    labels = label_array(problem.classes)
    values = labels.astype(object) if labels.dtype.kind == "U" else labels
    return graph.add("Gather", graph.constant(values), best, axis=0)


def outputs(onnx: Any, problem: Any, n_scores: int) -> list[Any]:
    kinds = {"U": onnx.TensorProto.STRING, "i": onnx.TensorProto.INT64, "f": onnx.TensorProto.DOUBLE}
    kind = kinds[label_array(problem.classes).dtype.kind] if problem.classes else onnx.TensorProto.DOUBLE
    return [
        onnx.helper.make_tensor_value_info("label", kind, [None]),
        onnx.helper.make_tensor_value_info("scores", onnx.TensorProto.DOUBLE, [None, n_scores]),
    ]
