"""Selection of C: certified models along a path of C, for each fold and for all data, each path from one cache.

Every fold is trained on the examples outside it and scored on its own, by the same workers that scan. The model at the
C with the best mean score is then trained on all examples and saved.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from distdual.cluster.base import Executor
from distdual.cluster.open_executor import one_client, open_executor
from distdual.config import ClusterConfig, Config, SolverConfig, from_table
from distdual.coordinator.auto_slack import choice_of
from distdual.coordinator.c_path import follow
from distdual.coordinator.checkpoint import Checkpoint
from distdual.coordinator.outcome import Outcome
from distdual.coordinator.result_model import model_of
from distdual.coordinator.run_inputs import data_of, mapped_problem, output_of, prior_of, problem_of
from distdual.coordinator.run_output import members_of, tidy
from distdual.coordinator.schedule import Cause
from distdual.coordinator.trainer import Trainer
from distdual.coordinator.whole_trainer import trainer_class
from distdual.data.dataset import Dataset, open_dataset
from distdual.data.storage.claim import Claim, claimed
from distdual.errors import InputError
from distdual.model.cv_scores import best_of, choose_score, held_out_scores, shared_names
from distdual.model.io import Model, check_output
from distdual.problems.base import Problem
from distdual.problems.latent.base import LatentProblem
from distdual.report.round_log import Round
from distdual.report.run_log import RunLog
from distdual.scan.cv_folds import Fold
from distdual.solver.regularizer import Prior


@dataclass(frozen=True, slots=True)
class Point:
    """One C of a path."""

    C: float
    lower: float
    upper: float | None  # None where inexact inference proves none
    gap: float | None
    certified: bool
    passes: int  # of this point alone, as the costs that follow
    oracle_calls: int
    seconds: float
    support: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep gives back."""

    points: list[Point]  # on all data, by ascending C
    folds: list[list[Point]]  # the same of each fold's path
    scores: dict[str, list[list[float]]]  # by name: of each fold, at each C
    score: str | None  # the name of the one that C is chosen by
    chosen: float | None  # the best C
    model: Model | None  # of all data at that C

    @property
    def certified(self) -> bool:
        """Whether the gap was proven at every point of every path, and for the model."""
        paths = [*self.points, *(point for fold in self.folds for point in fold)]
        return all(point.certified for point in paths) and (self.model is None or self.model.certificate["certified"])

    def mean(self, name: str) -> list[float]:
        """A score at each C, the mean over the folds."""
        return [float(value) for value in np.mean(self.scores[name], axis=0)]

    def table(self) -> dict[str, Any]:
        """All of it but the model's weights, as plain values."""
        return {
            "certified": self.certified,
            "score": self.score,
            "chosen": self.chosen,
            "points": [asdict(point) for point in self.points],
            "folds": [[asdict(point) for point in fold] for fold in self.folds],
            "scores": self.scores,
            "certificate": None if self.model is None else self.model.certificate,
        }


class SweepSetup(NamedTuple):
    """What the paths of one sweep share."""

    config: Config
    dataset: Dataset
    problem: Problem
    prior: Prior
    executor: Executor


def sweep(
    config: Config | Mapping[str, Any],
    C: str | Sequence[float],
    folds: int = 5,
    client: Any = None,
    *,
    score: str | None = None,
    watch: Callable[[str, Point], None] | None = None,
) -> Sweep:
    """Follow a path of C on each fold and on all data; save the model of the best C as `config` says.

    `C` is a sequence, or a text such as "1e-3:1e2:20" (from, to, how many, evenly spaced by ratio) or "0.1,1,10".
    `score` names the score to choose by, the problem's first if not given; without folds nothing is chosen or saved.
    `watch` is called after every point with the name of its path.
    """
    config = config if isinstance(config, Config) else from_table(config)
    values = grid(C)
    check_supported(config)
    output = output_of(config)
    if not folds:
        return sweep_claimed(config, values, folds, client, score, watch, None)
    check_output(output.patient(0), overwrite=config.output.overwrite)
    with claimed(output.patient(0)) as claim:
        return sweep_claimed(config, values, folds, client, score, watch, claim)


def sweep_claimed(
    config: Config,
    values: list[float],
    folds: int,
    client: Any,
    score: str | None,
    watch: Callable[[str, Point], None] | None,
    claim: Claim | None,
) -> Sweep:
    dataset = open_dataset(data_of(config))
    check_folds(folds, dataset)
    problem = problem_of(config, dataset)
    if isinstance(problem, LatentProblem):
        raise InputError(f"problem.kind = {problem.kind!r}: latent problems have no sweeps; train each C on its own")
    tell = watch or (lambda *_: None)
    with (
        RunLog(config.output.log) as runlog,
        one_client(config.cluster, client) as workers,
        executor_of(config, dataset, problem, workers) as executor,
    ):
        run = SweepSetup(config, dataset, executor.problem, prior_of(config, executor.problem), executor)
        paths, scores = [], []
        for number in range(folds):
            points, found = follow_fold(run, values, Fold(number, folds, config.solver.seed), tell)
            paths.append(points)
            scores.append(found)
            choose_score(shared_names(scores), score)  # a name that is none is told after the first fold
        named = {name: [[at[name] for at in fold] for fold in scores] for name in shared_names(scores)}
        by = choose_score(list(named), score) if folds else None
        best = None if by is None else values[best_of(named[by], by)]
        points, model = follow_all(run, values, best, runlog.write, tell, claim)
    return Sweep(points, paths, named, by, best, model)


