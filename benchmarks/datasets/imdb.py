"""Film reviews, positive against negative: 25,000 × 80,736, sparse, sublinear tf-idf with rows of length 1."""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer

from benchmarks.case import Case, need
from distdual.data.in_memory import in_memory
from distdual.problems.binary import Binary


def counts(packed: Any, part: str) -> Any:
    values = (packed[f"{part}_data"].astype(np.float64), packed[f"{part}_indices"], packed[f"{part}_indptr"])
    return sp.csr_matrix(values, shape=tuple(packed[f"{part}_shape"]))


def imdb(folder: Path, scratch: Path) -> Case:  # noqa: ARG001 - as the others
    packed = np.load(need(folder, "imdb", "imdb_counts.npz"))
    weigh = TfidfTransformer(sublinear_tf=True).fit(counts(packed, "train"))
    order = np.random.default_rng(0).permutation(len(packed["train_rating"]))
    x, y = narrow(weigh.transform(counts(packed, "train")))[order], packed["train_rating"][order]
    y = np.where(y > 5, 1.0, -1.0)
    test = narrow(weigh.transform(counts(packed, "test")))
    return Case(
        name="imdb",
        title="IMDB tf-idf",
        problem=Binary(n_features=x.shape[1], classes=("-1", "1")),
        train=lambda: in_memory(x, y),
        test=in_memory(test, np.where(packed["test_rating"] > 5, 1.0, -1.0)),
        C=1.0,
        x=x,
        y=y,
    )


def narrow(x: Any) -> Any:
    """float32 with int32 indices in order: what our kernels, and liblinear, take without a copy."""
    x = sp.csr_matrix(x, dtype=np.float32)
    x.sort_indices()
    x.indices, x.indptr = x.indices.astype(np.int32), x.indptr.astype(np.int32)
    return x
