"""Compile kernels ahead of time, by training, verifying and predicting on tiny data sets of every form."""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from distdual.certificate.verify import verify
from distdual.coordinator.run import train
from distdual.data.data_spec import DataSpec, OwnFormat
from distdual.data.prepare.api import prepare, prepare_arrays, prepare_structures
from distdual.model.predict import predict
from distdual.problems.graph.problem import grid_graph
from distdual.problems.registry import KINDS, class_of

N_EXAMPLES, LENGTH, WIDTH = 120, 4, 40  # hard enough for several passes, small enough for no time
GAP = 1e-2
SEED = 0


def warm_up(kinds: Sequence[str] = (), tell: Callable[[str], None] = lambda _: None) -> None:
    """Compile the kernels of these problem kinds; of all built-in ones if none are given.

    The compiled kernels stay in Numba's cache, where all processes of this machine find them.
    """
    chosen = list(dict.fromkeys(kinds)) or list(KINDS)
    specs = {kind: class_of(kind).data_spec for kind in chosen}  # refuses unknown kinds before any work
    with tempfile.TemporaryDirectory(prefix="distdual-warm-up-") as folder:
        for kind, spec in specs.items():
            for form in data_sets(kind, spec, Path(folder) / kind.replace(":", ".")):
                run_commands(kind, form)
            tell(kind)


def data_sets(kind: str, spec: DataSpec, folder: Path) -> list[Path]:
    """Tiny data sets: dense and sparse features, or files of the problem's own format."""
    folder.mkdir()
    if spec.own_format:
        return [prepare_example(kind, spec.own_format, folder)]
    if spec.examples == "structures":
        return [sample_graphs(kind, folder)]
    y, lengths = sample_labels(spec)
    x = np.random.default_rng(SEED).normal(size=(len(y), WIDTH))
    x[np.arange(len(y)), y.astype(int) % WIDTH] += 1.0
    rare = sparse.csr_matrix(np.where(np.abs(x) > 1.5, x, 0.0))
    for name, features in (("dense", x), ("sparse", rare)):
        prepare_arrays(features, y, folder / name, kind, lengths=lengths)
    return [folder / "dense", folder / "sparse"]


def sample_labels(spec: DataSpec) -> tuple[Any, list[int] | None]:
    """Labels, and the length of each example if examples have several rows."""
    rng = np.random.default_rng(SEED)
    n_labels = spec.n_classes or 3
    lengths = [LENGTH] * (N_EXAMPLES // LENGTH) if spec.ragged else None
    if spec.labels == "targets":
        return rng.normal(size=N_EXAMPLES), lengths
    if lengths is None:
        return rng.integers(0, n_labels, N_EXAMPLES), None
    if spec.examples == "bags":
        return np.repeat(rng.integers(0, n_labels, len(lengths)), LENGTH), lengths
    return rng.integers(0, n_labels, N_EXAMPLES), lengths


def prepare_example(kind: str, form: OwnFormat, folder: Path) -> Path:
    (folder / "examples.txt").write_text(form.example, encoding="utf-8")
    prepare(folder / "examples.txt", folder / "data", kind)
    return folder / "data"


def sample_graphs(kind: str, folder: Path) -> Path:
    """Paths and small grids, with noise in place of features."""
    rng = np.random.default_rng(SEED)
    examples = []
    for k in range(N_EXAMPLES // LENGTH):
        x = grid_graph(rng.normal(size=(1 + k % 2, LENGTH, 1)))
        examples.append((x, (x["nodes"][:, 0] > 0).astype(np.int64)))
    prepare_structures(examples, folder / "grids", kind)
    return folder / "grids"


def run_commands(kind: str, data: Path) -> None:
    """Train, verify and predict, as the commands do."""
    model = Path(f"{data}-model")
    config = {
        "data": {"url": os.fspath(data)},
        "problem": {"kind": kind},
        "solver": {"gap": GAP},
        "output": {"url": os.fspath(model)},
    }
    train(config)
    verify(os.fspath(model))
    predict(os.fspath(model), os.fspath(data))
