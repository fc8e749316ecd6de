"""Scores of certified weights on another data set while training, and the stop once they no longer improve."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from distdual.cluster.base import Executor
from distdual.cluster.open_executor import AnyDataset, open_beside
from distdual.config import EvalConfig
from distdual.coordinator.trainer import Trainer
from distdual.data.dataset import Dataset, check_labelled, open_dataset
from distdual.data.preprocess.preprocessing import check_same, of_dataset
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import Floats
from distdual.model.cv_scores import SMALLER_IS_BETTER, choose_score
from distdual.model.predict import WantedExtras, add_up, check_width, judge_of, predict_shard
from distdual.problems.base import Problem
from distdual.problems.latent.base import stated
from distdual.report.round_log import Round

Scores = dict[str, float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores the best weights whenever a pass has certified new ones."""

    measure: Callable[[Floats], Scores]
    patience: int = 0
    score: str | None = None  # that patience follows

    def after_round(self, trainer: Trainer) -> None:
        state = trainer.state
        if state.best_version < 0 or state.best_version == last_scored(state.history):
            return
        scores = self.measure(state.best_w)
        check_score(self.score, scores)
        trainer.recorder.score(scores, state.best_version)

    def verdict(self, trainer: Trainer) -> str | None:
        """Why training should stop, if it should."""
        return too_patient(trainer.state.history, self.patience, self.score)


def check_score(name: str | None, scores: Scores) -> None:
    """Refuse a score that there is not, as soon as it is known which there are."""
    if name is not None and name not in scores:
        raise InputError(f"eval.score is one of {', '.join(scores)}, got {name!r}")


def last_scored(history: Sequence[Round]) -> int:
    """The version of the weights that were scored last; −1 before any."""
    return next((line.scored for line in reversed(history) if line.scores), -1)


def too_patient(history: Sequence[Round], patience: int, score: str | None = None) -> str | None:
    """A sentence once `patience` evaluations in a row have brought no better score; None until then."""
    every = [line.scores for line in history if line.scores]
    if not patience or len(every) <= patience:
        return None
    name = choose_score(list(every[0]), score)
    values = [-scores[name] if name.endswith(SMALLER_IS_BETTER) else scores[name] for scores in every]
    before = max(values[:-patience])
    if max(values[-patience:]) > before:
        return None
    times = f"{patience} evaluation{'s' * (patience > 1)}"
    return f"the validation score {name} has not improved for {times}"


@contextlib.contextmanager
def open_evaluation(
    config: EvalConfig, training: Dataset, problem: Problem, executor: Executor
) -> Iterator[Evaluation | None]:
    """Evaluate where `executor` scans; None without a data set to evaluate on."""
    if config.url is None:
        yield None
        return
    dataset = open_dataset(Location(config.url, config.storage_options, config.retry_seconds))
    check_evaluable(training, dataset)
    with evaluating(training, dataset, problem, executor, config.patience, config.score) as evaluation:
        yield evaluation


@contextlib.contextmanager
def evaluating(
    training: AnyDataset,
    dataset: AnyDataset,
    problem: Problem,
    executor: Executor,
    patience: int,
    score: str | None = None,
) -> Iterator[Evaluation]:
    """Evaluate on `dataset`, whose features mean the same as those of `training`, where `executor` scans."""
    problem = stated(problem)
    judge = judge_of(problem, training.classes, dataset.classes)
    if judge is None:
        raise InputError(f"{dataset.location}: its labels are not those of {training.location}, and cannot be scored")
    versions = itertools.count()
    with open_beside(executor, dataset, problem) as own:

        def measure(w: Floats) -> Scores:
            own.publish(next(versions), w)
            told = [(judge, WantedExtras())] * dataset.n_shards
            parts = own.map_shards(predict_shard, range(dataset.n_shards), told)
            return add_up([part.score for part in parts]) or {}

        yield Evaluation(measure, patience, score)


def check_evaluable(training: Dataset, dataset: Dataset) -> None:
    """Raise unless the features of both data sets mean the same."""
    check_labelled(dataset)
    check_same(of_dataset(training), dataset, f"{training.location} was", f"prepare it with --like {training.location}")
    if training.layout.numbering != dataset.layout.numbering:
        raise InputError(
            f"{dataset.location}: its features are numbered differently from those of {training.location}; "
            f"prepare it with --like {training.location}"
        )
    check_width(training.n_features, dataset)
