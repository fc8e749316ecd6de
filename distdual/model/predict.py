"""Predictions of a model for the examples of a data set or of files, and their scores."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.cluster.open_executor import open_executor
from distdual.config import RETRY_SECONDS, ClusterConfig
from distdual.data.dataset import Dataset, open_dataset
from distdual.data.prediction_files import PredictionColumns, write_rows
from distdual.data.prepare.open_sources import Files
from distdual.data.preprocess.preprocessing import check_same
from distdual.data.shard import Shard
from distdual.data.sources.npy import ArrayNames
from distdual.data.sources.tables import frame_table, is_frame, is_records, records_table
from distdual.data.storage.location import Location, Place, as_location
from distdual.data.validate import label_name
from distdual.errors import InputError
from distdual.kernels.rows import Floats, Ints
from distdual.model.io import Model, check_own_texts, load_model
from distdual.model.raw_rows import RawShard, is_raw, known_columns, label_codes, raw_shards, table_shards
from distdual.problems.base import Best, Problem
from distdual.problems.latent.base import stated
from distdual.problems.registry import KindOrClass
from distdual.scan.scan import DatasetRef
from distdual.scan.shard_reader import streamed


@dataclass(frozen=True, slots=True)
class Predictions:
    labels: NDArray[Any]  # in the order of the data, one per example or token; numbers if all labels are
    score: dict[str, float] | None  # None if there are no labels, or if the model's problem cannot score them
    lengths: Ints | None = None  # tokens per example, for sequences
    scores: Floats | None = None  # (n,) or (n, K) decision values, if wanted
    classes: NDArray[Any] | None = None  # the label that each column of `scores` and `probabilities` belongs to
    probabilities: Floats | None = None  # (n, K), if wanted


class Part(NamedTuple):
    """The predictions of a shard."""

    predicted: NDArray[Any]
    score: dict[str, float] | None  # sums, where the labels are known to the model
    lengths: Ints | None = None
    decision: Floats | None = None
    best: Best | None = None


class WantedExtras(NamedTuple):
    """What is wanted besides predictions."""

    scores: bool = False
    top: int = 0  # the k best


class Judge(NamedTuple):
    """A problem that scores predictions, and its codes of the data set's labels."""

    problem: Problem
    codes: list[int]


class Predictor:
    """A model that is about to predict: what its numbers mean, and what is wanted besides predictions."""

    def __init__(self, model: Model, *, scores: bool = False, probabilities: bool = False, top: int = 0) -> None:
        self.model = model
        self.problem = stated(model.problem)
        self.names = tuple(self.problem.describe()["classes"])
        self.classes = label_array(self.names)
        self.wanted = WantedExtras(scores or probabilities, top)
        self.probabilities = probabilities
        if probabilities and model.calibration is None:
            raise InputError(
                "the model is not calibrated, so it gives no probabilities: `distdual calibrate` adds them to binary "
                "and multiclass models; decision values need no calibration"
            )

    def parts(self, data: Any, cluster: ClusterConfig, client: Any, arrays: ArrayNames) -> Iterator[Part]:
        """The predictions for a data set, shard by shard; or for files or a data frame, some rows at a time."""
        if is_records(data):
            data = records_table(data, known_columns(self.model).names, "the rows")
        if is_frame(data):
            return self.of_rows(table_shards(self.model, [frame_table(data)]))
        place = as_location(data)
        if is_raw(place):
            return self.of_rows(raw_shards(self.model, Files([place], arrays=arrays)))
        return self.of_dataset(open_dataset(place.patient(RETRY_SECONDS)), cluster, client)

    def of_dataset(self, dataset: Dataset, cluster: ClusterConfig, client: Any) -> Iterator[Part]:
        check_features(self.model, dataset)
        judge = judge_of(self.problem, self.names, dataset.classes) if is_labelled(dataset) else None
        shards = range(dataset.n_shards)
        with open_executor(cluster, dataset, self.problem, client) as executor:
            executor.publish(0, self.model.w)
            told = [(judge, self.wanted)] * len(shards)
            yield from executor.map_shards(predict_shard, shards, told)

    def of_rows(self, rows: Iterable[RawShard]) -> Iterator[Part]:
        for shard, labels in rows:
            judge, y = None, shard.y
            if labels is not None and self.names:
                names, y = label_codes(labels)
                judge = judge_of(self.problem, self.names, names)
            elif labels is not None and labels.dtype.kind in "biuf":
                judge, y = judge_of(self.problem, (), ()), labels.astype(np.float64)
            yield predicted_part(self.problem, self.model.w, shard, y, judge, self.wanted)

    def probabilities_of(self, decision: Floats) -> Floats:
        """(n, K) from decision values."""
        assert self.model.calibration is not None
        return self.model.calibration.probabilities(decision)

    def labels_of(self, predicted: NDArray[Any]) -> NDArray[Any]:
        """Labels instead of codes."""
        return self.classes[predicted] if self.names and predicted.dtype.kind == "i" else predicted


