"""A small valid data set, a model and a checkpoint of each kind of problem, for the fuzzer to change."""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from distdual.coordinator.run import train
from distdual.data.prepare.api import prepare, prepare_arrays
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
}
KINDS = tuple(SETTINGS)


def config(name: str, folder: Path, output: str = "model") -> dict[str, Any]:
    """A run that ends soon."""
    told = SETTINGS[name]
    return {
        "data": {"url": str(folder / "data")},
        "problem": told["problem"],
        "solver": {"gap": 0.02, "max_passes": 60, "C": 0.5, **told.get("solver", {})},
        "output": {"url": str(folder / output), "overwrite": True},
    }


def make(name: str, folder: Path) -> None:
    """Write data, model and half (an unfinished run) into the folder."""
    make_data(name, folder)
    train(config(name, folder))
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
    n, d = 36, 4
    x = rng.normal(size=(n, d)).astype(np.float32) * (rng.random((n, d)) < 0.7)
    score = x @ rng.normal(size=d)
    if kind in ("regression", "ranking"):
        lengths = np.full(n // 6, 6) if kind == "ranking" else None
        prepare_arrays(x, score + 0.3 * rng.normal(size=n), data, kind, lengths=lengths, shard_bytes=300)
        return
    classes = 2 if kind in ("binary", "latent") else 3
    y = np.digitize(score + 0.3 * rng.normal(size=n), np.quantile(score, np.arange(1, classes) / classes))
    if kind in ("chain", "latent_chain", "latent"):
        lengths = np.full(n // 3, 3)
        y = np.repeat(y[::3], 3) if kind == "latent" else y
        prepare_arrays(scipy.sparse.csr_matrix(x), y, data, kind, lengths=lengths, shard_bytes=300)
        return
    cost = rng.uniform(0.5, 2.0, n) if name in ("binary", "multiclass") else None
    features = scipy.sparse.csr_matrix(x) if name in ("binary", "multiclass", "groups") else x
    prepare_arrays(features, y, data, kind, cost=cost, shard_bytes=300)
