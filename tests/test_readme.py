"""What the README says is true: its commands run, its keys and defaults are those of the code."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from distdual.config import ClusterConfig, Config, DataConfig, LocalCluster, OutputConfig, PriorConfig, SolverConfig
from distdual.problems.binary import Binary
from distdual.problems.cfg import Cfg
from distdual.problems.chain import Chain
from distdual.problems.latent import Latent
from distdual.problems.latent_chain import LatentChain
from distdual.problems.latent_multiclass import LatentMulticlass
from tests.s3_server import S3Server, free_ports
from tests.shell import environment

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALL = "python3 -m venv .venv && .venv/bin/pip install -q -e "


class Block(NamedTuple):
    line: int
    language: str
    code: str


def blocks() -> list[Block]:
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [Block(README[: each.start()].count("\n") + 1, each[1], each[2].strip()) for each in found]


def test_every_block_says_what_it_is() -> None:
    assert {block.language for block in blocks()} == {"bash", "python", "text"}


def test_there_are_two_commands_and_the_second_is_what_ci_runs() -> None:
    first, second = [block.code for block in blocks() if block.code.startswith(INSTALL)]
    assert first == f"{INSTALL}. && .venv/bin/distdual quickstart"
    assert second.startswith(f"{INSTALL}'.[test]' && ")
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert lines[-1] == second
    assert "set -euo pipefail" in lines
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def run_block(block: Block, folder: Path, env: dict[str, str]) -> None:
    """In a session of its own, which ends with the block: what it started in the background ends, too."""
    script = folder / f"block-{block.line}"
    script.write_text(block.code, encoding="utf-8")
    command = [sys.executable] if block.language == "python" else ["bash", "-euo", "pipefail"]
    with (folder / "output").open("w+b") as output:
        process = subprocess.Popen(
            [*command, script], cwd=folder, env=env, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code = process.wait(60)
        finally:
            end_session(process.pid)
            process.wait()
        output.seek(0)
        assert code == 0, f"README, line {block.line}: {block.code}\n{output.read().decode()}"


def end_session(leader: int) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(leader, number)
        except ProcessLookupError:
            return
        time.sleep(0.5)


@pytest.mark.timeout(300)
def test_every_block_runs(tmp_path: Path, s3: S3Server) -> None:
    """In order, in one folder, as a reader would; with this interpreter's programs in place of .venv's."""
    for name in ("configs", "jobs"):
        (tmp_path / name).symlink_to(ROOT / name)
    port = free_ports("scheduler")["scheduler"]
    ours = {
        "=my-key": f"={s3.key}",
        "=my-secret": f"={s3.secret}",
        "=http://127.0.0.1:8333": f"={s3.endpoint}",
        "8786": str(port),
        f"{INSTALL}. && .venv/bin/": "",
    }
    seen = set()
    for block in blocks():
        if block.language == "text" or ".[test]" in block.code:
            continue
        code = block.code
        for theirs, mine in ours.items():
            seen |= {theirs} if theirs in code else set()
            code = code.replace(theirs, mine)
        run_block(block._replace(code=code), tmp_path, environment())
    assert seen == set(ours)
    assert json.loads((tmp_path / "my-model" / "certificate.json").read_text())["certified"]
    assert len((tmp_path / "labels.txt").read_text().splitlines()) == 1797
    assert (tmp_path / "clouds" / "train" / "zarr.json").exists()
    assert (tmp_path / "runs" / "binary" / "run.jsonl").exists()
    assert (tmp_path / "bag_labels.txt").read_text().split() == ["1", "-1", "1", "-1"]
    assert len((tmp_path / "parsed.txt").read_text().splitlines()) == 3
    assert s3.files().exists("data/digits-model/model.json")
    assert json.loads((tmp_path / "stars-model" / "certificate.json").read_text())["certified"]
    assert len((tmp_path / "stars.txt").read_text().splitlines()) == 2000


def told(value: Any) -> str:
    """A default as the table shows it."""
    if value is None:
        return "none"
    return "`inf`" if value == float("inf") else f"`{json.dumps(value)}`"


def defaults(prefix: str, cls: Any, skip: tuple[str, ...] = ()) -> dict[str, str]:
    found = {}
    for field in dataclasses.fields(cls):
        if field.name in skip:
            continue
        value = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        found[f"{prefix}.{field.name}"] = "required" if value is dataclasses.MISSING else told(value)
    return found


def test_the_table_of_keys_is_complete_and_its_defaults_are_right() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (\S+) \| [^|\n]*(?:\\\|[^|\n]*)*\|$", README, re.MULTILINE)
    expected = {
        **defaults("data", DataConfig),
        "problem.kind": "required",
        **defaults("problem", Binary, skip=("n_features", "classes")),
        **defaults("problem", Chain, skip=("n_features", "classes")),
        **defaults("problem", Latent, skip=("n_features", "classes")),
        **defaults("problem", LatentMulticlass, skip=("n_features", "classes", "loss")),
        **defaults("problem", LatentChain, skip=("n_features", "classes")),
        **defaults("problem", Cfg, skip=("n_features", "classes", "grammar")),
        **defaults("solver", SolverConfig),
        **defaults("prior", PriorConfig),
        **defaults("cluster", ClusterConfig),
        **defaults("cluster.local", LocalCluster),
        **defaults("output", OutputConfig),
    }
    assert dict(rows) == expected
    assert len(rows) == len(expected)
    assert {name.partition(".")[0] for name in expected} == {field.name for field in dataclasses.fields(Config)}


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "docker-compose.yml", "configs", "jobs", "benchmarks"])
def test_files_that_the_readme_speaks_of_are_there(name: str) -> None:
    assert (ROOT / name).exists()
    for path in re.findall(r"`((?:configs|jobs|benchmarks)/[\w./]*)`", README):
        assert (ROOT / path).exists(), path
