"""A new problem in one file: prepare, train, verify and predict with the class "toy:Toy"."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.shell import assert_refused, call

TOY = '''
"""Absolute regression: ξ_i = |target_i − ⟨w, x_i⟩|, the larger of two sides."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from distdual.data.data_spec import DataSpec
from distdual.kernels.rows import DenseRows, as_dense
from distdual.problems.base import Constraints, Keys, Offenders, Problem


@dataclass(frozen=True, kw_only=True)
class Toy(Problem):
    data_spec: ClassVar[DataSpec] = DataSpec(labels="targets")

    n_features: int
    classes: tuple[str, ...] = ()
    half: bool = False

    @property
    def n_weights(self):
        return self.n_features

    def offenders(self, w, shard):
        off = shard.y - self.predict(w, shard)
        return Offenders(np.abs(off), Keys(np.arange(len(off) + 1), (off < 0).astype(np.int32)))

    def costs(self, shard):
        return np.full(shard.n_examples, 0.5 if self.half else 1.0)

    def constraints(self, shard, chosen, keys):
        sign = np.where(keys.values == 0, 1.0, -1.0)
        rows = DenseRows((sign[:, None] * self.dense(shard)[chosen]).astype(np.float32))
        return Constraints(shard.first + chosen, self.costs(shard)[chosen], sign * shard.y[chosen], rows, keys)

    def predict(self, w, shard):
        return self.dense(shard) @ w

    def score(self, y, predicted):
        return {"n": float(len(y)), "absolute_error": float(np.abs(y - predicted).sum())}

    def describe(self):
        return {"kind": self.kind, "n_features": self.n_features, "classes": [], "half": self.half}

    def dense(self, shard):
        return as_dense(shard.x, self.n_features).values.astype(np.float64)
'''

CONFIG = """
[data]
url = "data"
[problem]
kind = "toy:Toy"
half = true
[solver]
C = 10.0
gap = 1e-3
[output]
url = "model"
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module, its config and its data in the current folder; what is imported from there is forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "toy", raising=False)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.01 * rng.normal(size=120)
    rows = [" ".join(f"{j + 1}:{value:.4f}" for j, value in enumerate(row)) for row in x]
    lines = [f"{target:.4f} {row}" for target, row in zip(y, rows, strict=True)]
    (tmp_path / "source.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "toy.toml").write_text(CONFIG)


def test_a_new_problem_is_one_file(capsys):
    name = ["--problem", "toy:Toy"]
    made = call(capsys, "prepare", "source.txt", "data", *name, "--json")
    assert made.code == 0, made.err
    trained = call(capsys, "train", "toy.toml", "--json")
    assert trained.code == 0, trained.err
    checked = call(capsys, "verify", "model", *name, "--json")
    assert checked.code == 0, checked.err
    assert json.loads(checked.out)["upper"] == pytest.approx(json.loads(trained.out)["upper"])
    predicted = call(capsys, "predict", "model", "data", "--out", "targets.npy", *name, "--json")
    assert predicted.code == 0, predicted.err
    assert json.loads(predicted.out)["score"]["absolute_error"] < 0.05
    assert_refused(call(capsys, "verify", "model"), "toy:Toy, which is code that would be run")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"    def costs": "    def cost_s"}, ["toy:Toy: costs must be defined"]),
        ({"@dataclass(frozen=True, kw_only=True)": ""}, ["toy:Toy: n_features, classes must be defined"]),
        ({"    half:": "    kind = 'toy'\n    half:"}, ["its kind is 'toy'", "leave it out"]),
        ({"(Problem)": "(object)"}, ["no class Toy", "subclass of distdual.UserProblem or distdual.problems.base"]),
    ],
)
def test_a_class_that_is_no_whole_problem_is_refused(capsys, change, words):
    text = TOY
    for old, new in change.items():
        text = text.replace(old, new)
    Path("toy.py").write_text(text)
    assert_refused(call(capsys, "prepare", "source.txt", "data", "--problem", "toy:Toy"), *words)


def test_an_unknown_problem_is_refused_with_the_names_of_those_there_are(capsys):
    ran = call(capsys, "prepare", "source.txt", "data", "--problem", "toys")
    assert_refused(ran, "problem must be one of 'binary', ", "'package.module:Class', got 'toys'")
