"""Cross-validation scores: models of a C path on held-out folds, and the best C."""

from typing import Any

import numpy as np

from distdual.cluster.base import Executor
from distdual.data.dataset import Dataset
from distdual.data.shard import Block, Shard
from distdual.errors import InputError
from distdual.kernels.rows import Floats
from distdual.model.predict import Judge, add_up, judge_of
from distdual.problems.base import Problem
from distdual.scan.cv_folds import Fold
from distdual.scan.scan import DatasetRef

SMALLER_IS_BETTER = ("loss", "error")  # suffixes of such scores' names
NO_ANSWER = "the labels of the data set cannot be scored"


def held_out_scores(
    dataset: Dataset, problem: Problem, executor: Executor, fold: Fold, weights: Floats, version: int
) -> list[dict[str, float]]:
    """Return the mean scores on the fold for each row of weights, reading every shard once."""
    judge = judge_of(problem, tuple(problem.describe()["classes"]), dataset.classes)
    if judge is None:
        raise InputError(f"{dataset.location}: {NO_ANSWER}")
    executor.publish(version, weights)
    shards = range(dataset.n_shards)
    judged = [(judge, fold)] * len(shards)
    by_shard = [part for part in executor.map_shards(score_held_out, shards, judged) if part]
    return [add_up([part[at] for part in by_shard]) or {} for at in range(len(weights))]


def score_held_out(
    source: DatasetRef, problem: Problem, weights: Floats, shard: int, judged: tuple[Judge, Fold]
) -> list[dict[str, float]]:
    """Sum the scores of one shard's examples of a fold, for each row of weights, on a worker."""
    judge, fold = judged
    whole = source.open().read(shard).shard
    held = np.flatnonzero(fold.holds(np.arange(whole.first, whole.first + whole.n_examples)))
    if not len(held):
        return []
    found = problem.prepared(only(whole, held))
    y = np.array(judge.codes)[found.y] if judge.codes else found.y
    return [judge.problem.score_shard(found, y, problem.predict(w, found)) for w in weights]


def only(shard: Shard, chosen: Any) -> Shard:
    """Copy the chosen examples of a shard."""
    block = Block(shard.x, shard.y, shard.cost, shard.margin, shard.tokens, shard.runs)
    return Shard(shard.number, shard.first, *block.take(chosen))


def shared_names(scores: list[list[dict[str, float]]]) -> list[str]:
    """Return the scores that every fold has at every C; a recall without spans, for example, is undefined."""
    every = [at for fold in scores for at in fold]
    return [name for name in every[0] if all(name in at for at in every)] if every else []


def choose_score(names: list[str], chosen: str | None) -> str:
    if not names:
        raise InputError(f"no score to choose C by: {NO_ANSWER}")
    if chosen is not None and chosen not in names:
        raise InputError(f"the score to choose by is one of {', '.join(names)}, got {chosen}")
    return chosen or names[0]


def best_of(by_fold: list[list[float]], name: str) -> int:
    """Return the index with the best mean over the folds; ties go to the smallest C."""
    mean = np.mean(by_fold, axis=0)
    return int(np.argmin(mean) if name.endswith(SMALLER_IS_BETTER) else np.argmax(mean))
