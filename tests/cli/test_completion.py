"""Shell completion, through the protocol of each shell and by Tab in a real bash."""

import os
import pty
import select
import subprocess
import time
from pathlib import Path

import pytest

from distdual import config
from distdual.cli import completion
from distdual.cli.commands import cli
from distdual.problems.registry import KINDS
from tests.shell import PROGRAMS, call, environment, run


def offered(*words: str, shell: str = "bash", cwd: Path | None = None) -> list[str]:
    """The completions of an incomplete last word."""
    asked = {"COMP_WORDS": " ".join(("distdual", *words)), "COMP_CWORD": str(len(words))}
    ran = run("distdual", cwd=cwd, env=environment(**asked, _DISTDUAL_COMPLETE=f"{shell}_complete"))
    assert ran.code == 0, ran
    return ran.out.split("\n")[:-1] if ran.out.strip() else []


def test_commands_and_options_are_offered():
    assert offered("pre") == ["plain,prepare", "plain,predict"]
    assert offered("train", "run.toml", "--res") == ["plain,--resume"]


@pytest.mark.parametrize("words", [("train", "run"), ("info", "da"), ("verify", "mo"), ("report", "ru")])
def test_files_are_left_to_the_shell(words):
    assert offered(*words) == [f"file,{words[-1]}"]


def test_problems_are_offered():
    assert offered("prepare", "a", "b", "--problem", "mu") == ["plain,multivariate", "plain,multiclass"]
    assert offered("train", "run.toml", "--set", "problem.kind", "=") == [f"plain,{kind}" for kind in KINDS]


def test_config_keys_are_offered_with_their_meaning():
    found = offered("sweep", "run.toml", "--set", "solver.max")
    assert {"plain,solver.max_passes=", "plain,solver.max_seconds="} <= set(found)
    assert all(line.startswith("plain,solver.max") for line in found)
    kind, key, meaning = offered("train", "run.toml", "--set", "solver.max_p", shell="zsh")
    assert (kind, key) == ("plain", "solver.max_passes=")
    assert meaning.startswith("Stop after this many passes")
    assert "plain,problem.tag_cost=" in offered("train", "run.toml", "--set", "problem.t")


def test_exactly_the_config_keys_are_offered():
    keys = [key for key, _ in completion.config_keys(config.Config)]
    assert {"data.url", "problem.kind", "cluster.local.workers", "output.checkpoint_every"} <= set(keys)
    assert all(meaning for _, meaning in completion.config_keys(config.Config))


def test_bash_splits_at_the_equals_sign():
    assert offered("train", "run.toml", "--set", "solver.prune", "=", "id") == ["plain,idle:"]
    assert offered("train", "run.toml", "--set", "output.overwrite", "=") == ["plain,true", "plain,false"]
    assert offered("train", "run.toml", "--set", "solver.C", "=") == []


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_script_of_each_shell(shell, capsys):
    ran = call(capsys, "completion", shell)
    assert ran.code == 0
    assert f"_DISTDUAL_COMPLETE={shell}_complete" in ran.out
    assert ran.out.rstrip("\n") == completion.script(cli, shell).rstrip("\n")


def read_until(terminal: int, text: str, seconds: float = 60) -> str:
    """Read a terminal's output up to `text`."""
    shown, end = "", time.monotonic() + seconds
    while text not in shown and time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace")
    assert text in shown, shown
    return shown


def test_tab_in_a_real_bash(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "completion.sh").write_text(call(capsys, "completion", "bash").out)
    (tmp_path / "only.toml").write_text("")
    ours, theirs = pty.openpty()
    bash = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        env=environment(PS1="ready> ", TERM="dumb", PATH=f"{PROGRAMS}:/usr/bin:/bin"),
        start_new_session=True,
    )
    os.close(theirs)
    try:
        read_until(ours, "ready> ")
        os.write(ours, b"bind 'set enable-bracketed-paste off'; . ./completion.sh; echo $((40 + 2))\n")
        read_until(ours, "42")
        os.write(ours, b"distdual tra\t")
        read_until(ours, "distdual train ")
        os.write(ours, b"on\t")
        read_until(ours, "only.toml ")
        os.write(ours, b"--set solver.sch\t")
        read_until(ours, "solver.schedule=")
        os.write(ours, b"one\t")
        read_until(ours, "one-pass ")
    finally:
        bash.kill()
        bash.wait()
        os.close(ours)
