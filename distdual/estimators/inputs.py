"""Estimator inputs: arrays, SciPy sparse matrices, Dask arrays, or the path or URL of a data set.

Arrays become one Block: features in single precision, labels as class indices, sample weights as costs.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight, validate_data

from distdual.cluster.collection import CollectionDataset
from distdual.data.dataset import Dataset, open_dataset
from distdual.data.in_memory import MemoryDataset, as_they_are
from distdual.data.shard import join_blocks
from distdual.data.sources.arrays import blocks_from_arrays, is_dask
from distdual.data.storage.location import Location, as_location
from distdual.data.validate import label_name
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows, Features, Floats

Data = Dataset | MemoryDataset | CollectionDataset

# how the names of such types begin, of pandas, Polars and Arrow
NO_NUMBERS = ("str", "large", "categor", "dictionary", "date", "time", "enum", "period")

SINGLE: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float32, "order": "C"}


class Given(NamedTuple):
    """The arguments of `fit` or `score` besides X."""

    y: Any = None
    sample_weight: Any = None
    classes: Any = None
    lengths: Any = None
    qid: Any = None
    eval_set: Any = None


def first_norm(data: Data) -> float:
    """The norm of the longest of the first rows; 0 for Dask collections, which are not read for it."""
    if isinstance(data, Dataset):
        return float(data.largest_norm[0])
    return data.shards[0].norm_bound() if isinstance(data, MemoryDataset) else 0.0


def is_path(X: Any) -> bool:
    return isinstance(X, str | os.PathLike | Location)


def open_stored(path: Any, storage_options: Mapping[str, Any] | None, given: Given) -> Dataset:
    """Open the data set at `path`; refuse labels and weights in `given`, since it contains its own."""
    for name, value in given._replace(eval_set=None)._asdict().items():
        if value is not None:
            raise InputError(f"{path}: the data set contains its own labels and costs; leave {name} out")
    return open_dataset(as_location(path, storage_options))


def single_rows(estimator: Any, X: Any, y: Any, *, reset: bool, keep: bool, **checks: Any) -> tuple[Features, Any]:
    """Features as kernels read them, and y unchanged; `keep` copies the features.

    As in scikit-learn, `reset` sets the number of features instead of checking it.
    """
    if is_dask(X):
        if y is None:
            raise InputError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
        check_columns_of(estimator, X, reset=reset)
        labels = np.asarray(y)
        blocks = list(blocks_from_arrays(X, labels))
        if not blocks:
            raise InputError("the Dask array has no rows")
        return join_blocks(blocks).x, labels
    check_numbers(estimator, X)
    with np.errstate(over="ignore"):  # values too large for single precision become infinite and are refused
        X, y = validate_data(estimator, X, y, reset=reset, copy=keep, **SINGLE, **checks)
    return features_of(X), y


def check_numbers(estimator: Any, X: Any) -> None:
    """Refuse data frames with columns that hold no numbers: the columns are named, as NumPy's own message does not."""
    for at, (name, dtype) in enumerate(typed_columns(X)):
        levels = getattr(dtype, "categories", None)
        if getattr(getattr(levels, "dtype", None), "kind", "") in "biuf" and levels is not None:
            continue  # codes are numbers
        if str(dtype).lower().startswith(NO_NUMBERS) or holds_text(X, at, dtype):
            raise InputError(
                f"{type(estimator).__name__}: column {str(name)!r} holds {dtype} values, not numbers; encode it in a "
                "pipeline, for example with sklearn.preprocessing.OneHotEncoder, or prepare the table with "
                "distdual.prepare_frame, which does so"
            )


def typed_columns(X: Any) -> Iterable[tuple[Any, Any]]:
    """Names and types of the columns of a data frame or an Arrow table."""
    if hasattr(getattr(X, "schema", None), "types"):
        return zip(X.schema.names, X.schema.types, strict=True)
    return zip(X.columns, X.dtypes, strict=True) if hasattr(X, "dtypes") and hasattr(X, "columns") else ()


def holds_text(X: Any, at: int, dtype: Any) -> bool:
    """Whether a column of Python objects has a text, which is how pandas before 3 keeps texts."""
    return str(dtype) == "object" and any(isinstance(value, str) for value in X.iloc[:, at])


def features_of(X: Any) -> Features:
    """Features from a validated array, without a copy if possible."""
    rows = as_they_are(X)
    return join_blocks(list(blocks_from_arrays(X, np.zeros(X.shape[0])))).x if rows is None else rows


def check_columns_of(estimator: Any, X: Any, *, reset: bool) -> None:
    """Check the shape as `validate_data` does, without reading the array."""
    if X.ndim != 2:
        raise InputError(f"{type(estimator).__name__} expects X with 2 dimensions, found {X.ndim}")
    if reset:
        estimator.n_features_in_ = int(X.shape[1])
    elif X.shape[1] != estimator.n_features_in_:
        raise InputError(
            f"X has {X.shape[1]} features, but {type(estimator).__name__} "
            f"is expecting {estimator.n_features_in_} features as input"
        )


def weights_of(sample_weight: Any, n_examples: int) -> Floats | None:
    if sample_weight is None:
        return None
    rows = np.empty((n_examples, 0))
    weights: Floats = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    return weights


def codes_of(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int32]:
    """The index of each label in `classes`, which is sorted."""
    at = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    wrong = classes[at] != y
    if np.any(wrong):
        unknown = names_of(y[wrong][:1])[0]
        raise InputError(f"y contains the unknown label {unknown}, expected one of {', '.join(names_of(classes))}")
    return at.astype(np.int32)


def names_of(classes: NDArray[Any]) -> tuple[str, ...]:
    """Labels as strings, as in a data set."""
    return tuple(label_name(label) for label in classes.tolist())


def matrix_of(x: Features, n_features: int) -> Any:
    """Features of a shard as a NumPy or SciPy array."""
    if isinstance(x, DenseRows):
        return x.values
    return sp.csr_array((x.values, x.indices, x.indptr), shape=(len(x.indptr) - 1, n_features))
