"""The feature map that made a data set's features, as a text: JSON, with its arrays in base64."""

import base64
import binascii
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.data.shard import Block
from distdual.data.shard_checks import check_columns
from distdual.errors import InputError
from distdual.feature_maps.feature_map import FeatureMap
from distdual.feature_maps.fourier import FourierMap
from distdual.feature_maps.kernel_function import KernelFunction
from distdual.feature_maps.nystroem import NystroemMap, check_factor
from distdual.feature_maps.quality import Quality
from distdual.json_floats import parsed_json
from distdual.kernels.rows import CsrRows, DenseRows, Features
from distdual.schema import array, choice, each, number, record, rising, table, table_of, text, whole

WHERE = "the text of the feature map"
DTYPES = ("float32", "float64", "int32", "int64")

MAP_RULE = table(
    {
        "kind": choice("rbf", "polynomial", "laplacian", "sigmoid"),
        "gamma": number(positive=True),
        "degree": whole(1, 100),
        "coef0": number(),
        "map": choice("nystroem", "fourier"),
        "n_inputs": whole(1),
        "arrays": table_of(table({"dtype": choice(*DTYPES), "shape": each(whole()), "base64": text()})),
        "quality": record(Quality),
    }
)


class StoredMap(NamedTuple):
    feature_map: FeatureMap
    quality: Quality

    def mapped(self, block: Block, name: str) -> Block:
        """The block on mapped features, computed on all processors."""
        found, expected = block.x.n_columns, self.feature_map.n_inputs
        if found > expected or (found < expected and block.x.width is not None):
            raise InputError(f"{name}: {found} features, but the map that the data were prepared with takes {expected}")
        return block._replace(x=self.feature_map.rows(block.x, os.cpu_count() or 1))

    def describe(self) -> str:
        kind, kernel = self.feature_map.kind, self.feature_map.function.kind
        return f"{kind}, {kernel} kernel: {self.feature_map.n_inputs} to {self.feature_map.width} features"


def map_text(stored: StoredMap) -> str:
    made = stored.feature_map
    function = made.function
    told = {
        "kind": function.kind,
        "gamma": function.gamma,
        "degree": function.degree,
        "coef0": function.coef0,
        "map": made.kind,
        "n_inputs": made.n_inputs,
        "arrays": {name: encoded(values) for name, values in made.arrays().items()},
        "quality": stored.quality._asdict(),
    }
    return json.dumps(told)


def map_from(content: str) -> StoredMap:
    """What `map_text` wrote, checked."""
    try:
        told = parsed_json(content)
    except ValueError as error:
        raise InputError(f"{WHERE}: is no JSON: {error}") from None
    MAP_RULE(WHERE, told)
    function = KernelFunction(
        kind=told["kind"], gamma=float(told["gamma"]), degree=told["degree"], coef0=float(told["coef0"])
    )
    arrays = {name: decoded_array(f"{WHERE}: {name}", one) for name, one in told["arrays"].items()}
    return StoredMap(map_of_arrays(told["map"], function, arrays, told["n_inputs"]), Quality(**told["quality"]))


def map_of_arrays(kind: str, function: KernelFunction, arrays: Mapping[str, NDArray[Any]], n_inputs: int) -> FeatureMap:
    try:
        if kind == "fourier":
            frequencies = array(f"{WHERE}: frequencies", arrays["frequencies"], np.float64, (n_inputs, None))
            return FourierMap(function, frequencies)
        landmarks = landmarks_of(arrays, n_inputs)
        check_factor(f"{WHERE}: factor", arrays["factor"], landmarks.n_rows)
    except KeyError as error:
        raise InputError(f"{WHERE}: the array {error} is missing") from None
    return NystroemMap(function, landmarks, arrays["factor"], n_inputs)


def landmarks_of(arrays: Mapping[str, NDArray[Any]], n_inputs: int) -> Features:
    where = f"{WHERE}: landmarks"
    if "landmarks_x" in arrays:
        return DenseRows(array(where, arrays["landmarks_x"], np.float32, (None, n_inputs)))
    values = array(where, arrays["landmarks_values"], np.float32, (None,))
    indptr = array(where, arrays["landmarks_indptr"], np.int64, (None,))
    indices = array(where, arrays["landmarks_indices"], (np.int32, np.int64), (len(values),))
    rising(where, indptr, len(values))
    check_columns(where, indptr, indices, n_inputs)
    return CsrRows(indptr, indices, values)


def encoded(values: NDArray[Any]) -> dict[str, Any]:
    content = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).tobytes()
    return {
        "dtype": values.dtype.name,
        "shape": list(values.shape),
        "base64": base64.b64encode(content).decode(),
    }


def decoded_array(name: str, told: Mapping[str, Any]) -> NDArray[Any]:
    dtype = np.dtype(told["dtype"])
    try:
        content = base64.b64decode(told["base64"], validate=True)
        found = np.frombuffer(content, dtype=dtype.newbyteorder("<")).reshape(told["shape"])
    except (binascii.Error, ValueError) as error:
        raise InputError(f"{name}: is damaged: {error}") from None
    return found.astype(dtype)
