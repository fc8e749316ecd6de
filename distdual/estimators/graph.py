"""GraphSVM: a label for each node of a graph, with a proven gap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from distdual.data.dataset import Dataset
from distdual.data.in_memory import MemoryDataset
from distdual.data.shard import Block
from distdual.data.sources.structures import structure_block
from distdual.data.structures import Side
from distdual.data.validate import label_name
from distdual.errors import InputError
from distdual.estimators.inputs import Data, Given, codes_of, is_path
from distdual.estimators.structured_base import StructuredEstimator
from distdual.kernels.rows import Floats
from distdual.problems.graph.problem import PairwiseGraph

TUPLE_PARTS = ("nodes", "edges", "edge_features")


@dataclass(eq=False, repr=False, kw_only=True)
class GraphSVM(StructuredEstimator):
    """Labels for the nodes of graphs, with a proven gap.

    X is a list of graphs: dicts with `nodes` (n, node_features) and `edges` (m, 2), and if wanted `edge_features`,
    `edge_types` (m,) and `node_cost` (n,); or tuples (nodes, edges) or (nodes, edges, edge_features). y is a list with
    the labels of the nodes of each. Or X is the path or URL of a data set, whose labels are 0, 1, … Parameters in
    addition to those of DualEstimator:

    - `pairwise`: "potts", a weight per edge feature where both ends have one label; "full", for each pair of labels
    - `attractive`: keep Potts weights from falling below 0, so that inference of two labels is exact
    - `label_cost`: loss of a node with a wrong label, by its true label; 1 for labels not listed

    Attributes after `fit`: `classes_` (the labels), `coef_` (n_labels, node_features), `edge_coef_` (edge_types,
    edge_features, and n_labels, n_labels if full), and those of DualEstimator.
    """

    pairwise: str = "potts"
    attractive: bool = True
    label_cost: Mapping[Any, float] | None = None

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on graphs, or on the data set at the path or URL X."""
        return self._fit(X, Given(y, sample_weight))

    def predict(self, X: Any) -> list[Any]:
        """An array of labels for each graph."""
        check_is_fitted(self)
        data = self._open(X, Given()) if is_path(X) else self._dataset(structure_block(graphs(X), None))
        parts = [part.predicted for part in self._predict_shards(data, scored=False)]
        return [self.classes_[list(map(int, name.split()))] for part in parts for name in part.tolist()]

    def score(self, X: Any, y: Any = None) -> float:
        """The accuracy over nodes."""
        check_is_fitted(self)
        if is_path(X):
            data = self._open(X, Given(y))
            right = [
                self.classes_[side.of(i)]
                for number in range(data.n_shards)
                for shard in [data.read(number).shard]
                for side in [Side(shard.runs or {}, "y")]
                for i in range(shard.n_examples)
            ]
        else:
            right = [np.asarray(labels) for labels in y]
        return float(np.mean(np.concatenate(right) == np.concatenate(self.predict(X))))

    def _block(self, X: Any, given: Given, *, first: bool, keep: bool) -> Block:  # noqa: ARG002 - as in the base class
        if given.y is None:
            raise InputError("GraphSVM requires y to be passed, but the target y is None")
        found, labels = graphs(X), [np.asarray(each) for each in given.y]
        if not labels or any(each.ndim != 1 for each in labels):
            raise InputError("y must be a list with an array for each graph, the labels of its nodes")
        if first:
            self.classes_ = np.unique(np.concatenate(labels))
            self.n_features_in_ = 0
        coded = [codes_of(each, self.classes_) for each in labels]
        return structure_block(found, coded, given.sample_weight)

    def _learn_classes(self, found: Any) -> None:
        """Classes of a data set are known once its labels are read."""

    def _dataset(self, block: Block) -> MemoryDataset:
        made = super()._dataset(block)
        return MemoryDataset(made.shards, (), 0)

    def _problem_for(self, data: Data) -> PairwiseGraph:
        shapes = Shapes.of(data)
        if isinstance(data, Dataset):
            self.classes_ = np.arange(shapes.labels)
        names = [label_name(label) for label in self.classes_.tolist()]
        costs = {label_name(label): float(cost) for label, cost in (self.label_cost or {}).items()}
        if unknown := set(costs) - set(names):
            raise InputError(f"label_cost names the labels {', '.join(sorted(unknown))}, which no node has")
        return PairwiseGraph(
            n_features=0,
            labels=max(2, len(self.classes_)),
            node_features=shapes.node_features,
            edge_features=shapes.edge_features,
            edge_types=shapes.edge_types,
            pairwise=self.pairwise,
            attractive=bool(self.attractive),
            label_cost={str(names.index(name)): cost for name, cost in costs.items()},
        )

    def _set_weights(self, w: Floats, problem: Any) -> None:
        if not hasattr(self, "classes_"):  # of a model folder
            self.classes_ = np.arange(problem.labels)
        self.coef_ = w[: problem.n_unary].reshape(problem.labels, -1)
        pair = w[problem.n_unary :].reshape(problem.per_feature, problem.edge_types, problem.edge_features)
        moved = np.moveaxis(pair, 0, -1)
        labels = (problem.labels, problem.labels)
        self.edge_coef_ = moved[..., 0] if problem.per_feature == 1 else moved.reshape(*moved.shape[:2], *labels)


@dataclass(frozen=True)
class Shapes:
    """The sizes that the graphs of a data set have in common."""

    labels: int
    node_features: int
    edge_features: int
    edge_types: int

    @staticmethod
    def of(data: Data) -> "Shapes":
        labels = types = 1
        for number in range(data.n_shards):
            shard = data.read(number).shard
            runs = shard.runs or {}
            if "y" not in runs or "x_nodes_shape" not in runs:
                raise InputError(f"{data.location}: graphs need nodes with features, and y with a label for each")
            labels = max(labels, 1 + int(runs["y"].values.max(initial=0)))
            if "x_edge_types" in runs:
                types = max(types, 1 + int(runs["x_edge_types"].values.max(initial=0)))
        first = runs["x_nodes_shape"].of(0)
        edges = int(runs["x_edge_features_shape"].of(0)[1]) if "x_edge_features_shape" in runs else 1
        return Shapes(labels, int(first[1]), edges, types)


def graphs(X: Any) -> list[Any]:
    """Graphs as dicts of arrays of one type each."""
    if isinstance(X, np.ndarray) or not isinstance(X, Sequence):
        raise InputError("X must be a list of graphs: dicts with nodes and edges, or tuples (nodes, edges)")
    found = []
    for k, given in enumerate(X):
        if isinstance(given, tuple) and 2 <= len(given) <= 3:
            given = dict(zip(TUPLE_PARTS, given, strict=False))  # noqa: PLW2901
        if not isinstance(given, Mapping) or not {"nodes", "edges"} <= set(given):
            raise InputError(f"graph {k}: expected a dict with nodes and edges, or a tuple (nodes, edges)")
        graph = {name: np.asarray(part) for name, part in given.items()}
        graph["nodes"] = graph["nodes"].astype(np.float32)
        graph["edges"] = node_numbers(graph["edges"])
        found.append(graph)
    return found


def node_numbers(edges: Any) -> Any:
    """The edges as 32-bit integers where they are whole numbers; others stay, and the problem refuses them."""
    if not edges.size:
        return np.empty((0, 2), dtype=np.int32)
    whole = edges.astype(np.int32)
    return whole if (whole == edges).all() else edges
