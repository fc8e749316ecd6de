"""The feature map of [kernel]: rows drawn from the data set in one distributed pass, and the map made of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distdual.cluster.base import Executor
from distdual.config import KernelConfig
from distdual.data.dataset import Dataset, open_dataset
from distdual.data.shard import join_rows
from distdual.data.storage.location import Location
from distdual.data.training_data import TrainingData
from distdual.errors import InputError
from distdual.feature_maps.feature_map import FeatureMap
from distdual.feature_maps.fourier import FourierMap
from distdual.feature_maps.kernel_function import KernelFunction
from distdual.feature_maps.landmarks import Moments, drawn
from distdual.feature_maps.make_map import (
    LANDMARK_ROWS,
    MAP_SAMPLE,
    SAMPLE_ROWS,
    function_of,
    map_of,
    n_drawn,
)
from distdual.feature_maps.nystroem import nystroem_map
from distdual.feature_maps.quality import quality
from distdual.kernels.rows import Features
from distdual.memory import check_room
from distdual.problems.base import Problem
from distdual.problems.mapped import check_takes_map, mapped
from distdual.scan.row_draw import Taken, Wanted, take_rows


def with_map(
    problem: Problem,
    kernel: KernelConfig | None,
    dataset: TrainingData,
    executor: Executor,
    seed: int,
    options: Mapping[str, Any],
    known: FeatureMap | None = None,
) -> Problem:
    """The problem on mapped features, if there is a kernel.

    Rows are drawn by seed; `options` are the fsspec options of a data set of landmarks. `known` is a map to take
    instead of a new one.
    """
    if kernel is None:
        return problem
    check_takes_map(problem)
    taken = take(kernel, dataset, executor, seed)
    made = known
    if made is None:
        function, rows = function_for(kernel, dataset, taken), joined([part.landmarks for part in taken])
        made = map_onto(kernel, function, dataset.n_features, rows, seed, options)
    return mapped(problem, made, quality(made, joined([part.sample for part in taken])))


def exact_kernel(kernel: KernelConfig, dataset: TrainingData, executor: Executor, seed: int) -> KernelFunction:
    """The kernel function itself; γ = "scale" takes a pass over the data."""
    taken = take(kernel, dataset, executor, seed) if kernel.gamma == "scale" else []
    return function_for(kernel, dataset, taken)


def function_for(kernel: KernelConfig, dataset: TrainingData, taken: Sequence[Taken]) -> KernelFunction:
    total = Moments()
    for part in taken:
        total = total.plus(part.moments)
    return function_of(kernel, dataset.n_features, total, str(dataset.location))


def stand_in(problem: Problem, kernel: KernelConfig | None, options: Mapping[str, Any]) -> Problem:
    """A problem on mapped features of the same width, for a dry run, which reads no landmarks."""
    if kernel is None:
        return problem
    check_takes_map(problem)
    if kernel.basis is None:
        raise InputError("--dry-run cannot estimate a run with an exact kernel; give kernel.basis")
    basis = open_dataset(Location(kernel.basis, options)).n_rows if isinstance(kernel.basis, str) else kernel.basis
    n_inputs = int(problem.describe()["n_features"])
    return mapped(problem, FourierMap(KernelFunction(kind="rbf", gamma=1.0), np.ones((n_inputs, -(-basis // 2)))))


def take(kernel: KernelConfig, dataset: TrainingData, executor: Executor, seed: int) -> list[Taken]:
    """Rows of each shard that has any."""
    counts = dataset.rows_of_shards
    landmarks = drawn(counts, n_drawn(kernel), seed, LANDMARK_ROWS)
    sample = drawn(counts, MAP_SAMPLE, seed, SAMPLE_ROWS)
    width = dataset.n_features if kernel.gamma == "scale" else None
    wanted = [Wanted(a, b, width) for a, b in zip(landmarks, sample, strict=True)]
    shards = [s for s, each in enumerate(wanted) if width or len(each.landmarks) or len(each.sample)]
    executor.publish(-1, np.zeros(0))
    return list(executor.map_shards(take_rows, shards, [wanted[s] for s in shards]))


def map_onto(
    kernel: KernelConfig,
    function: KernelFunction,
    n_inputs: int,
    rows: Features,
    seed: int,
    options: Mapping[str, Any],
) -> FeatureMap:
    """The map onto rows of the data set, or onto those of the data set kernel.basis."""
    if isinstance(kernel.basis, str):
        return nystroem_map(function, read_basis(open_dataset(Location(kernel.basis, options)), n_inputs), n_inputs)
    return map_of(kernel, function, n_inputs, rows, seed)


def read_basis(basis: Dataset, n_inputs: int) -> Features:
    """All rows of a data set of landmarks."""
    if basis.n_features > n_inputs or (basis.n_features < n_inputs and not basis.layout.sparse):
        raise InputError(f"{basis.location}: landmarks have {basis.n_features} features, the data set {n_inputs}")
    check_room(f"{basis.location}: the map onto all {basis.n_rows} rows", 8 * basis.n_rows * (2 * basis.n_rows))
    return joined([basis.read(s).shard.x for s in range(basis.n_shards)])


def joined(parts: Sequence[Features]) -> Features:
    return join_rows(list(parts))
