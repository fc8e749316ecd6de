"""Raw rows for an estimator that was fitted on a data set: made into features as the data set's were."""

from typing import Any

import numpy as np

from distdual.data.preprocess.columns import Columns
from distdual.data.shard import Block, join_blocks
from distdual.data.sources.arrow import arrow
from distdual.data.sources.table_blocks import known_tables
from distdual.data.sources.tables import frame_table, is_frame, is_records, records_table
from distdual.errors import InputError
from distdual.estimators.inputs import features_of, matrix_of
from distdual.kernels.rows import DenseRows


def prepared_rows(preprocessing: Any, X: Any, n_features: int) -> Any:
    """A matrix of features; `X` is a data frame or a list of dicts, or an array if features have no names."""
    if preprocessing.recipe:
        raise InputError("features of text are made by `prepare`, like those of the training data; pass a data set")
    columns = preprocessing.columns
    if columns is None:
        block = Block(features_of(X), np.zeros(X.shape[0]))
        return matrix_of(preprocessing.converted(block, "X").x, n_features)
    blocks = [
        block
        for source in known_tables([frame_table(rows_as_frame(X, columns), "X")], columns, labelled=False).sources
        for block in source.blocks()
    ]
    if not blocks:
        return DenseRows(np.empty((0, n_features))).values
    return matrix_of(preprocessing.converted(join_blocks(blocks), "X").x, n_features)


def rows_as_frame(X: Any, columns: Columns) -> Any:
    """A data frame as it is; dicts, or an array with the columns in order, as an Arrow table."""
    if isinstance(X, dict) or (getattr(X, "ndim", None) == 1 and hasattr(X, "index")):
        raise InputError(
            "X is a single row; pass a data frame with one row, such as frame[:1], or a list with one dict"
        )
    if is_frame(X):
        return X
    if is_records(X):
        return records_table(X, columns.names, "X")
    array = np.asarray(X)
    if array.ndim != 2 or array.shape[1] != len(columns.columns) or array.dtype.kind not in "biuf":
        raise InputError(
            f"X: expected a data frame or dicts with the columns {', '.join(columns.names[:20])}, as the data set was "
            f"prepared from such a table; found an array of shape {array.shape}"
        )
    return arrow().table({name: array[:, k] for k, name in enumerate(columns.names)})
