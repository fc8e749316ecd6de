"""The inputs of a run, opened from its configuration: locations, problem, prior and first model."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distdual.cluster.open_executor import check_form, open_executor
from distdual.config import Config, SolverConfig, index_range
from distdual.coordinator.latent_loop import check_possible
from distdual.coordinator.map_maker import with_map
from distdual.data.dataset import Dataset, check_labelled, open_dataset
from distdual.data.layout import STRUCTURES
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.feature_maps.feature_map import FeatureMap
from distdual.kernels.rows import Floats
from distdual.model.dual import read_npy
from distdual.model.io import (
    Model,
    load_model,
)
from distdual.problems.base import Problem
from distdual.problems.latent.base import LatentProblem
from distdual.problems.mapped import Mapped, check_not_mapped, check_takes_map
from distdual.problems.registry import class_of, is_own, make_problem
from distdual.solver.regularizer import Prior


@dataclass(frozen=True, slots=True)
class RunInputs:
    """The inputs of a run, opened and checked."""

    config: Config
    output: Location
    dataset: Dataset
    problem: Problem
    prior: Prior
    solver: SolverConfig  # as in `config`, with what the problem requires


def run_inputs(config: Config, client: Any) -> RunInputs:
    """Open the data set, make the problem, and read the prior."""
    dataset = open_dataset(data_of(config))
    problem = mapped_problem(config, dataset, problem_of(config, dataset), client)
    solver = config.solver
    if isinstance(problem, LatentProblem):
        check_possible(problem, solver.slack, solver.cache_bytes)
        solver = replace(solver, slack="example")
    return RunInputs(config, output_of(config), dataset, problem, prior_of(config, problem), solver)


def data_of(config: Config) -> Location:
    return Location(config.data.url, config.data.storage_options, config.data.retry_seconds)


def output_of(config: Config) -> Location:
    return Location(config.output.url, config.output.storage_options, config.output.retry_seconds)


def problem_of(config: Config, dataset: Dataset) -> Problem:
    """The problem of [problem], built for this data set."""
    kind, prepared = config.problem.kind, dataset.layout.kind
    if config.kernel is not None:
        check_not_mapped(dataset)
    if not is_own(kind) and kind != prepared:
        check_prepared(kind, dataset)
    problem = fit_problem(kind, config.problem.options, dataset)
    check_unused_columns(dataset, problem)
    return problem


def mapped_problem(config: Config, dataset: Dataset, problem: Problem, client: Any) -> Problem:
    """The problem on mapped features, if there is a [kernel]; rows are drawn for the map on the cluster."""
    if config.kernel is None:
        return problem
    check_takes_map(problem)
    seed, options = config.solver.seed, config.data.storage_options
    known = map_of_start(config, dataset.n_features)
    with open_executor(config.cluster, dataset, problem, client) as executor:
        return with_map(problem, config.kernel, dataset, executor, seed, options, known)


def map_of_start(config: Config, n_inputs: int) -> FeatureMap | None:
    """The map of solver.start, if it was made as [kernel] says: appended shards must not change it."""
    start = start_of(config)
    if start is None or not isinstance(start.problem, Mapped):
        return None
    found = start.problem.feature_map
    same = start.config.get("kernel") == config.public()["kernel"] and found.n_inputs == n_inputs
    return found if same else None


def fit_problem(kind: str, options: Mapping[str, Any], dataset: Dataset) -> Problem:
    layout, classes = check_labelled(dataset).layout, dataset.classes
    made = make_problem(kind, options, n_features=layout.n_features, classes=classes, texts=dataset.texts)
    return made.fitted_to(float(dataset.largest_norm[0]))  # appending shards does not change it


def check_prepared(kind: str, dataset: Dataset) -> None:
    """Refuse data prepared for an incompatible problem, and name the remedy."""
    cls = class_of(kind)
    try:
        check_form(dataset, cls)
        fit_problem(kind, {}, dataset)
    except InputError as error:
        place, prepared = str(dataset.location), dataset.layout.kind
        found = str(error).removeprefix(f"{place}: ")
        other = 'a problem of your own, "module:Class"' if prepared == STRUCTURES else f"problem.kind = {prepared!r}"
        raise InputError(
            f"{place}: {found}; it was prepared for {other}: train that, or prepare it again with --problem {kind}"
        ) from None


def start_of(config: Config) -> Model | None:
    """The model of solver.start; user code is loaded only if the config names it."""
    if config.solver.start is None:
        return None
    return load_model(Location(config.solver.start, config.data.storage_options), own_kind(config))


def own_kind(config: Config) -> str | None:
    return config.problem.kind if is_own(config.problem.kind) else None


def check_unused_columns(dataset: Dataset, problem: Problem) -> None:
    """Refuse a column that the problem does not use, rather than ignore it."""
    if "margin" in dataset.layout.columns and not problem.uses_margin:
        raise InputError(
            f"{dataset.location}: the data set has a margin column, which a {problem.kind} problem does not use; "
            "prepare it without"
        )


def prior_of(config: Config, problem: Problem) -> Prior:
    """The prior of [prior], with its files read, and the signs of weights that the problem needs."""
    n_weights = problem.n_weights
    told, options = config.prior, config.data.storage_options
    mean = read_weights(told.mean, options, own_kind(config)) if told.mean else None
    precision: Floats | None = None
    if isinstance(told.precision, str):
        precision = read_array(told.precision, options, (1, 2))
    elif told.precision != 1.0:
        precision = np.full(n_weights, told.precision)
    ranges = [np.arange(found.start, found.stop) for found in map(index_range, told.nonnegative)]
    nonnegative = np.unique(np.concatenate([*ranges, problem.nonnegative_weights()])).astype(np.int64)
    return Prior(n_weights, mean, precision, nonnegative if len(nonnegative) else None, problem.free_bias)


def read_weights(url: str, options: Mapping[str, Any], own: str | None) -> Floats:
    """The weights of a model folder or a .npy file."""
    return read_array(url, options, (1,)) if url.endswith(".npy") else load_model(Location(url, options), own).w


def read_array(url: str, options: Mapping[str, Any], dimensions: tuple[int, ...]) -> Floats:
    folder, _, name = url.rpartition("/")
    return read_npy(Location(folder or ".", options), name, np.float64, dimensions)
