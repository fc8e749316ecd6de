"""A run that begins where another model ended."""

from pathlib import Path
from typing import Any

import pytest

import distdual
from distdual.coordinator.run import Result
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from tests.build import Examples, examples


def data_at(path: Path, made: Examples, **options: Any) -> str:
    prepare_arrays(made.x, made.y, str(path), "binary", shard_bytes=2000, **options)
    return str(path)


def train(tmp_path: Path, data: str, name: str, problem: Any = None, prior: Any = None, **solver: Any) -> Result:
    return distdual.train(
        {
            "data": {"url": data},
            "problem": {"kind": "binary", **(problem or {})},
            "solver": {"C": 0.1, "gap": 1e-4, **solver},
            "prior": prior or {},
            "output": {"url": str(tmp_path / name)},
        }
    )


@pytest.fixture
def base(tmp_path: Path) -> tuple[Path, str]:
    data = data_at(tmp_path / "data", examples(1, 400, 8))
    train(tmp_path, data, "first")
    return tmp_path, data


@pytest.mark.parametrize("C", [0.1, 0.02, 1.0])
def test_another_C_starts_from_the_scaled_dual_and_ends_at_its_own_optimum(base: tuple[Path, str], C: float) -> None:
    tmp_path, data = base
    cold = train(tmp_path, data, "cold", C=C)
    hot = train(tmp_path, data, "hot", C=C, start=str(tmp_path / "first"))
    assert hot.certificate["certified"]
    assert hot.certificate["lower"] == pytest.approx(cold.certificate["lower"], rel=2e-4)
    assert distdual.verify(str(tmp_path / "hot")).certified


def test_the_same_problem_starts_at_its_optimum(base: tuple[Path, str]) -> None:
    tmp_path, data = base
    cold = train(tmp_path, data, "cold")
    hot = train(tmp_path, data, "hot", start=str(tmp_path / "first"))
    assert hot.history[0].lower >= cold.certificate["lower"] * (1 - 1e-9)
    assert hot.certificate["oracle_calls"] < cold.certificate["oracle_calls"]


def test_another_prior_keeps_the_dual(base: tuple[Path, str]) -> None:
    tmp_path, data = base
    prior = {"precision": 2.0, "nonnegative": ["0:4"]}
    hot = train(tmp_path, data, "hot", prior=prior, start=str(tmp_path / "first"))
    cold = train(tmp_path, data, "cold", prior=prior)
    assert hot.certificate["lower"] == pytest.approx(cold.certificate["lower"], rel=2e-4)
    assert (hot.model.w[:4] >= 0).all()


def test_more_data_keeps_the_dual_of_the_old(tmp_path: Path) -> None:
    made = examples(1, 400, 8)
    half = Examples(made.x[:256], made.y[:256])  # whole shards of 62 rows would differ in their last
    old = data_at(tmp_path / "old", Examples(half.x[:248], half.y[:248]))
    new = data_at(tmp_path / "new", made)
    train(tmp_path, old, "first")
    hot = train(tmp_path, new, "hot", start=str(tmp_path / "first"))
    cold = train(tmp_path, new, "cold")
    assert hot.history[0].lower > 0
    assert hot.certificate["lower"] == pytest.approx(cold.certificate["lower"], rel=2e-4)


def test_what_cannot_be_carried_over_is_an_error(base: tuple[Path, str]) -> None:
    tmp_path, data = base
    first = str(tmp_path / "first")
    with pytest.raises(InputError, match=r"the model has bias = 0\.0, this run 1\.0"):
        train(tmp_path, data, "other", {"bias": 1.0}, start=first)
    changed = examples(1, 400, 8)
    changed.x[300, 2] += 1.0
    with pytest.raises(InputError, match=r"shard 4 is not the one"):
        train(tmp_path, data_at(tmp_path / "changed", changed), "other", start=first)
    with pytest.raises(InputError, match="n_features = 8, this run 7"):
        train(tmp_path, data_at(tmp_path / "narrow", Examples(changed.x[:, :7], changed.y)), "other", start=first)
    with pytest.raises(InputError, match="7 shards"):
        train(tmp_path, data_at(tmp_path / "few", Examples(changed.x[:100], changed.y[:100])), "other", start=first)
    assert not (tmp_path / "other").exists()


def test_class_costs_may_change(base: tuple[Path, str]) -> None:
    tmp_path, data = base
    cheaper = {"class_cost": {"0": 0.5}}
    hot = train(tmp_path, data, "hot", cheaper, start=str(tmp_path / "first"))
    cold = train(tmp_path, data, "cold", cheaper)
    assert hot.certificate["lower"] == pytest.approx(cold.certificate["lower"], rel=2e-4)
    assert distdual.verify(str(tmp_path / "hot")).findings == ()
