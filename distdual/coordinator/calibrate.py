"""Calibration of a trained model: decision values of held-out folds, from which probabilities are learnt.

Every fold is scored by a model trained on the others, with the settings of the model, so that no score comes from an
example the model has seen. The workers that scan the data score it, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from distdual.certificate.verify import check_shape, trained_on
from distdual.cluster.base import Executor
from distdual.cluster.open_executor import open_executor
from distdual.config import RETRY_SECONDS, ClusterConfig, SolverConfig, parse
from distdual.coordinator.async_trainer import TRAINERS
from distdual.data.dataset import Dataset, open_dataset
from distdual.data.storage.claim import claimed
from distdual.data.storage.location import Location, Place, as_location
from distdual.errors import InputError
from distdual.kernels.rows import Floats, Int32s
from distdual.model.calibration import METHODS, Calibration, fit
from distdual.model.cv_scores import only
from distdual.model.io import Model, load_model
from distdual.problems.base import Problem
from distdual.problems.binary import Binary
from distdual.problems.expanded import Expanded
from distdual.problems.mapped import unmapped
from distdual.problems.multiclass import Multiclass
from distdual.scan.cv_folds import Fold
from distdual.scan.scan import DatasetRef

RUN_SETTINGS = ("start", "average", "offender_cache")  # of the model's own run, which say nothing about its folds


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The result of `calibrate`."""

    model: Model
    gaps: list[float]  # proven for the model of each fold
    certified: bool  # whether each is at most the model's target
    log_loss: float  # mean of −log p(label) on held-out scores, at the fitted curves


class Held(NamedTuple):
    """The decision values of one shard's examples of a fold."""

    example: Any
    scores: Floats
    y: Int32s
    weight: Floats


def calibrate(
    model: Place,
    client: Any = None,
    *,
    method: str = "sigmoid",
    folds: int = 5,
    data: Place | None = None,
    cluster: ClusterConfig | None = None,
    storage_options: Mapping[str, Any] | None = None,
    watch: Callable[[int, float], None] = lambda *_: None,
) -> Calibrated:
    """Learn probabilities for a model folder, and store them in it.

    `method` is "sigmoid" (Platt) or "isotonic"; `data` is the data set, if it has moved since the training. `watch` is
    called with the number and the gap of each fold's model.
    """
    folder = as_location(model, storage_options)
    if method not in METHODS:
        raise InputError(f"method is {' or '.join(METHODS)}, got {method!r}")
    with claimed(folder.patient(0)) as claim:
        trained = load_model(folder.patient(0))
        check_calibrated_kind(trained, folder)
        dataset = data_of_model(trained, folder, data, folds)
        seed = trained.config.get("solver", {}).get("seed", 0)
        with open_executor(cluster or ClusterConfig(), dataset, trained.problem, client) as executor:
            held, gaps = held_out(trained, dataset, executor, Fold(0, folds, seed), watch)
        n_classes = len(dataset.classes)
        found = Calibration(method, fit(method, held.scores, held.y, held.weight, n_classes), folds, seed)
        made = replace(trained, calibration=found)
        made.save(folder, overwrite=True, claim=claim)
    target = float(trained.certificate["target"])
    return Calibrated(made, gaps, max(gaps) <= target, mean_log_loss(found, held))


def check_calibrated_kind(model: Model, folder: Location) -> None:
    if isinstance(model.problem, Expanded):
        raise InputError(f"{folder}: a model with an exact kernel cannot be calibrated; give kernel.basis in training")
    if not isinstance(unmapped(model.problem), Binary | Multiclass):
        raise InputError(
            f"{folder}: a {model.problem.kind} model gives no probabilities; calibrate binary and multiclass models"
        )


def data_of_model(model: Model, folder: Location, data: Place | None, folds: int) -> Dataset:
    """The data set that the model was trained on."""
    if data is None and "data" not in model.config:
        raise InputError(
            f"{folder}: the model was trained by an estimator; name its data set: --data URL, or use "
            "sklearn.calibration.CalibratedClassifierCV for arrays"
        )
    place = as_location(data) if data is not None else Location(model.data.url, folder.storage_options)
    dataset = trained_on(model, open_dataset(place.patient(RETRY_SECONDS)))
    check_shape(model, dataset)
    if dataset.fingerprint != model.data.fingerprint:
        raise InputError(f"{dataset.location}: is not the data set that the model was trained on, {model.data.url}")
    if not 2 <= folds <= dataset.n_examples:
        raise InputError(f"folds go from 2 to the {dataset.n_examples} examples of {dataset.location}, got {folds}")
    return dataset


def solver_of(model: Model) -> SolverConfig:
    """The settings that the model was trained with, for its folds."""
    told = {key: value for key, value in model.config["solver"].items() if key not in RUN_SETTINGS}
    return replace(parse(SolverConfig, told, "model.json", "solver."), C=model.C)


def held_out(
    model: Model, dataset: Dataset, executor: Executor, first: Fold, watch: Callable[[int, float], None]
) -> tuple[Held, list[float]]:
    """The decision values of all examples, each by a model trained without its fold; and the gaps of those models."""
    parts, gaps = list[Held](), list[float]()
    for number in range(first.n_folds):
        fold = replace(first, number=number)
        trainer = TRAINERS[solver_of(model).mode](
            model.problem, dataset, executor, solver_of(model), prior=model.prior, fold=fold
        )
        outcome = trainer.run()
        gaps.append(outcome.certificate.gap)
        watch(number, gaps[-1])
        executor.publish(trainer.state.version + 1, outcome.w)
        shards = range(dataset.n_shards)
        parts += executor.map_shards(decide_held_out, shards, [fold] * len(shards))
    order = np.argsort(np.concatenate([part.example for part in parts]))
    return Held(*(np.concatenate(columns)[order] for columns in zip(*parts, strict=True))), gaps


def decide_held_out(source: DatasetRef, problem: Problem, w: Floats, shard: int, fold: Fold) -> Held:
    """The decision values of one shard's examples of a fold; runs on a worker."""
    whole = source.open().read(shard).shard
    example = np.arange(whole.first, whole.first + whole.n_examples)
    chosen = np.flatnonzero(fold.holds(example))
    part = problem.prepared(only(whole, chosen))
    scores = problem.decision(w, part)
    assert scores is not None
    weight = np.ones(len(chosen)) if part.cost is None else part.cost
    return Held(example[chosen], scores, part.y.astype(np.int32), weight)


def mean_log_loss(found: Calibration, held: Held) -> float:
    p = np.take_along_axis(found.probabilities(held.scores), held.y[:, None].astype(np.int64), axis=1)[:, 0]
    with np.errstate(divide="ignore"):
        return float(np.average(-np.log(p), weights=held.weight))
