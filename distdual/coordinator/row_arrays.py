"""Rows of constraints as arrays by name, and checks of those that come from storage or over the network."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdual.data.shard_checks import are_columns, count_falls
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, DenseRows, Features, OuterRows, Rows
from distdual.schema import array, below, rising

Arrays = dict[str, NDArray[Any]]

FLOATS = (np.float32, np.float64)
INDICES = (np.int32, np.int64)
ROW_FORMATS = ({"values"}, {"indptr", "indices", "values"})
OUTER = {"at", "plus", "minus", "scale", "width"}


def pack_rows(rows: Rows | None) -> Arrays:
    """The arrays of the rows by name; the names tell the format."""
    if isinstance(rows, OuterRows):
        own = {name: getattr(rows, name) for name in ("at", "plus", "minus", "scale")}
        return {**rows.x._asdict(), **own, "width": np.array([rows.width])}
    return rows._asdict() if rows is not None else {}


def unpack_rows(arrays: Arrays) -> Rows | None:
    if not arrays:
        return None
    if "at" not in arrays:
        return features(arrays)
    at, plus, minus, scale = (arrays[name] for name in ("at", "plus", "minus", "scale"))
    return OuterRows(features(arrays), at, plus, minus, scale, int(arrays["width"][0]))


def features(arrays: Arrays) -> Features:
    if "indptr" in arrays:
        return CsrRows(arrays["indptr"], arrays["indices"], arrays["values"])
    return DenseRows(arrays["values"])


def check_rows(arrays: Arrays, n: int, n_weights: int) -> None:
    """Refuse rows whose number is not n, or whose columns reach beyond the weights."""
    if not arrays:
        if n:
            raise InputError(f"{n} constraints without rows")
        return
    features = {name: one for name, one in arrays.items() if name not in OUTER}
    if "at" not in arrays:
        check_matrix(features, n, n_weights)
        return
    if set(arrays) != OUTER | set(features):
        raise InputError(f"rows with the arrays {', '.join(sorted(arrays))}")
    width = int(array("width", arrays["width"], np.int64, (1,), low=1)[0])
    if n_weights % width:
        raise InputError(f"blocks of {width} weights do not divide the {n_weights} weights")
    n_features = check_matrix(features, None, width)
    below("at", array("at", arrays["at"], np.int64, (n,)), n_features)
    for side in ("plus", "minus"):
        below(side, array(side, arrays[side], np.int32, (n,)), n_weights // width)
    array("scale", arrays["scale"], np.float64, (n,))


def check_matrix(arrays: Arrays, n: int | None, width: int) -> int:
    """The number of rows of a stored matrix, whose rows are as wide as kernels expect."""
    if set(arrays) not in ROW_FORMATS:
        raise InputError(f"rows with the arrays {', '.join(sorted(arrays))}")
    if "indptr" not in arrays:
        return len(array("values", arrays["values"], FLOATS, (n, width)))
    values = array("values", arrays["values"], FLOATS, (None,))
    indptr = array("indptr", arrays["indptr"], np.int64, (None if n is None else n + 1,))
    rising("indptr", indptr, len(values))
    indices = array("indices", arrays["indices"], INDICES, (len(values),))
    below("indices", indices, width)
    if not are_columns(indptr, indices, width, count_falls(indices)):
        raise InputError("indices: the columns of a row do not ascend")
    return len(indptr) - 1
