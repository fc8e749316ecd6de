"""The problems of docs/examples.md: short, checked, certified and verified, wherever they run."""

from pathlib import Path
from typing import Any

import pytest

from tests.blocks import blocks_of
from tests.dask_processes import DaskProcesses
from tests.shell import environment, run

PAGE = Path(__file__).parents[1] / "docs" / "examples.md"
FILES = {block.title: block.code for block in blocks_of(PAGE.read_text(encoding="utf-8")) if block.title}
KINDS = {
    "rankings": "ranking_sets:Ranking",
    "cuts": "graph_cut:GraphCut",
    "scenes": "multi_label:MultiLabel",
    "parts": "latent_parts:Parts",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("examples")
    for name, code in FILES.items():
        (place / name).write_text(code, encoding="utf-8")
    (place / "data").mkdir()
    ran = run("python", "examples_data.py", "data", cwd=place, env=environment())
    assert ran.code == 0, ran
    return place


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Any:
    cluster = DaskProcesses(tmp_path_factory.mktemp("dask"), workers=2)
    yield cluster.address
    cluster.close()


def test_each_class_has_less_than_fifty_lines() -> None:
    for kind in KINDS.values():
        assert len(FILES[kind.partition(":")[0] + ".py"].splitlines()) < 50


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("where", ["inline", "two processes", "a remote scheduler"])
@pytest.mark.parametrize("name", list(KINDS))
def test_each_is_checked_certified_and_verified(name: str, where: str, folder: Path, request: Any) -> None:
    kind, data, model = KINDS[name], f"data/{name}", f"models/{name}-{where.replace(' ', '-')}"
    told = {"inline": [], "two processes": ["--set", "cluster.local.workers=2"]}.get(where)
    if told is None:
        told = ["--scheduler", request.getfixturevalue("scheduler")]
    settings = {"data.url": data, "problem.kind": kind, "output.url": model}
    told += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    for command in (
        ["check-problem", kind, "--data", data],
        ["train", "run.toml", *told],
        ["verify", model, "--problem", kind],
    ):
        ran = run("distdual", *command, cwd=folder, env=environment(), timeout=300)
        assert ran.code == 0, ran
