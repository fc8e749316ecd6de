"""Graphs: grids of 20 × 20 with two labels, and random graphs with four labels and loops.

Ratios are against a plain call of SciPy's maximum flow on the same networks, in the same run; errors are those of the
labels of held-out nodes, with edges and without. `python benchmarks/graphs.py [N]` prints one JSON object.
"""

import json
import statistics
import sys
import time
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

import distdual
from distdual.data.in_memory import coded_in_memory
from distdual.data.sources.structures import structure_block
from distdual.estimators.graph import graphs
from distdual.problems.graph.problem import PairwiseGraph, grid_graph


def grids(n: int, side: int = 20) -> tuple[list[Any], list[Any]]:
    """Rectangles under noise."""
    rng = np.random.default_rng(0)
    x, y = [], []
    for _ in range(n):
        labels = np.zeros((side, side), dtype=np.int64)
        for _ in range(3):
            a, b = rng.integers(0, side - 5, 2)
            labels[a : a + 5 + rng.integers(5), b : b + 5 + rng.integers(5)] ^= 1
        x.append(grid_graph(np.eye(2)[labels] + 1.2 * rng.normal(size=(side, side, 2))))
        y.append(labels.ravel())
    return x, y


def loops(n: int, size: int = 30, n_labels: int = 4) -> tuple[list[Any], list[Any]]:
    """Random graphs whose neighbours tend to share a label."""
    rng = np.random.default_rng(1)
    x, y = [], []
    for _ in range(n):
        labels = rng.integers(n_labels, size=size)
        pairs = np.array([(a, b) for a in range(size) for b in range(a) if rng.random() < 0.1])
        alike = labels[pairs[:, 0]] == labels[pairs[:, 1]]
        edges = pairs[alike | (rng.random(len(pairs)) < 0.25)]
        x.append({"nodes": np.eye(n_labels)[labels] + rng.normal(size=(size, n_labels)), "edges": edges})
        y.append(labels)
    return x, y


def without_edges(x: list[Any]) -> list[Any]:
    return [{**each, "edges": np.empty((0, 2))} for each in x]


def learned(x: list[Any], y: list[Any], **options: Any) -> dict[str, Any]:
    """Train on three quarters; the certificate, and the errors on the rest."""
    cut = 3 * len(x) // 4
    model = distdual.GraphSVM(gap=1e-2, **options).fit(x[:cut], y[:cut])
    alone = distdual.GraphSVM(gap=1e-2, **options).fit(without_edges(x[:cut]), y[:cut])
    names = ("certified", "lower", "upper", "gap", "relaxed", "stopped_by", "passes", "seconds")
    errors = {
        "error": 1 - model.score(x[cut:], y[cut:]),
        "error_of_independent_nodes": 1 - alone.score(without_edges(x[cut:]), y[cut:]),
    }
    return {**{name: model.certificate_[name] for name in names}, **errors}


def network(edges: Any, capacity: Any, one: Any) -> Any:
    """Nodes, a source for label 0 and a sink for label 1, as SciPy reads them; `one` is what label 1 gains."""
    n, gains, loses = len(one), np.flatnonzero(one > 0), np.flatnonzero(one < 0)
    tail = np.concatenate([edges[:, 0], edges[:, 1], np.full(len(loses), n), gains])
    head = np.concatenate([edges[:, 1], edges[:, 0], loses, np.full(len(gains), n + 1)])
    size = np.concatenate([capacity, capacity, -one[loses], one[gains]])
    size *= (2**30 - 2**10) / min(-one[loses].sum(), one[gains].sum())
    return csr_array((size.astype(np.int32), (tail, head)), shape=(n + 2, n + 2))


def oracle_ratio(x: list[Any], y: list[Any]) -> float:
    """Seconds of the oracle, for each example, over those of the maximum flow alone; the median of three."""
    problem = PairwiseGraph(n_features=0, node_features=2)
    shard = coded_in_memory(structure_block(graphs(x), y), (), 0).shards[0]
    w, networks = np.array([1.0, -1.0, -1.0, 1.0, 0.8]), []
    for one, labels in zip(x, y, strict=True):
        unary, edges, pair = problem.scores(w, one)
        unary += 1.0
        unary[np.arange(len(labels)), labels] -= 1.0
        networks.append(network(edges, pair[:, 0, 0], unary[:, 1] - unary[:, 0]))
    ratios = []
    for _ in range(4):
        begin = time.perf_counter()
        for graph in networks:
            maximum_flow(graph, graph.shape[0] - 2, graph.shape[0] - 1)
        flow = time.perf_counter()
        problem.offenders(w, shard)
        ratios.append((time.perf_counter() - flow) / (flow - begin))
    return statistics.median(ratios[1:])


def main(n: int) -> dict[str, Any]:
    x, y = grids(n)
    found = {"examples": n, "oracle_over_max_flow": oracle_ratio(x[:100], y[:100])}
    found["grids"] = learned(x, y, C=0.003)
    found["loops"] = learned(*loops(n // 3), C=0.01, pairwise="full")
    return found


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]) if len(sys.argv) > 1 else 600), indent=2))
