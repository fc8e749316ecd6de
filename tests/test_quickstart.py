"""The first command of the README, as a newcomer runs it."""

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from rich.console import Console

from distdual.config import load
from distdual.report.number_format import clock, short
from distdual.report.progress import ProgressDisplay
from distdual.report.round_log import Round
from tests.shell import PROGRAMS, assert_refused, distdual, environment


def test_it_trains_and_verifies_a_model_and_can_be_run_again(tmp_path: Path) -> None:
    first = distdual("quickstart", cwd=tmp_path)
    assert first.code == 0, first
    folder = tmp_path / "distdual-quickstart"
    certificate = json.loads((folder / "model" / "certificate.json").read_text())
    assert certificate["certified"]
    assert 0 <= certificate["gap"] <= 1e-3
    assert re.search(r"^certified: \S+ ≤ P\(w\*\) ≤ \S+$", first.out, re.MULTILINE)
    assert re.search(r"^verified: .* gap \S+e-\d+, target \S+e-\d+ \(the model's own\)$", first.out, re.MULTILINE)
    assert "pass=" in first.err  # plain lines, since stderr is not a terminal
    assert "\x1b" not in first.out + first.err

    again = distdual("quickstart", "--json", cwd=tmp_path)
    assert again.code == 0, again
    assert json.loads(again.out)["lower"] == pytest.approx(certificate["lower"], rel=1e-3)
    assert json.loads(again.out)["oracle_calls"] >= 1797


def test_it_refuses_a_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    ran = distdual("quickstart", "--dir", tmp_path)
    assert_refused(ran, str(tmp_path), "already contains other files", "--dir")
    assert [path.name for path in tmp_path.iterdir()] == ["diary.txt"]


@pytest.mark.parametrize("name", ["a file", "a config"])
def test_it_keeps_files_that_it_did_not_write(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "there"
    if name == "a file":
        folder.write_text("dear diary")
        kept = folder
    else:
        folder.mkdir()
        kept = folder / "quickstart.toml"
        kept.write_text("# my own\n")
    before = kept.read_text()
    assert_refused(distdual("quickstart", "--dir", folder), str(folder), "--dir")
    assert kept.read_text() == before


@pytest.mark.slow
def test_its_config_can_be_edited_and_trained_for_any_folder_name(tmp_path: Path) -> None:
    folder = tmp_path / 'o"dd [b]näme'
    ran = distdual("quickstart", "--dir", folder)
    assert ran.code == 0, ran
    assert str(folder / "model") in ran.out
    assert load(folder / "quickstart.toml").output.url == str(folder / "model")
    retrained = distdual("train", folder / "quickstart.toml", "--set", "solver.C=0.1", "--json")
    assert retrained.code == 0, retrained
    assert json.loads((folder / "model" / "model.json").read_text())["C"] == 0.1


def on_terminal(command: list[str], cwd: Path, columns: int = 80) -> tuple[int, str]:
    """Run on a pseudo-terminal of this width; returns the exit code and the output."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    env = {**environment(), "TERM": "xterm-256color"}
    env.pop("COLUMNS", None)
    shown = b""
    with subprocess.Popen(command, cwd=cwd, env=env, stdin=follower, stdout=follower, stderr=follower) as process:
        os.close(follower)
        end = time.monotonic() + 60
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while time.monotonic() < end and (part := os.read(leader, 65536)):
                shown += part
        os.close(leader)
        return process.wait(10), shown.decode()


def test_a_terminal_shows_a_live_table(tmp_path: Path) -> None:
    code, shown = on_terminal([str(PROGRAMS / "distdual"), "quickstart"], tmp_path)
    assert code == 0, shown
    assert shown.count("\x1b[1A") > 2  # moves the cursor up to redraw
    plain = re.sub(r"\r+\n?", "\n", re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown))
    last = plain[plain.rindex("lower ≤ P(w*) ≤ upper") :]
    header, _, *rows = [line for line in last.splitlines()[1:] if line.strip()]
    assert header.split() == ["pass", "lower", "upper", "gap", "cache", "oracle", "calls", "elapsed"]
    rows = [line.split() for line in rows if re.match(r" +\d+ ", line)]
    assert [row[0] for row in rows] == [str(k) for k in range(1, len(rows) + 1)]
    lower, upper, gap = map(float, rows[-1][1:4])
    assert lower <= upper
    assert 0 <= gap <= 1e-3
    assert max(map(len, plain[: plain.index("certified:")].splitlines())) <= 80


def round_at(passes: int, *, certify: bool = False, seconds: float = 1.0, rows: int = 100) -> Round:
    upper = 1.2345678e9 if certify else float("inf")
    gap = 0.01 if certify else float("inf")
    totals = {"passes": passes, "oracle_calls": 123_456_789_012}
    return Round(seconds, 1, 1, certify, 1.2222222e9, upper, gap, 0.5, rows, rows * 8, rows, totals)


def test_the_table_fits_80_columns_for_numbers_of_any_size() -> None:
    console = Console(record=True, width=80, force_terminal=True, file=open(os.devnull, "w"))  # noqa: SIM115
    display = ProgressDisplay(console, 1e-3)
    for passes in range(1, 300):
        display.add(round_at(passes, seconds=359_999.0, rows=987_654_321))
    display.add(round_at(299, certify=True, seconds=359_999.0, rows=987_654_321))
    console.print(display.table())
    console.file.close()
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines if line.strip().startswith("299"))
    assert "988 M rows" in lines[-2]
    assert "123 G" in lines[-2]
    assert "99:59 h" in lines[-2]


def test_rounds_of_a_pass_share_its_row() -> None:
    display = ProgressDisplay(Console(file=open(os.devnull, "w")), 1e-3)  # noqa: SIM115
    for line in [round_at(0), round_at(0), round_at(1), round_at(1), round_at(2), round_at(3, certify=True)]:
        display.add(line)
    display.console.file.close()
    assert list(display.rows) == [1, 2, 3]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (99_999, "99,999"), (123_456, "123 k"), (999_600, "1 M"), (5 * 10**12, "5 T")]
)
def test_counts_stay_short(count: int, text: str) -> None:
    assert short(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.44, "2.4 s"), (61, "1:01 min"), (3599, "59:59 min"), (7260, "2:01 h")]
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert clock(seconds) == text
