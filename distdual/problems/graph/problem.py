"""Pairwise graphs: ⟨w, φ⟩ adds up the scores of nodes with their labels, and of edges with those of both ends.

    φ(x, y) = Σ_i nodes_i ⊗ e[y_i]  +  Σ_{(i, j)} features_ij ⊗ ( [y_i = y_j]  or  e[y_i, y_j] )
    loss(y, z) = Σ_i cost_i [y_i ≠ z_i]

Inference is exact on forests, and for two labels wherever edges attract; elsewhere a relaxation gives labels and a
bound, so that the gap is proven all the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from distdual.config import check_choice
from distdual.data.data_spec import DataSpec
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rounding import MARGIN
from distdual.kernels.rows import Floats, Ints
from distdual.problems.base import Magnitude, Offenders
from distdual.problems.graph.max_product import best_of_forest, is_forest
from distdual.problems.graph.minimum_cut import attraction, best_cut
from distdual.problems.graph.relaxation import relaxed
from distdual.problems.user.problem import UserProblem

LARGEST_FEATURE = 1e30  # rows, which add up those of a graph, are in single precision
CLOSE = 1e-12  # relative: how far below 0 rounding may put an attraction
FIELDS = ("nodes", "edges", "edge_features", "edge_types", "node_cost")


class Labels(NamedTuple):
    """The right labels of a graph, and what each costs if it is missed."""

    labels: Ints
    cost: Floats


class Inferred(NamedTuple):
    """Labels; `bound` is what no labels exceed, None where these are the best."""

    labels: Ints
    bound: float | None


@dataclass(frozen=True, kw_only=True)
class PairwiseGraph(UserProblem):
    """A label for each node of a graph.

    x has `nodes` (n, node_features) and `edges` (m, 2), pairs of nodes; and if wanted `edge_features` (m,
    edge_features), `edge_types` (m,), and `node_cost` (n,), what a wrong label of a node costs. y has the n labels.
    """

    kind = "graph"
    data_spec: ClassVar[DataSpec] = DataSpec(examples="structures", labels="targets")
    estimator: ClassVar[str | None] = "GraphSVM"
    bounded: ClassVar[bool] = True

    labels: int = 2
    """Number of labels: 0, 1, …"""

    node_features: int = 1
    """Features of each node."""

    edge_features: int = 1
    """Features of each edge; a constant 1 where the data have none."""

    edge_types: int = 1
    """Types of edges, each with weights of its own."""

    pairwise: str = "potts"
    """What an edge scores: "potts", a weight per feature where both ends have one label; "full", for each pair."""

    attractive: bool = True
    """Keep the weights of Potts edges from falling below 0, so that two labels are found exactly; needs edge features
    that are not negative."""

    label_cost: Mapping[str, float] = field(default_factory=dict)
    """What a wrong label costs where the right one is this; 1 by default."""

    def __post_init__(self) -> None:
        check_choice("problem.pairwise", self.pairwise, ["potts", "full"])
        for name, least in (("labels", 2), ("node_features", 1), ("edge_features", 1), ("edge_types", 1)):
            if getattr(self, name) < least:
                raise InputError(f"problem.{name} must be at least {least}, got {getattr(self, name)}")
        for label, cost in self.label_cost.items():
            if not label.isdecimal() or int(label) >= self.labels or not cost >= 0:
                raise InputError(
                    f"problem.label_cost: {label} = {cost}; expected labels below {self.labels}, costs from 0"
                )

    @property
    def n_weights(self) -> int:  # type: ignore[override]
        return self.n_unary + self.edge_types * self.edge_features * self.per_feature

    @property
    def n_unary(self) -> int:
        return self.labels * self.node_features

    @property
    def per_feature(self) -> int:
        """Weights of each feature of an edge."""
        return 1 if self.pairwise == "potts" else self.labels**2

    @property
    def signed(self) -> bool:
        return self.attractive and self.pairwise == "potts"

    def nonnegative_weights(self) -> Ints:
        return np.arange(self.n_unary, self.n_weights) if self.signed else np.empty(0, dtype=np.int64)

    def truth(self, x: Any, y: Any) -> Labels:
        labels = np.asarray(y)
        if labels.dtype.kind not in "iu" or labels.shape != x["nodes"].shape[:1]:
            raise InputError(f"y must have a whole number for each of {len(x['nodes'])} nodes, found {labels.shape}")
        check_within("the label", labels, self.labels)
        cost = np.asarray(x["node_cost"], dtype=np.float64) if "node_cost" in x else np.ones(len(labels))
        if self.label_cost:
            cost = cost * np.array([self.label_cost.get(str(k), 1.0) for k in range(self.labels)])[labels]
        if not (cost.shape == labels.shape and np.isfinite(cost).all() and (cost >= 0).all()):
            raise InputError(f"node_cost must be a finite number from 0 for each of {len(labels)} nodes")
        return Labels(labels.astype(np.int64), cost)

    def feature_map(self, x: Any, y: Any) -> Floats:
        labels = y.labels if isinstance(y, Labels) else y
        nodes, edges, features = self.parts(x)
        found = np.zeros(self.n_weights)
        unary = found[: self.n_unary].reshape(self.labels, -1)
        for label in range(self.labels):
            unary[label] = nodes[labels == label].sum(axis=0)
        first, second = labels[edges[:, 0]], labels[edges[:, 1]]
        pair = found[self.n_unary :].reshape(self.per_feature, -1)
        if self.pairwise == "potts":
            pair[0] = features[first == second].sum(axis=0)
        else:
            code = first * self.labels + second
            pair[:] = np.stack([np.bincount(code, each, minlength=self.labels**2) for each in features.T], axis=1)
        return found

    def loss(self, y_true: Labels, y: Any) -> float:
        labels = y.labels if isinstance(y, Labels) else y
        return float(y_true.cost[y_true.labels != labels].sum())

    def argmax(self, w: Floats, x: Any, y_true: Labels) -> tuple[Ints, float | None]:
        unary, edges, pair = self.scores(w, x)
        unary += y_true.cost[:, np.newaxis]
        unary[np.arange(len(unary)), y_true.labels] -= y_true.cost
        return self.infer(unary, edges, pair)

    def predict_one(self, w: Floats, x: Any) -> Ints:
        return self.infer(*self.scores(w, x)).labels

    def infer(self, unary: Floats, edges: Ints, pair: Floats) -> Inferred:
        """The labels with the highest total score, or good ones with a bound."""
        if is_forest(len(unary), edges):
            return Inferred(best_of_forest(unary, edges, pair), None)
        if self.labels == 2 and (attraction(pair) >= -CLOSE * np.abs(pair).sum(axis=(1, 2))).all():
            return Inferred(*best_cut(unary, edges, pair))
        return Inferred(*relaxed(unary, edges, pair))

    def magnitude(self, shard: Shard, found: Offenders) -> Magnitude:
        """Inference adds up and compares the scores of all nodes and edges, which may cancel in a row.

        Those of the right labels count, too, and each twice, as for `path_magnitude`.
        """
        inputs, row, cost, terms = self.inputs(shard), 0.0, 0.0, 0
        with self.naming(shard) as at:
            for i in range(shard.n_examples):
                at(i)
                x = inputs.x(i)
                nodes, edges, features = self.parts(x)
                row = max(row, total_length(nodes) + total_length(features))
                cost = max(cost, float(self.right_output(inputs, i, x).cost.sum()))
                terms = max(terms, 4 * (len(nodes) + len(edges)))
        own, row = found.magnitude or Magnitude(), 4.0 * MARGIN * row
        missed = own.missed * own.row / row if row > 0 else 0.0
        return Magnitude(terms + self.n_weights + 4.0, row, MARGIN * cost, MARGIN * cost, missed)

    def is_output(self, x: Any, y: Any) -> bool:
        return len(y) == len(x["nodes"]) and bool(((y >= 0) & (y < self.labels)).all())

    def encode(self, y: Any) -> tuple[int, ...]:
        return tuple((y.labels if isinstance(y, Labels) else y).tolist())

    # --- a graph

    def scores(self, w: Floats, x: Any) -> tuple[Floats, Ints, Floats]:
        """Scores of each node with each label, the edges, and scores of each edge with each pair of labels."""
        nodes, edges, features = self.parts(x)
        unary = nodes @ w[: self.n_unary].reshape(self.labels, -1).T
        weights = w[self.n_unary :].reshape(self.per_feature, -1)
        if self.pairwise == "potts":
            return unary, edges, (features @ weights[0])[:, np.newaxis, np.newaxis] * np.eye(self.labels)
        return unary, edges, (features @ weights.T).reshape(len(edges), self.labels, self.labels)

    def parts(self, x: Any) -> tuple[Floats, Ints, Floats]:
        """Nodes, edges and features of edges, checked; edges of each type have columns of their own."""
        check_fields(x)
        nodes = np.asarray(x["nodes"], dtype=np.float64)
        if nodes.ndim != 2 or nodes.shape[1] != self.node_features:
            raise InputError(f"nodes have the shape {nodes.shape}, expected {self.node_features} features each")
        edges = pairs_of_nodes(x["edges"], len(nodes))
        features = np.ones((len(edges), 1))
        if "edge_features" in x:
            features = np.asarray(x["edge_features"], dtype=np.float64)
        if features.shape != (len(edges), self.edge_features):
            expected = f"{self.edge_features} for each of {len(edges)} edges"
            raise InputError(f"edge_features have the shape {features.shape}, expected {expected}")
        if not all(np.abs(each).max(initial=0.0) <= LARGEST_FEATURE for each in (nodes, features)):
            raise InputError(f"a feature of a node or of an edge is NaN, infinite or above {LARGEST_FEATURE:g}")
        if self.signed and features.min(initial=0.0) < 0:
            raise InputError("an edge feature is negative; attractive = false allows that, with a bound for two labels")
        types = types_of_edges(x, len(edges), self.edge_types)
        if self.edge_types == 1:
            return nodes, edges, features
        own = features[:, np.newaxis] * np.eye(self.edge_types)[types][:, :, np.newaxis]
        return nodes, edges, own.reshape(len(edges), self.edge_types * self.edge_features)


def total_length(rows: Floats) -> float:
    """Σ ||rows_i||."""
    return float(np.sqrt(np.einsum("ij,ij->i", rows, rows)).sum())


def check_fields(x: Any) -> None:
    """Refuse what is no graph, and arrays that would have no effect."""
    if not isinstance(x, Mapping) or not {"nodes", "edges"} <= set(x):
        raise InputError("a graph is a dict with nodes and edges")
    if other := set(x).difference(FIELDS):
        raise InputError(f"a graph has no {min(other)}; expected {', '.join(FIELDS)}")


def pairs_of_nodes(given: Any, n_nodes: int) -> Ints:
    """(m, 2) the two nodes of each edge."""
    edges = np.asarray(given)
    if not edges.size:
        return np.empty((0, 2), dtype=np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise InputError(f"edges have the shape {edges.shape}, expected (m, 2), two nodes for each edge")
    check_within("an edge", edges, n_nodes)
    whole = edges.astype(np.int64, copy=False)
    if (whole != edges).any():
        raise InputError("an edge names a node by a number that is not whole")
    if (whole[:, 0] == whole[:, 1]).any():
        raise InputError("an edge joins a node with itself")
    return whole


def types_of_edges(x: Mapping[str, Any], n_edges: int, n_types: int) -> Ints:
    """(n_edges,) the type of each edge; 0 where the data have none."""
    if "edge_types" not in x:
        return np.zeros(n_edges, dtype=np.int64)
    types = np.asarray(x["edge_types"])
    if types.shape != (n_edges,):
        raise InputError(f"edge_types have the shape {types.shape}, expected one for each of {n_edges} edges")
    check_within("an edge type", types, n_types)
    return types.astype(np.int64, copy=False)


def check_within(what: str, values: Any, end: int) -> None:
    if len(values) and not (values.min() >= 0 and values.max() < end):
        raise InputError(f"{what} is {values.min()} or {values.max()}; expected 0 to {end - 1}")


def grid_graph(features: Any, *, neighbours: int = 4, directions: bool = False) -> dict[str, Any]:
    """The graph of a grid of height × width × d features: each node is joined with 4 or 8 neighbours.

    With `directions`, edges to the right, down and along both diagonals are types of their own.
    """
    pixels = np.asarray(features)
    if pixels.ndim != 3 or neighbours not in (4, 8):
        raise InputError(
            f"a grid needs height × width × features and 4 or 8 neighbours, got {pixels.shape}, {neighbours}"
        )
    at = np.arange(pixels.shape[0] * pixels.shape[1]).reshape(pixels.shape[:2])
    pairs = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
    pairs += [(at[:-1, :-1], at[1:, 1:]), (at[1:, :-1], at[:-1, 1:])] if neighbours == 8 else []
    edges = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in pairs])
    found = {"nodes": pixels.reshape(-1, pixels.shape[2]), "edges": edges}
    if directions:
        found["edge_types"] = np.repeat(np.arange(len(pairs)), [a.size for a, _ in pairs])
    return found
