"""The warning about features whose scales are far apart, from a sample of rows."""

import warnings
from typing import Any

import numpy as np

from distdual.data.in_memory import MemoryDataset
from distdual.kernels.rows import CsrRows, Features, Floats

SAMPLE_ROWS = 2000  # rows, which takes a millisecond
FAR_APART = 1e4  # the ratio of the largest values of two features from which passes multiply
CALLER = 5  # frames up from the warning: _train, _fit, fit, and the caller of that


def warn_of_scales(data: MemoryDataset, name: str, feature_names: Any = None) -> None:
    """Warn if the largest values of two features are far apart in a sample; columns of zeros do not count."""
    largest = largest_values(data.shards[0].x, data.n_features)
    used = np.flatnonzero(largest)
    if not len(used):
        return
    high, low = used[largest[used].argmax()], used[largest[used].argmin()]
    if largest[high] < FAR_APART * largest[low]:
        return
    called = [f"feature {k}" if feature_names is None else repr(str(feature_names[k])) for k in (high, low)]
    warnings.warn(
        f"{name}: feature scales differ by {largest[high] / largest[low]:.0e}: "
        f"{called[0]} reaches {largest[high]:.2g}, "
        f"{called[1]} only {largest[low]:.2g}; training takes many passes, and a large feature decides alone: "
        "scale the features first, for example with sklearn.preprocessing.StandardScaler",
        UserWarning,
        stacklevel=CALLER,
    )


def largest_values(x: Features, n_features: int) -> Floats:
    """The largest |value| of each feature among the first rows."""
    found = np.zeros(n_features)
    if isinstance(x, CsrRows):
        end = x.indptr[min(SAMPLE_ROWS, len(x.indptr) - 1)]
        begin = x.indptr[0]
        np.maximum.at(found, x.indices[begin:end], np.abs(x.values[begin:end]))
        return found
    sample: Floats = x.values[:SAMPLE_ROWS].astype(np.float64)
    found[:] = np.abs(sample).max(axis=0, initial=0.0)
    return found
