"""A small valid data set, a model and a checkpoint of each kind of problem, for the fuzzer to change."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from distdual.coordinator.calibrate import calibrate
from distdual.coordinator.run import train
from distdual.data.prepare.api import prepare, prepare_arrays, prepare_structures
from distdual.errors import Suspended
from tests.problems.parsing.trees import planted

OWN = "tests.problems.mine:PlainMulticlass"
GROUPS = {"slack": "block:4", "cache_bytes": 50_000.0}

SETTINGS: dict[str, dict[str, Any]] = {
    "binary": {"problem": {"kind": "binary", "bias": 1.0}},
    "groups": {"problem": {"kind": "binary"}, "solver": GROUPS},
    "multiclass": {"problem": {"kind": "multiclass"}},
    "regression": {"problem": {"kind": "regression"}},
    "ordinal": {"problem": {"kind": "ordinal"}},
    "ranking": {"problem": {"kind": "ranking"}},
    "chain": {"problem": {"kind": "chain"}},
    "cfg": {"problem": {"kind": "cfg"}},
    "latent": {"problem": {"kind": "latent", "bias": 1.0}},
    "latent_multiclass": {"problem": {"kind": "latent_multiclass"}},
    "latent_chain": {"problem": {"kind": "latent_chain"}},
    "user": {"problem": {"kind": OWN}},
    "free_bias": {"problem": {"kind": "binary", "bias": "free"}},
    "prior": {"problem": {"kind": "binary"}, "prior": {"nonnegative": ["1:3"]}},
    "exact_kernel": {"problem": {"kind": "binary", "bias": 1.0}, "kernel": {"kind": "rbf"}},
    "landmarks": {"problem": {"kind": "multiclass"}, "kernel": {"kind": "rbf", "basis": 6}},
    "fourier": {"problem": {"kind": "regression"}, "kernel": {"kind": "rbf", "basis": 6, "map": "fourier"}},
    "calibrated": {"problem": {"kind": "binary"}},
    "table": {"problem": {"kind": "multiclass", "bias": 1.0}},
    "tagged_text": {"problem": {"kind": "chain"}},
    "f1": {"problem": {"kind": "multivariate", "loss": "f1"}},
    "auc": {"problem": {"kind": "multivariate", "loss": "auc"}},
    "graph": {"problem": {"kind": "graph", "node_features": 2}},
    "structures": {"problem": {"kind": "tests.problems.structured:Tags"}},
    "latent_structures": {"problem": {"kind": "tests.problems.structured:Parts"}},
    "exact_multiclass": {"problem": {"kind": "multiclass"}, "kernel": {"kind": "rbf"}},
    "exact_regression": {"problem": {"kind": "regression"}, "kernel": {"kind": "laplacian"}},
}
KINDS = tuple(SETTINGS)  # their order gives the seeds
QUICK_KINDS = (*KINDS[: KINDS.index("user") + 1], "landmarks", "graph")  # the others are left to the slow tests
NEVER_SUSPENDED = ("exact_kernel", "exact_multiclass", "exact_regression")
NEVER_STARTED = (*NEVER_SUSPENDED, "f1", "auc")  # from a model
FROM_ROWS = {"table": "rows.csv", "tagged_text": "text.conll"}


def config(name: str, folder: Path, output: str = "model") -> dict[str, Any]:
    """A run that ends soon."""
    told = SETTINGS[name]
    return {
        "data": {"url": str(folder / "data")},
        "solver": {"gap": 0.02, "max_passes": 60, "C": 0.5, **told.get("solver", {})},
        **{section: told[section] for section in ("problem", "prior", "kernel") if section in told},
        "output": {"url": str(folder / output), "overwrite": True},
    }


def make(name: str, folder: Path) -> None:
    """Write data, model and half (an unfinished run) into the folder."""
    make_data(name, folder)
    train(config(name, folder))
    if name == "calibrated":
        calibrate(str(folder / "model"), method="isotonic", folds=2)
    if name in NEVER_SUSPENDED:
        return
    calls = iter(range(10**6))
    tight = config(name, folder, "half")
    tight["solver"]["gap"] = 1e-9
    try:
        train(tight, terminated=lambda: next(calls) >= 2)
    except Suspended:
        return
    raise AssertionError(f"{name}: the run ended before it was suspended")


def make_data(name: str, folder: Path) -> None:
    rng, data, kind = np.random.default_rng(7), folder / "data", SETTINGS[name]["problem"]["kind"]
    if name == "cfg":
        (folder / "trees.mrg").write_text("".join(f"{line}\n" for line in planted(0, 12)), encoding="utf-8")
        prepare(folder / "trees.mrg", data, kind, shard_bytes=500)
        return
    if name in FROM_ROWS:
        prepare_rows(name, folder)
        return
    if kind in ("graph", SETTINGS["structures"]["problem"]["kind"], SETTINGS["latent_structures"]["problem"]["kind"]):
        examples = {"graph": graphs, "structures": sequences, "latent_structures": parts}[name](rng)
        prepare_structures(examples, data, "graph" if name == "graph" else "structures", shard_bytes=400)
        return
    n, d = 36, 4
    x = rng.normal(size=(n, d)).astype(np.float32) * (rng.random((n, d)) < 0.7)
    score = x @ rng.normal(size=d)
    if kind in ("regression", "ranking"):
        lengths = np.full(n // 6, 6) if kind == "ranking" else None
        prepare_arrays(x, score + 0.3 * rng.normal(size=n), data, kind, lengths=lengths, shard_bytes=300)
        return
    classes = 2 if kind in ("binary", "latent", "multivariate") else 3
    y = np.digitize(score + 0.3 * rng.normal(size=n), np.quantile(score, np.arange(1, classes) / classes))
    if kind in ("chain", "latent_chain", "latent"):
        lengths = np.full(n // 3, 3)
        y = np.repeat(y[::3], 3) if kind == "latent" else y
        prepare_arrays(scipy.sparse.csr_matrix(x), y, data, kind, lengths=lengths, shard_bytes=300)
        return
    cost = rng.uniform(0.5, 2.0, n) if name in ("binary", "multiclass") else None
    features = scipy.sparse.csr_matrix(x) if name in ("binary", "multiclass", "groups") else x
    prepare_arrays(features, y, data, kind, cost=cost, shard_bytes=300)


def prepare_rows(name: str, folder: Path) -> None:
    """A table with a column of each kind, or text in columns."""
    rng, rows = np.random.default_rng(3), folder / FROM_ROWS[name]
    if name == "tagged_text":
        words = rng.choice(["the", "dog", "barks", "Here"], 40)
        lines = [f"{word} {'N' if word == 'dog' else 'O'}\n" + "\n" * (k % 4 == 3) for k, word in enumerate(words)]
        rows.write_text("".join(lines), encoding="utf-8")
        templates = {"columns": {"word": 1}, "templates": ["word[-1..0]", "word.shape[0]"]}
        prepare(rows, folder / "data", "chain", format="conll", templates=templates, shard_bytes=300)
        return
    frame = pd.DataFrame({"size": rng.normal(size=36), "part": rng.choice(["north", "south"], 36)})
    frame["day"] = pd.date_range("2020-01-01", periods=36).astype(str)
    frame["kind"] = np.digitize(frame["size"] + (frame["part"] == "north"), [0.0, 1.0])
    frame.loc[[4, 9], "size"] = np.nan
    frame.to_csv(rows, index=False)
    options = {"label": "kind", "missing": "indicator", "scale": "unit-variance", "shard_bytes": 300}
    prepare(rows, folder / "data", "multiclass", **options)


def graphs(rng: Any) -> list[Any]:
    labels = rng.integers(2, size=(12, 4))
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    return [({"nodes": np.eye(2)[y] + rng.normal(size=(4, 2)), "edges": edges}, y) for y in labels]


def sequences(rng: Any) -> list[Any]:
    lengths = rng.integers(1, 5, size=16)
    labels = [rng.integers(2, size=n) for n in lengths]
    return [({"rows": rng.normal(size=(len(y), 3)) + y[:, np.newaxis]}, y) for y in labels]


def parts(rng: Any) -> list[Any]:
    return [(rng.normal(size=(8, 25)) + k % 2, np.int64(k % 2)) for k in range(8)]
