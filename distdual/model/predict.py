"""Predictions of a model for the examples of a data set, and their scores."""

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.cluster.open_executor import open_executor
from distdual.config import RETRY_SECONDS, ClusterConfig
from distdual.data.dataset import Dataset, open_dataset
from distdual.data.storage.location import Location
from distdual.data.validate import label_name
from distdual.errors import InputError
from distdual.kernels.rows import Floats, Ints
from distdual.model.io import Model, check_own_texts, load_model
from distdual.problems.base import Problem
from distdual.problems.latent.base import stated
from distdual.problems.registry import KindOrClass
from distdual.scan.scan import Source
from distdual.scan.shard_reader import streamed


@dataclass(frozen=True, slots=True)
class Predictions:
    labels: NDArray[Any]  # in data set order, one per example or token; numbers if all labels are
    score: dict[str, float] | None  # None if the model's problem cannot score the data set's labels
    lengths: Ints | None = None  # tokens per example, for sequences


def predict(
    model: str | Location,
    data: str | Location,
    client: Any = None,
    *,
    cluster: ClusterConfig | None = None,
    problem: KindOrClass | None = None,
) -> Predictions:
    """Predict every example of a data set, shard by shard, on a cluster if one is given.

    `problem` names the class of a model of a user's own problem.
    """
    known = load_model(model if isinstance(model, Location) else Location(model), problem)
    source = data if isinstance(data, Location) else Location(data)
    dataset = open_dataset(source.patient(RETRY_SECONDS))
    check_features(known, dataset)
    predicting = stated(known.problem)
    classes = tuple(predicting.describe()["classes"])
    judge = judge_of(predicting, classes, dataset.classes)
    with open_executor(cluster or ClusterConfig(), dataset, predicting, client) as executor:
        executor.publish(0, known.w)
        shards = range(dataset.n_shards)
        parts = list(executor.map_shards(predict_shard, shards, [judge] * len(shards)))
    predicted = np.concatenate([part.predicted for part in parts])
    labels = label_array(classes)[predicted] if classes and predicted.dtype.kind == "i" else predicted
    lengths = [part.lengths for part in parts if part.lengths is not None]
    score = add_up([part.score for part in parts])
    return Predictions(labels, score, np.concatenate(lengths) if lengths else None)


class PredictedShard(NamedTuple):
    predicted: NDArray[Any]
    score: dict[str, float] | None  # sums, where the labels are known to the model
    lengths: Ints | None


class Judge(NamedTuple):
    """A problem that scores predictions, and its codes of the data set's labels."""

    problem: Problem
    codes: list[int]


def judge_of(problem: Problem, classes: tuple[str, ...], labels: tuple[str, ...]) -> Judge | None:
    """Return the judge of a model's predictions, or None if it shares no labels with the data set."""
    unknown = tuple(label for label in labels if label not in classes)
    if bool(labels) != bool(classes) or (labels and len(unknown) == len(labels)):
        return None
    judge = problem.judge(unknown) if unknown else problem
    every = [*classes, *unknown]
    return None if judge is None else Judge(judge, [every.index(label) for label in labels])


def check_features(model: Model, dataset: Dataset) -> None:
    """Raise if feature numbers mean something else than in training."""
    check_own_texts(model.problem, dataset)
    found, known = dataset.layout.numbering, model.data.numbering
    if found and known and found != known:
        raise InputError(
            f"{dataset.location}: features are numbered otherwise than in the data set that the model was trained on, "
            f"{model.data.url}; prepare it with --vocabulary, or --grammar, and that data set"
        )
    check_width(model.problem.describe()["n_features"], dataset)


def check_width(expected: int, dataset: Dataset) -> None:
    found = dataset.layout.n_features
    if found > expected or (found < expected and not dataset.layout.sparse):
        raise InputError(f"{dataset.location}: {found} features, but the model was trained with {expected}")


def predict_shard(source: Source, problem: Problem, w: Floats, shard: int, judge: Judge | None) -> PredictedShard:
    """Predict one shard, and sum its scores if there is a judge, on a worker."""
    with streamed(source, shard) as loaded:
        found = loaded.shard
        predicted = problem.predict(w, found)
        spelt = problem.spell(found, predicted)
        lengths = None if found.tokens is None or spelt is not None else np.diff(found.tokens)
        score = None
        if judge is not None:
            y = np.array(judge.codes)[found.y] if judge.codes else found.y
            score = judge.problem.score_shard(found, y, predicted)
        return PredictedShard(predicted if spelt is None else spelt, score, lengths)


def add_up(scores: list[dict[str, float] | None]) -> dict[str, float] | None:
    """Return means from sums over shards, each divided by its own "n:name" if present, else by "n".

    A mean over nothing, such as the recall without spans, is left out.
    """
    there = [score for score in scores if score is not None]
    if len(there) < len(scores):
        return None
    total = {name: sum(score[name] for score in there) for name in there[0]}
    by = {name: total.get(f"n:{name}", total["n"]) for name in total if name != "n" and not name.startswith("n:")}
    return {name: total[name] / n for name, n in by.items() if n}


def label_array(classes: tuple[str, ...]) -> NDArray[Any]:
    """Return labels as integers if all are written as such, else as finite numbers, else as text."""
    for kind, spell in ((int, str), (float, label_name)):
        try:
            numbers = [kind(label) for label in classes]
            if all(
                spell(number) == label and math.isfinite(number) for number, label in zip(numbers, classes, strict=True)
            ):
                return np.array(numbers, dtype=np.int64 if kind is int else np.float64)
        except (ValueError, OverflowError):
            continue
    return np.array(classes)


def lines_of(labels: NDArray[Any], lengths: Ints | None) -> Iterator[str]:
    if lengths is None:
        yield from map(str, labels)
        return
    for tags in np.split(labels, np.cumsum(lengths)[:-1]):
        yield " ".join(map(str, tags))


def check_output(out: str) -> None:
    if not out.endswith((".txt", ".npy")):
        raise InputError(f"{out}: predictions are written as .txt or .npy; give the file such an ending")


def save_predictions(labels: NDArray[Any], out: Location, lengths: Ints | None = None) -> None:
    """Write one example per line to a .txt file, tags of a sequence separated by blanks, or a flat array to .npy."""
    check_output(out.url)
    folder, slash, name = out.url.rpartition("/")
    place = Location(folder or slash or ".", out.storage_options)
    if name.endswith(".txt"):
        content = "".join(f"{line}\n" for line in lines_of(labels, lengths)).encode()
    else:
        buffer = io.BytesIO()
        np.save(buffer, labels.astype(np.str_) if labels.dtype.kind == "O" else labels, allow_pickle=False)
        content = buffer.getvalue()
    place.write(name, content)