@contextlib.contextmanager
def executor_of(config: Config, dataset: Dataset, problem: Problem, client: Any) -> Iterator[Executor]:
    """The executor of all paths, on mapped features if there is a [kernel]."""
    own = replace(config, cluster=ClusterConfig())
    problem = mapped_problem(own, dataset, problem, client)
    with open_executor(own.cluster, dataset, problem, client) as executor:
        yield executor


def grid(told: str | Sequence[float]) -> list[float]:
    """The values of C to try, ascending."""
    try:
        values = parse_values(told) if isinstance(told, str) else [float(value) for value in told]
    except (ValueError, TypeError, OverflowError):
        values = []
    if not values or not all(0 < value < np.inf for value in values):
        raise InputError(f"C takes positive numbers such as 1e-3:1e2:20 (from:to:how many) or 0.1,1,10, got {told!r}")
    return sorted(set(values))


def parse_values(told: str) -> list[float]:
    if ":" not in told:
        return [float(part) for part in told.split(",")]
    begin, end, number = told.split(":")
    if not (0 < float(begin) < np.inf and 0 < float(end) < np.inf):
        return []
    return [float(f"{value:.6g}") for value in np.geomspace(float(begin), float(end), int(number))]


def check_supported(config: Config) -> None:
    """Refuse settings that a path does not support."""
    solver = config.solver
    for name, told in (
        ("solver.start", solver.start is not None),
        ("solver.average", solver.average),
        ("solver.offender_cache", solver.offender_cache > 0),
        ('solver.schedule = "one-pass"', solver.schedule == "one-pass"),
        ("[kernel] without basis", config.kernel is not None and config.kernel.basis is None),
        ("[eval]", config.eval.url is not None),
        ("output.checkpoint_every", config.output.checkpoint_every > 0),
        ("output.mlflow", config.output.mlflow is not None),
        ("output.tensorboard", config.output.tensorboard is not None),
    ):
        if told:
            raise InputError(f"{name} is not possible in a sweep; leave it out, or train at a single C")


def check_folds(folds: int, dataset: Dataset) -> None:
    if folds < 0 or folds == 1:
        raise InputError(f"a sweep needs at least 2 folds, or 0 to follow the path without scores, got {folds}")
    if folds > dataset.n_examples:
        raise InputError(f"{dataset.location}: {dataset.n_examples} examples do not make {folds} folds")


def follow_fold(
    run: SweepSetup, values: list[float], fold: Fold, tell: Callable[[str, Point], None]
) -> tuple[list[Point], list[dict[str, float]]]:
    """The path of the examples outside a fold, and the scores of its models on those in it."""
    trainer = trainer_class(run.problem, run.config.solver.mode)(
        run.problem, run.dataset, run.executor, first(run.config, values), prior=run.prior, fold=fold
    )
    points, weights = [], []
    for point, outcome in watched(trainer, values, run.config.solver.gap):
        tell(f"fold {fold.number + 1} of {fold.n_folds}", point)
        points.append(point)
        weights.append(outcome.w)
    return points, held_out_scores(
        run.dataset, run.problem, run.executor, fold, np.stack(weights), trainer.state.version + 1
    )


def follow_all(
    run: SweepSetup,
    values: list[float],
    best: float | None,
    write: Callable[[Round], None],
    tell: Callable[[str, Point], None],
    claim: Claim | None,
) -> tuple[list[Point], Model | None]:
    """The path of all examples, and the model at the best C, to which it returns at the end."""
    config, dataset = run.config, run.dataset
    output = output_of(config)
    slack = choice_of(config.solver, dataset, run.problem).slack
    none = Checkpoint(output, every=0, run={})  # a sweep takes none
    with members_of(config, output, slack, none) if best is not None else contextlib.nullcontext() as members:
        notes = None if members is None else output.absolute() / members
        solver = first(config, values)
        trainer = trainer_class(run.problem, solver.mode)(
            run.problem, dataset, run.executor, solver, write, run.prior, notes
        )
        points = []
        for point, _ in watched(trainer, values, config.solver.gap):
            tell("all data", point)
            points.append(point)
        if best is None:
            return points, None
        (outcome,) = follow(trainer, [best], solver)
        told = replace(config, solver=replace(config.solver, C=best))
        model = model_of(outcome, told, dataset, run.problem, run.prior, members)
        model.save(output, overwrite=config.output.overwrite, claim=claim)
        tidy(outcome, model.dual, none)
    return points, model


def first(config: Config, values: list[float]) -> SolverConfig:
    return replace(config.solver, C=values[0])


def watched(trainer: Trainer, values: list[float], target: float) -> Iterator[tuple[Point, Outcome]]:
    """Follow the path, and say of each point what it cost by itself."""
    passes, calls, seconds = 0, 0, 0.0
    for C, outcome in zip(values, follow(trainer, values, trainer.config), strict=True):
        proven, totals = outcome.certificate, outcome.totals
        point = Point(
            C,
            proven.lower,
            proven.upper if proven.is_proven else None,
            proven.gap if proven.is_proven else None,
            proven.reaches(target) and outcome.stop.cause != Cause.CONTRADICTION,
            totals.passes - passes,
            totals.oracle_calls - calls,
            outcome.seconds - seconds,
            outcome.solver.n_support,
        )
        passes, calls, seconds = totals.passes, totals.oracle_calls, outcome.seconds
        yield point, outcome
