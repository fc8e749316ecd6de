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
from distdual.feature_maps.fourier import FourierMap, fourier_map
from distdual.feature_maps.kernel_function import KernelFunction
from distdual.feature_maps.landmarks import CANDIDATES, Moments, drawn, kmeans_plus_plus
from distdual.feature_maps.nystroem import nystroem_map
from distdual.feature_maps.quality import quality
from distdual.kernels.rows import Features
from distdual.memory import check_room
from distdual.problems.base import Problem
from distdual.problems.mapped import check_takes_map, mapped
from distdual.scan.row_draw import Taken, Wanted, take_rows

MAP_SAMPLE = 500  # rows that judge the map
LANDMARK_ROWS, SAMPLE_ROWS = 1, 2  # streams of random numbers


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
        function, rows = function_of(kernel, dataset, taken), joined([part.landmarks for part in taken])
        made = map_of(kernel, function, dataset.n_features, rows, seed, options)
    return mapped(problem, made, quality(made, joined([part.sample for part in taken])))


def exact_kernel(kernel: KernelConfig, dataset: TrainingData, executor: Executor, seed: int) -> KernelFunction:
    """The kernel function itself; γ = "scale" takes a pass over the data."""
    taken = take(kernel, dataset, executor, seed) if kernel.gamma == "scale" else []
    return function_of(kernel, dataset, taken)


def function_of(kernel: KernelConfig, dataset: TrainingData, taken: Sequence[Taken]) -> KernelFunction:
    total = Moments()
    for part in taken:
        total = total.plus(part.moments)
    gamma = gamma_of(kernel, dataset, total)
    return KernelFunction(kind=kernel.kind, gamma=gamma, degree=kernel.degree, coef0=kernel.coef0)


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


def n_drawn(kernel: KernelConfig) -> int:
    """Landmarks, or candidates for them, to draw from the data set."""
    if kernel.map == "fourier" or not isinstance(kernel.basis, int):
        return 0
    return kernel.basis * (CANDIDATES if kernel.landmarks == "k-means++" else 1)


def gamma_of(kernel: KernelConfig, dataset: TrainingData, total: Moments) -> float:
    """γ as scikit-learn has it: "scale" is 1 / (n_features · variance), "auto" is 1 / n_features."""
    if kernel.gamma == "auto":
        return 1.0 / dataset.n_features
    if kernel.gamma != "scale":
        return float(kernel.gamma)
    if not total.variance > 0:
        raise InputError(
            f'{dataset.location}: all features are equal, so that kernel.gamma = "scale" is undefined; give a number'
        )
    return 1.0 / (dataset.n_features * total.variance)


def map_of(
    kernel: KernelConfig,
    function: KernelFunction,
    n_inputs: int,
    rows: Features,
    seed: int,
    options: Mapping[str, Any],
) -> FeatureMap:
    assert kernel.basis is not None
    if isinstance(kernel.basis, str):
        return nystroem_map(function, read_basis(open_dataset(Location(kernel.basis, options)), n_inputs), n_inputs)
    check_room(f"the map of kernel.basis = {kernel.basis}", 8 * kernel.basis * (2 * kernel.basis + n_inputs))
    if kernel.map == "fourier":
        return fourier_map(function, n_inputs, kernel.basis, seed)
    if kernel.landmarks == "k-means++":
        rows = kmeans_plus_plus(rows, kernel.basis, n_inputs, seed)
    return nystroem_map(function, rows, n_inputs)


def read_basis(basis: Dataset, n_inputs: int) -> Features:
    """All rows of a data set of landmarks."""
    if basis.n_features > n_inputs or (basis.n_features < n_inputs and not basis.layout.sparse):
        raise InputError(f"{basis.location}: landmarks have {basis.n_features} features, the data set {n_inputs}")
    check_room(f"{basis.location}: the map onto all {basis.n_rows} rows", 8 * basis.n_rows * (2 * basis.n_rows))
    return joined([basis.read(s).shard.x for s in range(basis.n_shards)])


def joined(parts: Sequence[Features]) -> Features:
    return join_rows(list(parts))
