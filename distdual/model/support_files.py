"""The support rows of an exact kernel in a model folder, support/: x.npy, or indptr.npy, indices.npy and values.npy."""

from collections.abc import Mapping
from typing import Any

from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.feature_maps.kernel_function import KernelFunction
from distdual.model.dual import npy
from distdual.model.map_files import read_rows, stored_function
from distdual.problems.base import Problem
from distdual.problems.binary import Binary
from distdual.problems.expanded import Expanded
from distdual.problems.expansion_form import expansion_form_of
from distdual.problems.multiclass import Multiclass
from distdual.problems.regression import Regression

SUPPORT_FOLDER = "support"
SUPPORT_ARRAYS = ("x", "indptr", "indices", "values")


def support_files(problem: Expanded) -> dict[str, bytes]:
    return {f"{SUPPORT_FOLDER}/{name}.npy": npy(values) for name, values in problem.support.arrays().items()}


def read_expansion(location: Location, told: Mapping[str, Any], problem: Problem) -> Expanded:
    """The problem of a model with an exact kernel, its rows checked."""
    if not isinstance(problem, Binary | Multiclass | Regression):
        raise InputError(f"{location}: a {problem.kind} model has no expansion")
    expansion_form_of(problem)
    function: KernelFunction = stored_function(told)
    if not function.is_positive_definite:
        raise InputError(
            f"{location}/model.json: a {function.kind} kernel with coef0 {function.coef0:g} proves no bound"
        )
    support = read_rows(location, f"{SUPPORT_FOLDER}/", problem.n_features)
    if support.n_rows != told["support"]:
        raise InputError(f"{location}/support: {support.n_rows} rows, model.json describes {told['support']}")
    return Expanded(problem, function, support)
