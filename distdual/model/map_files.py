"""The feature map in a model folder: its kernel in model.json, its arrays in map/.

landmarks_x.npy         landmarks of a Nyström map; or _indptr, _indices and _values where rows are sparse
factor.npy              L, the Cholesky factor of their kernel matrix
frequencies.npy         of a Fourier map
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from distdual.data.shard_checks import check_columns
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.feature_maps.feature_map import FeatureMap
from distdual.feature_maps.fourier import FourierMap
from distdual.feature_maps.kernel_function import KernelFunction
from distdual.feature_maps.nystroem import NystroemMap, check_factor
from distdual.kernels.rows import CsrRows, DenseRows, Features
from distdual.model.dual import npy, read_npy
from distdual.schema import array, rising

FOLDER = "map"
MAP_ARRAYS = ("landmarks_x", "landmarks_indptr", "landmarks_indices", "landmarks_values", "factor", "frequencies")


def map_files(feature_map: FeatureMap) -> dict[str, bytes]:
    return {f"{FOLDER}/{name}.npy": npy(values) for name, values in feature_map.arrays().items()}


def read_map(location: Location, told: Mapping[str, Any], n_inputs: int) -> FeatureMap:
    """The map that model.json describes, its arrays checked."""
    function = stored_function(told)
    made: FeatureMap
    if told["map"] == "fourier":
        frequencies = read_npy(location, file_of("frequencies"), np.float64, (2,))
        made = FourierMap(function, frequencies)
    else:
        landmarks = read_rows(location, f"{FOLDER}/landmarks_", n_inputs)
        factor = read_npy(location, file_of("factor"), np.float64, (2,))
        check_factor(f"{location}/{file_of('factor')}", factor, landmarks.n_rows)
        made = NystroemMap(function, landmarks, factor, n_inputs)
    if (made.n_inputs, made.width) != (n_inputs, told["width"]):
        raise InputError(
            f"{location}/{FOLDER}: maps {made.n_inputs} features to {made.width}, but model.json describes {n_inputs} "
            f"and {told['width']}"
        )
    return made


def stored_function(told: Mapping[str, Any]) -> KernelFunction:
    return KernelFunction(
        kind=told["kind"], gamma=float(told["gamma"]), degree=told["degree"], coef0=float(told["coef0"])
    )


def read_rows(location: Location, start: str, n_inputs: int) -> Features:
    """Rows whose files have names that begin with `start`, dense or sparse."""
    if location.exists(f"{start}x.npy"):
        x = read_npy(location, f"{start}x.npy", np.float32, (2,))
        return DenseRows(array(f"{location}/{start}x.npy", x, np.float32, (None, n_inputs)))
    indptr = read_npy(location, f"{start}indptr.npy", np.int64)
    values = read_npy(location, f"{start}values.npy", np.float32)
    index = np.int32 if n_inputs <= 2**31 else np.int64
    indices = read_npy(location, f"{start}indices.npy", index)
    rising(f"{location}/{start}indptr.npy", indptr, len(values))
    array(f"{location}/{start}indices.npy", indices, index, (len(values),))
    check_columns(f"{location}/{start}", indptr, indices, n_inputs)
    return CsrRows(indptr, indices, values)


def file_of(name: str) -> str:
    return f"{FOLDER}/{name}.npy"
