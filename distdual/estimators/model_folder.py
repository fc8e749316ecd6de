"""Estimators from model folders, and model folders from estimators."""

from typing import Any

import numpy as np

from distdual.data.dataset import Dataset
from distdual.data.layout import COLUMNS
from distdual.data.preprocess.columns import numeric_columns
from distdual.data.preprocess.preprocessing import RAW, Preprocessing
from distdual.data.preprocess.stored import features_before_map
from distdual.data.storage.location import as_location
from distdual.errors import InputError
from distdual.estimators.inputs import Data
from distdual.model.io import FROM_ARRAYS, DataInfo, Model
from distdual.model.predict import label_array
from distdual.problems.chain.problem import Chain
from distdual.problems.expanded import Expanded
from distdual.problems.graph.problem import PairwiseGraph
from distdual.problems.linear import FREE
from distdual.problems.mapped import Mapped, unmapped
from distdual.problems.multivariate.problem import Multivariate
from distdual.problems.ordinal import Ordinal
from distdual.problems.ranking.problem import Ranking
from distdual.problems.regression import Regression

KERNEL_NAMES = {"poly": "polynomial"}  # scikit-learn's names of kernels, where ours differ


def set_model(estimator: Any, model: Model) -> None:
    """Make `estimator` what fitting it on the model's data would have made it."""
    expected = model.problem.estimator
    if not trains(estimator, expected):
        use = f"distdual.{expected}" if expected else "distdual.predict"
        raise InputError(f"a {model.problem.kind} model is not for {type(estimator).__name__}; use {use}")
    if isinstance(model.problem, Mapped | Expanded) and "kernel" not in estimator.get_params():
        raise InputError(f"the model has a kernel, which {type(estimator).__name__} does not; use distdual.{expected}")
    about = model.problem.describe()
    names = {"gap": estimator._solver_names["gap"]}
    estimator.set_params(**{names.get(name, name): value for name, value in parameters_of(model).items()})
    if about["classes"]:
        estimator.classes_ = label_array(tuple(about["classes"]))
    estimator.preprocessing_ = model.preprocessing or RAW
    estimator.n_features_in_ = features_before_map(estimator.preprocessing_, about["n_features"])
    set_names(estimator, estimator.preprocessing_)
    estimator.certificate_ = dict(model.certificate)
    estimator.n_iter_ = model.certificate["passes"]
    estimator._problem, estimator._w, estimator._start, estimator._seen = model.problem, model.w, None, None
    estimator._dual, estimator._data = model.dual, model.data
    estimator._set_weights(model.w, model.problem)
    estimator._calibration = model.calibration


def trains(estimator: Any, name: str | None) -> bool:
    """Whether the models of `estimator` are those of the estimator called `name`, its own class or one it extends."""
    return name in [base.__name__ for base in type(estimator).__mro__]


def parameters_of(model: Model) -> dict[str, Any]:
    """The parameters of the constructor that the model determines."""
    problem: Any = model.problem.problem if isinstance(model.problem, Expanded) else unmapped(model.problem)
    found = {"C": model.C, "gap": model.certificate["target"], **kernel_parameters(model.problem)}
    if isinstance(problem, Chain):
        names = ("transitions", "order", "edge_features", "forbidden", "boundaries", "rescaling")
        return {**found, **{name: getattr(problem, name) for name in names}, "tag_cost": dict(problem.tag_cost) or None}
    if isinstance(problem, Ranking):
        return {**found, "gain": problem.gain, "normalise": problem.normalise}
    if isinstance(problem, Multivariate):
        return {**found, "loss": problem.loss, "k": problem.k, "intercept_scaling": problem.bias or 1.0}
    if isinstance(problem, Ordinal):
        found |= {"loss": problem.loss, "intercept_scaling": problem.bias, "order": list(problem.order) or None}
        return {**found, "class_weight": dict(problem.class_cost) or None}
    if isinstance(problem, PairwiseGraph):
        costs = {int(label): cost for label, cost in problem.label_cost.items()}
        return {**found, "pairwise": problem.pairwise, "attractive": problem.attractive, "label_cost": costs or None}
    if problem.bias == FREE:
        found |= {"fit_intercept": FREE}
    else:
        found |= {"fit_intercept": problem.bias != 0, "intercept_scaling": abs(problem.bias) or 1.0}
    if isinstance(problem, Regression):
        return {**found, "epsilon": problem.epsilon}
    return {**found, "class_weight": dict(problem.class_cost) or None}


def kernel_parameters(problem: Any) -> dict[str, Any]:
    """The parameters of the constructor that a model's map determines."""
    if not isinstance(problem, Mapped | Expanded):
        return {}
    names = {ours: theirs for theirs, ours in KERNEL_NAMES.items()}
    own = (
        {}
        if isinstance(problem, Expanded)
        else {"n_components": problem.feature_map.width, "approximation": problem.feature_map.kind}
    )
    function = problem.function if isinstance(problem, Expanded) else problem.feature_map.function
    return {
        "kernel": names.get(function.kind, function.kind),
        "gamma": function.gamma,
        "degree": function.degree,
        "coef0": function.coef0,
        **own,
    }


def set_names(estimator: Any, preprocessing: Preprocessing) -> None:
    """feature_names_in_ as scikit-learn has it, where features have names."""
    estimator.__dict__.pop("feature_names_in_", None)
    if (names := preprocessing.feature_names) is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)


def data_info(data: Data) -> DataInfo:
    """What a model folder says about the data of a fit."""
    numbering = data.layout.numbering if isinstance(data, Dataset) else None
    url = data.location.url if isinstance(data, Dataset) else FROM_ARRAYS
    return DataInfo(url, data.fingerprint, data.n_examples, data.checksum, numbering)


def save_model(estimator: Any, url: Any, *, overwrite: bool) -> None:
    """Write a fitted estimator as a model folder."""
    if not trains(estimator, estimator._problem.estimator):
        raise InputError(f"a {type(estimator).__name__} cannot be saved as a model; pickle it, or use distdual.train")
    preprocessing = estimator.preprocessing_
    if preprocessing.fingerprint == RAW.fingerprint and hasattr(estimator, "feature_names_in_"):
        named = numeric_columns(estimator.feature_names_in_).to_text()  # rows of a data frame with these columns
        preprocessing = Preprocessing(texts={COLUMNS: named})
    model = Model(
        estimator._w,
        estimator._problem,
        float(estimator.C),
        estimator._prior(estimator._problem),
        estimator._dual,
        estimator._data,
        {**estimator.certificate_, "model": str(url)},
        {
            "estimator": type(estimator).__name__,
            "solver": {"C": float(estimator.C), "gap": estimator.certificate_["target"]},
        },
        preprocessing,
        getattr(estimator, "_calibration", None),
    )
    model.save(as_location(url, estimator.storage_options), overwrite=overwrite)
