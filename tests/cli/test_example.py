"""Examples are listed, written and run from anywhere."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from distdual.cli.example_command import example, examples
from distdual.config import load
from distdual.errors import InputError


def run(*arguments: str) -> Any:
    return CliRunner().invoke(example, arguments)


def test_all_are_listed_with_a_summary() -> None:
    lines = run().output.splitlines()
    assert [line.split()[0] for line in lines] == [name for name in examples() if name != "jobs/shared.py"]
    assert lines[0].endswith("A binary SVM, with every config key. Commented keys show their defaults")


@pytest.mark.parametrize("name", ["binary", "binary.toml", "configs/binary.toml"])
def test_a_config_is_written_and_loads(tmp_path: Path, name: str) -> None:
    assert run(name, "--dir", str(tmp_path)).exit_code == 0
    assert load(tmp_path / "configs" / "binary.toml").problem.kind == "binary"


def test_a_program_comes_with_what_it_imports(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    run("train", "verify", "--dir", str(tmp_path))
    assert sorted(path.name for path in (tmp_path / "jobs").iterdir()) == ["shared.py", "train.py", "verify.py"]
    monkeypatch.setattr(sys, "argv", ["train.py", "--help"])
    monkeypatch.syspath_prepend(tmp_path / "jobs")
    with pytest.raises(SystemExit):
        runpy.run_path(str(tmp_path / "jobs" / "train.py"), run_name="__main__")
    assert "--resume" in capsys.readouterr().out


def test_no_file_is_replaced(tmp_path: Path) -> None:
    run("binary", "--dir", str(tmp_path))
    found = run("chain", "binary", "--dir", str(tmp_path)).exception
    assert isinstance(found, InputError)
    assert "binary.toml exists already" in str(found)
    assert not (tmp_path / "configs" / "chain.toml").exists()


@pytest.mark.parametrize(("name", "what"), [("nonesuch", "is none of them"), ("shared", "is none of them")])
def test_an_unknown_name(tmp_path: Path, name: str, what: str) -> None:
    found = run(name, "--dir", str(tmp_path)).exception
    assert isinstance(found, InputError)
    assert what in str(found)
