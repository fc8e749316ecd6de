"""python-crfsuite on the same features: conditional random fields, or averaged perceptrons; their own objectives.

They are judged by their scores, and timed with default settings until they stop by themselves.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.case import Case
from benchmarks.objective import Solution
from benchmarks.solvers.base import Ladder, Once, Peer
from distdual.data.shard import Shard
from distdual.kernels.rows import DenseRows


class Crfsuite(Peer):
    name: ClassVar[str] = "crfsuite lbfgs"
    package: ClassVar[str] = "python-crfsuite"
    kinds: ClassVar[tuple[str, ...]] = ("chain",)
    same: ClassVar[bool] = False
    effort: ClassVar[str] = "until it stops"
    algorithm: ClassVar[str] = "lbfgs"

    def ladder(self, case: Case) -> Ladder:  # noqa: ARG002
        return Once()

    def ready(self, case: Case) -> Callable[[float], Any]:
        import pycrfsuite

        data, tags = case.train(), case.problem.classes
        trainer = pycrfsuite.Trainer(algorithm=self.algorithm, verbose=False)
        for number in range(data.n_shards):
            shard = data.read(number).shard
            for features, at in sequences(shard):
                trainer.append(pycrfsuite.ItemSequence(features), [tags[code] for code in shard.y[at]])

        def fit(_: float) -> bytes:
            with tempfile.TemporaryDirectory(prefix="distdual-crfsuite-") as scratch:
                trainer.train(f"{scratch}/model")
                return Path(f"{scratch}/model").read_bytes()

        return fit

    def solution(self, case: Case, fitted: bytes) -> Solution:
        import pycrfsuite

        tagger = pycrfsuite.Tagger()
        tagger.open_inmemory(fitted)
        codes = {tag: code for code, tag in enumerate(case.problem.classes)}

        def predict(shard: Shard) -> Any:
            found = [codes[tag] for features, _ in sequences(shard) for tag in tagger.tag(features)]
            return np.array(found, dtype=np.int32)

        return Solution(None, predict)


class Perceptron(Crfsuite):
    name: ClassVar[str] = "crfsuite averaged perceptron"
    algorithm: ClassVar[str] = "averaged-perceptron"


def sequences(shard: Shard) -> Iterator[tuple[list[list[str]], slice]]:
    """Each sequence as a list of the numbers of the features each token has, and where its tokens are."""
    assert shard.tokens is not None
    if isinstance(shard.x, DenseRows):
        rows = [np.flatnonzero(row).astype(str) for row in shard.x.values]
    else:
        rows = np.split(np.char.mod("%d", shard.x.indices), shard.x.indptr[1:-1])
    for i in range(shard.n_examples):
        at = slice(int(shard.tokens[i]), int(shard.tokens[i + 1]))
        yield [row.tolist() for row in rows[at]], at
