"""Dask arrays and data frames in estimators: training where their partitions are, and lazy predictions."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdual.cluster.collection import CollectionDataset, client_of, open_collection
from distdual.data.sources.partitions import has_columns, is_collection
from distdual.errors import InputError
from distdual.estimators.inputs import Given, check_columns_of

PREDICTION = "prediction"  # the name of a predicted series


def collection_of(estimator: Any, X: Any, given: Given, *, regression: bool) -> CollectionDataset | None:
    """The examples of a Dask collection, described by the workers of a client; None if X is none, or without a client.

    Sets what fitting sets: n_features_in_, feature_names_in_ and classes_.
    """
    if not is_collection(X):
        return None
    client = estimator.client or client_of(X)
    if client is None:
        if has_columns(X):
            raise InputError("a Dask data frame needs a Dask client: create one, or pass it as client")
        return None
    if given.y is None:
        raise InputError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    check_columns_of(estimator, X, reset=True)
    found = open_collection(client, X, given.y, given.sample_weight, regression=regression)
    estimator.__dict__.pop("feature_names_in_", None)
    if found.columns is not None:
        estimator.feature_names_in_ = np.array(found.columns, dtype=object)
    estimator._learn_classes(found.labels)
    return found


def lazily(function: Callable[[Any], NDArray[Any]], X: Any, meta: NDArray[Any]) -> Any:
    """`function` of each partition of a Dask array or data frame, as a lazy collection.

    `meta` is the result for no rows. A data frame gives a series, or a data frame where results have columns.
    """
    if has_columns(X):
        return X.map_partitions(framed, function, meta=as_frame(meta, None))
    rows = X.rechunk({1: -1})
    if meta.ndim == 1:
        return rows.map_blocks(function, dtype=meta.dtype, drop_axis=1, meta=meta)
    return rows.map_blocks(function, dtype=meta.dtype, chunks=(rows.chunks[0], (meta.shape[1],)), meta=meta)


def framed(frame: Any, function: Callable[[Any], NDArray[Any]]) -> Any:
    return as_frame(function(frame), frame.index)


def as_frame(values: NDArray[Any], index: Any) -> Any:
    """A pandas series or data frame; pandas is there where data frames are."""
    pandas = importlib.import_module("pandas")
    if values.ndim == 1:
        return pandas.Series(values, index=index, name=PREDICTION)
    return pandas.DataFrame(values, index=index)
