"""Of every few neighbours, the example nearest to the decision boundary brings a constraint."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdual
from distdual.errors import InputError
from distdual.problems.binary import Binary
from distdual.problems.multiclass import Multiclass
from distdual.scan.selection import selected
from tests.build import CLASSES, examples, shard_of, write

W = np.array([1.0, -2.0, 0.5])


def test_of_each_pool_the_smallest_score_is_chosen():
    shard = shard_of(examples(0, 17, 3))
    found = selected(Binary(n_features=3, classes=CLASSES), W, shard, 5)
    distance = np.abs(np.asarray(shard.x.values, dtype=float) @ W)
    expected = [5 * k + int(np.argmin(distance[5 * k : 5 * k + 5])) for k in range(4)]
    assert np.flatnonzero(found).tolist() == expected


def test_of_several_classes_the_smallest_lead_is_chosen():
    shard, w = shard_of(examples(1, 8, 3)), np.random.default_rng(0).normal(size=(3, 3))
    found = selected(Multiclass(n_features=3, classes=("a", "b", "c")), w.ravel(), shard, 4)
    scores = np.sort(np.asarray(shard.x.values, dtype=float) @ w.T, axis=1)
    lead = scores[:, 2] - scores[:, 1]
    assert np.flatnonzero(found).tolist() == [int(np.argmin(lead[:4])), 4 + int(np.argmin(lead[4:]))]


def config(folder: Path, **solver: Any) -> dict[str, Any]:
    if not (folder / "data").exists():
        write(folder / "data", examples(2, 600, 4, flip=0.1))
    return {
        "data": {"url": str(folder / "data")},
        "problem": {"kind": "binary", "bias": 1.0},
        "solver": {"gap": 1e-4, "schedule": "reprocess:2", **solver},
        "output": {"url": str(folder / "model"), "overwrite": True},
    }


@pytest.mark.parametrize("mode", ["deterministic", "async"])
def test_a_pass_takes_few_examples_in_and_the_run_still_certifies(mode: str, tmp_path: Path) -> None:
    found = distdual.train(config(tmp_path, select="margin:20", mode=mode, max_passes=1)).certificate
    assert 0 < found["cache_rows"] <= 600 / 20 + 40  # pieces may end within a pool
    assert not found["certified"]
    found = distdual.train(config(tmp_path, select="margin:20", mode=mode)).certificate
    assert found["certified"]
    assert distdual.verify(str(tmp_path / "model")).certified


@pytest.mark.parametrize(
    ("solver", "words"),
    [
        ({"select": "margin:20", "slack": "block:4"}, 'needs solver.slack = "example"'),
        ({"select": "nearest"}, "solver.select"),
        ({"schedule": "slope", "process": False}, 'needs the schedule "reprocess:K"'),
    ],
)
def test_what_cannot_be_selected_is_refused(solver: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        distdual.train(config(tmp_path, **solver))
