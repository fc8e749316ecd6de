"""What is known before a run agrees with what the run then takes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdual
from distdual.config import from_table
from distdual.coordinator.dry_run import DryRun, dry_run
from distdual.data.prepare.api import prepare_arrays
from distdual.errors import InputError
from tests.build import examples

MULTICLASS = {"kind": "multiclass"}


def table(folder: Path, *, compress: bool = False, **parts: Any) -> dict[str, Any]:
    x, y, *_ = examples(5, 400, 6)
    labels = y + 2 * (x[:, 0] > 1) if parts.get("problem") == MULTICLASS else y
    kind = parts.get("problem", {"kind": "binary"})["kind"]
    url = str(folder / "data")
    prepare_arrays(x, labels, url, kind, shard_bytes=2000, compress=compress, overwrite=True)
    output = {"url": str(folder / "model")}
    return {"data": {"url": url}, "problem": {"kind": kind}, "solver": {"gap": 1e-3}, "output": output, **parts}


def both(told: dict[str, Any]) -> tuple[DryRun, dict[str, Any]]:
    return dry_run(from_table(told)), distdual.train(told).certificate


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "compressed"])
def test_a_pass_reads_what_the_dry_run_says(tmp_path: Path, compress: bool) -> None:
    dry, ran = both(table(tmp_path, compress=compress))
    assert dry.shards_stay_in_memory
    assert ran["gets"] == dry.gets_a_pass
    assert ran["bytes_read"] == pytest.approx(dry.bytes_a_pass, rel=0.05)  # small arrays are compressed in any case
    assert dry.expected_bytes == dry.bytes_a_pass


@pytest.mark.parametrize("parts", [{}, {"problem": MULTICLASS}, {"solver": {"slack": "block:8", "C": 0.1}}])
def test_cached_constraints_are_of_the_expected_order(tmp_path: Path, parts: dict[str, Any]) -> None:
    dry, ran = both(table(tmp_path, **parts))
    assert dry.slack == ran["slack"]
    assert 0.25 * ran["cache_rows"] <= dry.expected_cache_rows <= 4 * ran["cache_rows"]
    assert 0.1 * ran["cache_bytes"] <= dry.expected_cache_bytes <= 4 * ran["cache_bytes"]


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    told = table(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    dry_run(from_table(told))
    assert sorted(tmp_path.rglob("*")) == before


def test_shards_that_do_not_fit_are_read_in_every_pass(tmp_path: Path) -> None:
    local = {"workers": 2, "memory": "1kB"}
    dry = dry_run(from_table(table(tmp_path, cluster={"local": local}, solver={"max_passes": 3})))
    assert not dry.shards_stay_in_memory
    assert (dry.workers, dry.worker_memory) == (2, 1000)
    assert dry.expected_passes == dry.expected_passes_read == 3
    assert dry.expected_gets == 3 * dry.gets_a_pass


def test_the_budget_of_the_cache_bounds_what_is_expected(tmp_path: Path) -> None:
    dry = dry_run(from_table(table(tmp_path, solver={"cache_bytes": 20_000})))
    assert dry.expected_cache_bytes <= 20_000


def test_a_latent_problem_is_described_without_its_oracle(tmp_path: Path) -> None:
    x, y, *_ = examples(5, 60, 4)
    lengths = np.full(20, 3)
    prepare_arrays(x, np.repeat(y[::3], 3), str(tmp_path / "data"), "latent", lengths=lengths)
    dry = dry_run(
        from_table(
            table(tmp_path / "other")
            | {"data": {"url": str(tmp_path / "data")}, "problem": {"kind": "latent"}, "solver": {}}
        )
    )
    assert dry.examples == 20
    assert dry.oracle_seconds_a_pass is None


def test_inputs_that_a_run_refuses_are_refused(tmp_path: Path) -> None:
    told = table(tmp_path)
    with pytest.raises(InputError, match="nowhere"):
        dry_run(from_table({**told, "data": {"url": str(tmp_path / "nowhere")}}))
    with pytest.raises(InputError, match="unknown key"):
        dry_run(from_table({**told, "problem": {"kind": "binary", "biass": 1.0}}))


@pytest.mark.parametrize(
    "parts", [{"problem": {"kind": "multivariate"}}, {"kernel": {"kind": "rbf"}}], ids=["multivariate", "exact kernel"]
)
def test_runs_that_cannot_be_foretold_are_refused(tmp_path: Path, parts: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="--dry-run cannot estimate"):
        dry_run(from_table(table(tmp_path, **parts)))
