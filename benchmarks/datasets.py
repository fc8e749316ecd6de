"""The real data sets that benchmarks run on, from a folder named on the command line; none is in this project."""

import io
import lzma
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp


class Data(NamedTuple):
    name: str
    x: Any  # float32, dense or CSR
    y: Any  # ±1
    C: float


def need(folder: Path, *parts: str) -> Path:
    path = folder.joinpath(*parts)
    if not path.exists():
        sys.exit(f"{path} is missing: name the folder that holds the benchmark data")
    return path


def shuffled(name: str, x: Any, y: Any, C: float) -> Data:
    order = np.random.default_rng(0).permutation(len(y))
    x = x[order]
    return Data(name, x if sp.issparse(x) else np.ascontiguousarray(x), y[order], C)


def covtype_classes(folder: Path) -> tuple[Any, Any]:
    """All 581,012 rows in the order of the file, standardised, and their classes, 1 to 7."""
    packed = np.load(io.BytesIO(lzma.decompress(need(folder, "covtype", "covtype.npz.xz").read_bytes())))
    n = len(packed["y"])
    x = np.zeros((n, 54))
    x[:, :10] = packed["quant"]
    x[np.arange(n), 10 + packed["wilderness"].astype(int)] = 1
    x[np.arange(n), 14 + packed["soil"].astype(int)] = 1
    return ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32), packed["y"].astype(int)


def covtype(folder: Path) -> Data:
    """Class 2 against the rest, standardised; a random 522,911 of 581,012 rows."""
    x, y = covtype_classes(folder)
    data = shuffled("covtype", x, np.where(y == 2, 1.0, -1.0), 0.01)
    return data._replace(x=data.x[:522_911].copy(), y=data.y[:522_911].copy())


def mnist(folder: Path) -> Data:
    """8 against the rest, pixels / 255."""
    packed = np.load(need(folder, "mnist", "mnist.npz"))
    x = (packed["X_train"].reshape(60_000, -1) / 255).astype(np.float32)
    return shuffled("mnist", x, np.where(packed["y_train"] == 8, 1.0, -1.0), 0.01)


def a9a(folder: Path) -> Data:
    from sklearn.datasets import load_svmlight_file

    with lzma.open(need(folder, "a9a", "a9a.xz")) as file:
        x, y = load_svmlight_file(file, n_features=123, dtype=np.float32)
    return shuffled("a9a", x, y, 1.0)


def imdb(folder: Path) -> Data:
    """Positive against negative reviews, sublinear tf-idf with unit rows."""
    from sklearn.feature_extraction.text import TfidfTransformer

    packed = np.load(need(folder, "imdb", "imdb_counts.npz"))
    parts = (packed["train_data"].astype(np.float64), packed["train_indices"], packed["train_indptr"])
    counts = sp.csr_matrix(parts, shape=tuple(packed["train_shape"]))
    x = TfidfTransformer(sublinear_tf=True).fit_transform(counts).astype(np.float32)
    return shuffled("imdb", x, np.where(packed["train_rating"] > 5, 1.0, -1.0), 1.0)


ALL = {"covtype": covtype, "mnist": mnist, "a9a": a9a, "imdb": imdb}
