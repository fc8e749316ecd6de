"""Scores on an `eval_set` while an estimator is fitted."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from distdual.cluster.base import Executor
from distdual.cluster.collection import client_of, open_collection
from distdual.coordinator.evaluation import Evaluation, evaluating
from distdual.data.preprocess.preprocessing import RAW
from distdual.data.sources.partitions import is_collection
from distdual.errors import InputError
from distdual.estimators.inputs import Data, Given, check_columns_of, is_path
from distdual.problems.base import Problem
from distdual.report.round_log import Round


@contextlib.contextmanager
def evaluation_of(
    estimator: Any, eval_set: Any, data: Data, problem: Problem, executor: Executor
) -> Iterator[Evaluation | None]:
    """Evaluate on `eval_set` where `executor` scans; None without one."""
    check_patience(estimator, eval_set)
    if eval_set is None:
        yield None
        return
    dataset, patience = eval_data(estimator, eval_set, problem), int(estimator.patience)
    with evaluating(data, dataset, problem, executor, patience) as evaluation:
        yield evaluation


def check_patience(estimator: Any, eval_set: Any) -> None:
    name, patience = type(estimator).__name__, estimator.patience
    if isinstance(patience, bool) or not isinstance(patience, int | np.integer) or patience < 0:
        raise InputError(f"{name}: patience must be an integer of at least 0, got {patience!r}")
    if patience and eval_set is None:
        raise InputError(f"{name}: patience needs examples to score, the eval_set of fit of SVC and SVR")


def eval_data(estimator: Any, eval_set: Any, problem: Problem) -> Data:
    """The examples of an `eval_set`: (X, y), or the path or URL of a data set."""
    if is_path(eval_set):
        stored: Data = estimator._open_like(eval_set, Given())
        return stored
    if not isinstance(eval_set, tuple) or len(eval_set) != 2:
        raise InputError("eval_set must be a tuple (X, y), or the path or URL of a data set")
    if estimator.preprocessing_.fingerprint != RAW.fingerprint:
        raise InputError("eval_set must be a data set that was prepared like the one to train on, not arrays")
    x, y = eval_set
    client = (estimator.client or client_of(x)) if is_collection(x) else None
    if client is None:
        here: Data = estimator._dataset(estimator._block(x, Given(y), first=False, keep=False))
        return here
    check_columns_of(estimator, x, reset=False)
    return open_collection(client, x, y, regression=not problem.describe()["classes"])


def hooks(evaluation: Evaluation | None) -> dict[str, Any]:
    """The arguments of a trainer that let it evaluate."""
    return {} if evaluation is None else {"between": evaluation.after_round, "validation": evaluation.verdict}


def to_all(receivers: Sequence[Callable[[Round], Any]]) -> Callable[[Round], None]:
    def watch(line: Round) -> None:
        for receive in receivers:
            receive(line)

    return watch


def evaluated(line: Round) -> dict[str, float]:
    """An entry of `evaluations_`."""
    return {"passes": line.totals["passes"], "seconds": line.seconds, **line.scores}
