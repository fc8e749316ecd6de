"""What the README says is true: its commands run, its files and pages are there."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.blocks import Block, Folder, blocks_of, check_output, end_session
from tests.s3_server import S3Server, free_ports
from tests.shell import environment

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks_of(README)
INSTALL = "python3 -m venv .venv && .venv/bin/pip install -q -e "


def test_every_block_says_what_it_is() -> None:
    assert {block.language for block in BLOCKS} == {"bash", "python", "text"}


def test_there_are_two_commands_and_the_second_is_what_ci_runs() -> None:
    first, second = [block.code.strip() for block in BLOCKS if block.code.startswith(INSTALL)]
    assert first == f"{INSTALL}. && .venv/bin/distdual quickstart"
    assert second.startswith(f"{INSTALL}'.[test]' && ")
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert lines[-1] == second
    assert "set -euo pipefail" in lines
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


QUICKSTART = next(block for block in BLOCKS if block.code.startswith(INSTALL))


def quickstart_output() -> Block:
    return next(block for block in BLOCKS if block.language == "text" and block.line > QUICKSTART.line)


@pytest.mark.timeout(600)
def test_every_block_runs(tmp_path: Path, s3: S3Server) -> None:
    """In order, in one folder, as a reader would; with this interpreter's programs in place of .venv's."""
    for name in ("configs", "jobs"):
        (tmp_path / name).symlink_to(ROOT / name)
    replace = {
        "=my-key": f"={s3.key}",
        "=my-secret": f"={s3.secret}",
        "=http://127.0.0.1:8333": f"={s3.endpoint}",
        "8786": str(free_ports("scheduler")["scheduler"]),
        f"{INSTALL}. && .venv/bin/": "",
    }
    assert all(theirs in README for theirs in replace)
    programs = {"bash": ["bash", "-euo", "pipefail"], "python": [sys.executable]}
    folder = Folder(tmp_path, environment(), programs, replace, [])
    told = {}
    try:
        for block in BLOCKS:
            if block.language != "text" and ".[test]" not in block.code:
                told[block] = folder.run(block, "README")
        again = next(block for block in BLOCKS if '"my-model"' in block.code)
        folder.run(again, "README, a second time")
    finally:
        for leader in folder.sessions:
            end_session(leader)
    check_output(quickstart_output().code, told[QUICKSTART], "README")
    assert json.loads((tmp_path / "my-model" / "certificate.json").read_text())["certified"]
    assert len((tmp_path / "labels.txt").read_text().splitlines()) == 4
    assert (tmp_path / "runs" / "binary" / "run.jsonl").exists()
    assert (tmp_path / "points-model.jsonl").exists()
    assert s3.files().exists("data/digits-model/model.json")


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "docker-compose.yml", "configs", "jobs", "benchmarks"])
def test_files_that_the_readme_speaks_of_are_there(name: str) -> None:
    assert (ROOT / name).exists()
    for path in re.findall(r"`((?:configs|jobs|benchmarks)/[\w./]*)`", README):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / path).exists() or path == "docs/benchmarks.md", path  # which the benchmarks write


def test_every_page_of_the_documentation_is_linked() -> None:
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)\)", README))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"} <= linked
