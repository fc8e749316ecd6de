"""Evidence against problem, data or dual stops a run or denies its certificate."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from distdual import UserProblem, train, verify
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from distdual.solver.gap import contradiction, is_certified


@dataclass(frozen=True, kw_only=True)
class Classes(UserProblem):
    """Multiclass in plain Python."""

    @property
    def n_weights(self) -> int:
        return self.n_features * len(self.classes)

    def feature_map(self, x: Any, y: int) -> Any:
        phi = np.zeros((len(self.classes), self.n_features))
        phi[y] = x
        return phi.ravel()

    def loss(self, y_true: int, y: int) -> float:
        return float(y != y_true)

    def argmax(self, w: Any, x: Any, y_true: int) -> int:
        scores = w.reshape(len(self.classes), -1) @ x + (np.arange(len(self.classes)) != y_true)
        return int(self.choose(scores))

    def choose(self, scores: Any) -> int:
        return int(np.argmax(scores))

    def outputs(self, x: Any) -> Any:
        return range(len(self.classes))


class Worst(Classes):
    """Its argmax is an argmin once w is not 0."""

    def choose(self, scores: Any) -> int:
        return int(np.argmin(scores)) if np.unique(scores).size > 2 else int(np.argmax(scores))


class Forgetful(Classes):
    """It overlooks the last class once w is not 0, and returns the right output instead."""

    def argmax(self, w: Any, x: Any, y_true: int) -> int:
        return super().argmax(w, x, y_true) if not w.any() else y_true


class Paying(Classes):
    def loss(self, y_true: int, y: int) -> float:
        return -1.0 if y != y_true else 0.0


class Harsh(Classes):
    def loss(self, y_true: int, y: int) -> float:
        return 1.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("contradiction") / "data"
    rng = np.random.default_rng(3)
    x = rng.normal(size=(40, 3)).astype(np.float32)
    prepare_arrays(x, np.digitize(x[:, 0] + 0.3 * rng.normal(size=40), [-0.5, 0.5]), folder, "multiclass")
    return str(folder)


@pytest.fixture(autouse=True)
def without_probe(monkeypatch):
    """Without the probe of oracles, which would notice these first."""
    monkeypatch.setattr("distdual.problems.user.oracle.probe", lambda *_: None)


def run(cls: type[UserProblem], data: str, folder: Any, **solver: Any) -> Any:
    config = {"data": {"url": data}, "problem": {"kind": f"{__name__}:{cls.__name__}"}}
    return train({**config, "output": {"url": str(folder)}, "solver": {"slack": "example", **solver}})


def test_an_oracle_that_keeps_its_word_is_certified(data, tmp_path):
    found = run(Classes, data, tmp_path / "model")
    assert found.certificate["certified"]
    assert verify(str(tmp_path / "model"), problem=Classes).certified


@pytest.mark.parametrize(
    ("cls", "sentence"),
    [
        (Worst, r"example \d+: the oracle returned an output with slack -\S+, below the slack 0 of the right output"),
        (Paying, r"example \d+ \(shard \d+\): loss is -1 for the output"),
        (Harsh, r"example \d+ \(shard \d+\): loss\(y, y\) is 1 for the right output; it must be 0"),
    ],
)
def test_what_no_oracle_returns_stops_the_run_and_names_the_example(cls, sentence, data, tmp_path):
    with pytest.raises(InputError, match=sentence):
        run(cls, data, tmp_path / "model")
    assert not (tmp_path / "model" / "model.json").exists()


def test_an_oracle_that_overlooks_what_it_returned_before_is_not_exact(data, tmp_path):
    found = run(Forgetful, data, tmp_path / "model", max_passes=20)
    assert not found.certificate["certified"]
    assert found.certificate["stopped_by"] == "contradiction"
    assert "oracle is not exact" in found.certificate["reason"]
    checked = verify(str(tmp_path / "model"), problem=Forgetful)
    assert not checked.certified
    assert any("oracle is not exact" in finding for finding in checked.findings)


def test_an_oracle_of_ours_is_compared_with_the_cache_when_a_run_ends(data, tmp_path, monkeypatch):
    monkeypatch.setattr("distdual.coordinator.trainer.is_built_in", lambda _: True)
    found = run(Forgetful, data, tmp_path / "model", max_passes=20)
    assert not found.certificate["certified"]
    assert found.certificate["stopped_by"] == "contradiction"
    assert "oracle is not exact" in found.certificate["reason"]


def test_the_sentence_names_all_that_can_be_wrong():
    assert contradiction(1.0, 1.0) is None
    sentence = contradiction(2.1411116, 1.5460834)
    assert sentence is not None
    for word in ("problem", "data", "dual"):
        assert word in sentence
    assert not is_certified(2.1411116, 1.5460834, 1e-3)