def predict(
    model: Place | Model,
    data: Any,
    client: Any = None,
    *,
    cluster: ClusterConfig | None = None,
    problem: KindOrClass | None = None,
    scores: bool = False,
    probabilities: bool = False,
    x: str | None = None,
    y: str | None = None,
) -> Predictions:
    """Predict every example of a data set, of files of rows, or of a data frame.

    A data set is read shard by shard, on a cluster if one is given. Files (CSV, Parquet, svmlight, NumPy, Zarr) and
    data frames hold raw rows, with or without labels, which are preprocessed as the training data were; `x` and `y`
    name the arrays of an .npz file. `scores` asks for decision values, `probabilities` for those of a calibrated model.
    `problem` names the class of a model of a user's own problem.
    """
    known = model if isinstance(model, Model) else load_model(model, problem)
    predictor = Predictor(known, scores=scores, probabilities=probabilities)
    parts = list(predictor.parts(data, cluster or ClusterConfig(), client, ArrayNames(x, y)))
    if not parts:
        raise InputError(f"{data}: there are no rows to predict")
    lengths = [part.lengths for part in parts if part.lengths is not None]
    decision = np.concatenate([part.decision for part in parts]) if predictor.wanted.scores else None
    return Predictions(
        predictor.labels_of(np.concatenate([part.predicted for part in parts])),
        add_up([part.score for part in parts]),
        np.concatenate(lengths) if lengths else None,
        decision if scores else None,
        predictor.classes if predictor.wanted.scores and predictor.names else None,
        predictor.probabilities_of(decision) if probabilities and decision is not None else None,
    )


class Written(NamedTuple):
    """What `predict_to` has done."""

    n_examples: int
    score: dict[str, float] | None


def predict_to(
    out: Location,
    model: Place | Model,
    data: Any,
    client: Any = None,
    *,
    cluster: ClusterConfig | None = None,
    problem: KindOrClass | None = None,
    scores: bool = False,
    probabilities: bool = False,
    top: int | None = None,
    x: str | None = None,
    y: str | None = None,
) -> Written:
    """The same, written to a file as predictions come, so that memory does not grow with the number of rows.

    `top` adds the K best classes of each row, or taggings of each sequence, in order, with their decision values.
    """
    known = model if isinstance(model, Model) else load_model(model, problem)
    predictor = Predictor(known, scores=scores, probabilities=probabilities, top=top or 0)
    if top is not None and known.problem.estimator in ("OrdinalSVC", "MultivariateSVC"):
        raise InputError(
            f"a model of kind {known.problem.kind} has one score for all classes, which --scores writes; "
            "leave --top out"
        )
    structured, n_classes = known.problem.most_best, len(predictor.names)
    if top is not None and not 1 <= top <= (structured or n_classes):
        most = f"{structured} taggings" if structured else f"the {n_classes} classes of the model"
        raise InputError(f"--top takes from 1 to {most}, got {top}")
    judged: list[dict[str, float] | None] = []

    def rows() -> Iterator[PredictionColumns]:
        for part in predictor.parts(data, cluster or ClusterConfig(), client, ArrayNames(x, y)):
            judged.append(part.score)
            if len(judged) > 1:
                judged[:] = [summed(judged)]
            yield prediction_columns(predictor, part, scores=scores, top=top, lines=out.url.endswith(".txt"))

    n = write_rows(rows(), out)
    if not judged:
        raise InputError(f"{data}: there are no rows to predict")
    return Written(n, add_up(judged))


def summed(scores: list[dict[str, float] | None]) -> dict[str, float] | None:
    """Sums over shards as one; None if any has none."""
    there = [score for score in scores if score is not None]
    if len(there) < len(scores):
        return None
    return {name: sum(score[name] for score in there) for name in there[0]}


