"""The suites: their cases, peers and measurements."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.growth import growth
from benchmarks.micro import micro
from benchmarks.scaling import scaling
from benchmarks.startup import startup
from benchmarks.table import Table

Measurement = Callable[[Path, Path, int], list[Table]]  # data folder, scratch folder, repetitions


@dataclass(frozen=True, kw_only=True)
class Suite:
    cases: tuple[str, ...] = ()
    peers: tuple[str, ...] | None = None
    """Those that take part; all that can solve the problem if not given."""

    measurements: tuple[Measurement, ...] = ()
    patience: float = 20.0
    """Seconds for a peer's tries, and as many for its repetitions: a slow one makes fewer of them."""


SUITES = {
    "linear": Suite(cases=("covtype", "mnist", "a9a", "imdb")),
    "multiclass": Suite(cases=("mnist10-0.01", "mnist10-1", "covtype7"), patience=60.0),
    "regression": Suite(cases=("housing",)),
    "chain": Suite(cases=("ocr", "conll")),
    "cfg": Suite(cases=("treebank-span", "treebank-zero-one")),
    "cluster": Suite(measurements=(growth, scaling)),
    "micro": Suite(measurements=(micro, startup)),
    "headline": Suite(
        cases=("covtype", "mnist", "imdb", "mnist10-0.01", "mnist10-1", "ocr"),
        peers=("LinearSVC", "snapml", "crfsuite lbfgs"),
        measurements=(micro, growth),
        patience=60.0,
    ),
    "tiny": Suite(cases=("tiny", "tiny3", "line", "links")),
}
WHOLE = ("linear", "multiclass", "regression", "chain", "cfg", "cluster", "micro")