def prediction_columns(
    predictor: Predictor, part: Part, *, scores: bool, top: int | None, lines: bool
) -> PredictionColumns:
    """The columns of a file of predictions; in a text file, a line has all tags of a sequence, or one number."""
    labels = predictor.labels_of(part.predicted)
    if part.lengths is not None and lines and predictor.names:
        labels = np.array(list(lines_of(labels, part.lengths)), dtype=object)
    columns: dict[str, NDArray[Any]] = {"prediction": labels}
    decision = part.decision
    if scores and decision is not None:
        if decision.ndim == 1:
            columns["score"] = decision
        else:
            columns |= {f"score {name}": decision[:, k] for k, name in enumerate(predictor.names)}
    if predictor.probabilities and decision is not None:
        found = predictor.probabilities_of(decision)
        columns |= {f"probability {name}": found[:, k] for k, name in enumerate(predictor.names)}
    if part.best is not None:
        names = np.array([*predictor.names, ""])  # a code of −1 has no tagging
        for k in range(part.best.labels.shape[1]):
            columns[f"tagging {k + 1}"] = names[part.best.labels[:, k]]
            columns[f"score of tagging {k + 1}"] = part.best.scores[:, k]
    elif top is not None and decision is not None:
        every = decision if decision.ndim == 2 else np.stack([-decision, decision], axis=1)
        best = np.argsort(-every, axis=1, kind="stable")[:, :top]
        for k in range(top):
            columns[f"class {k + 1}"] = predictor.classes[best[:, k]]
            columns[f"score of class {k + 1}"] = np.take_along_axis(every, best[:, k : k + 1], axis=1)[:, 0]
    return columns


def is_labelled(dataset: Dataset) -> bool:
    """Whether examples have labels, which rows to predict and structures need not have."""
    if not dataset.structured:
        return not dataset.layout.unlabelled
    return any(name == "y" or name.startswith("y_") for name in dataset.layout.runs)


def judge_of(problem: Problem, classes: tuple[str, ...], labels: tuple[str, ...]) -> Judge | None:
    """Return the judge of a model's predictions, or None if it shares no labels with the data set."""
    unknown = tuple(label for label in labels if label not in classes)
    if bool(labels) != bool(classes) or (labels and len(unknown) == len(labels)):
        return None
    judge = problem.judge(unknown) if unknown else problem
    every = [*classes, *unknown]
    return None if judge is None else Judge(judge, [every.index(label) for label in labels])


def check_features(model: Model, dataset: Dataset) -> None:
    """Raise if features mean something else than in training, or have another scale."""
    check_own_texts(model.problem, dataset)
    found, known = dataset.layout.numbering, model.data.numbering
    if found and known and found != known:
        raise InputError(
            f"{dataset.location}: features are numbered differently from the data set that the model was trained on, "
            f"{model.data.url}; prepare it with --vocabulary, or --grammar, and that data set"
        )
    if model.preprocessing is not None:
        remedy = "prepare it with --like and the model"
        check_same(model.preprocessing, dataset, "the model was trained on features", remedy)
    check_width(model.problem.describe()["n_features"], dataset)


def check_width(expected: int, dataset: Dataset) -> None:
    found = dataset.layout.n_features
    if found > expected or (found < expected and not dataset.layout.sparse):
        raise InputError(f"{dataset.location}: {found} features, but the model was trained with {expected}")


def predict_shard(
    source: DatasetRef, problem: Problem, w: Floats, shard: int, told: tuple[Judge | None, WantedExtras]
) -> Part:
    """Predict one shard, and sum its scores if there is a judge, on a worker."""
    with streamed(source, shard) as loaded:
        judge, wanted = told
        return predicted_part(problem, w, loaded.shard, loaded.shard.y, judge, wanted)


def predicted_part(
    problem: Problem, w: Floats, shard: Shard, labels: NDArray[Any], judge: Judge | None, wanted: WantedExtras
) -> Part:
    shard = problem.prepared(shard)
    predicted = problem.predict(w, shard)
    spelt = problem.spell(shard, predicted)
    lengths = None if shard.tokens is None or spelt is not None else np.diff(shard.tokens)
    score = None
    if judge is not None:
        y = np.array(judge.codes)[labels] if judge.codes else labels
        score = judge.problem.score_shard(shard, y, predicted)
    best = problem.k_best(w, shard, wanted.top) if wanted.top else None
    needs_decision = wanted.scores or (wanted.top > 0 and best is None)
    decision = problem.decision(w, shard) if needs_decision else None
    if needs_decision and decision is None:
        raise InputError(f"a {problem.kind} model has no decision values; leave --scores and --top out")
    return Part(predicted if spelt is None else spelt, score, lengths, decision, best)


def add_up(scores: list[dict[str, float] | None]) -> dict[str, float] | None:
    """Return means from sums over shards, each divided by its own "n:name" if present, else by "n".

    A mean over nothing, such as the recall without spans, is left out.
    """
    total = summed(scores)
    if total is None:
        return None
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
