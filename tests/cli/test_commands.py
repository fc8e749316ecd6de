"""The command line: output, exit codes and help."""

import itertools
import json
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest

from distdual import __version__
from distdual.cli.commands import cli
from distdual.config import ADDRESS
from distdual.data.prepare.api import prepare_arrays
from tests.build import examples
from tests.shell import PROGRAMS, call, distdual, environment

COMMANDS = ["quickstart", "prepare", "info", "train", "sweep", "verify", "calibrate", "predict", "report"]
COMMANDS += ["warm-up", "submit", "status", "logs", "cancel", "list", "check-problem", "example", "completion"]

CONFIG = """
[data]
url = "{folder}/data"
[problem]
kind = "binary"
[solver]
gap = 0.01
[output]
url = "{folder}/model"
log = "{folder}/run.jsonl"
overwrite = true
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    x, y, *_ = examples(5, 200, 4)
    prepare_arrays(x, np.where(y == 1, 1, -1), str(tmp_path / "data"), "binary", shard_bytes=800)
    (tmp_path / "run.toml").write_text(CONFIG.format(folder=tmp_path))
    monkeypatch.setenv("DASK_LOGGING__DISTRIBUTED", "critical")  # put back what the command line sets
    return tmp_path / "run.toml"


def test_help_lists_the_commands_in_the_order_of_use(capsys: pytest.CaptureFixture[str]) -> None:
    ran = call(capsys, "--help")
    assert ran.code == 0
    listed = ran.out[ran.out.index("Commands:") :].splitlines()[1:]
    assert [line.split()[0] for line in listed] == COMMANDS
    assert not any(line.endswith("...") for line in listed)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_that_fits_the_terminal(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = call(capsys, command, "--help")
    assert ran.code == 0
    assert f"    distdual {command} " in ran.out or f"    distdual {command}\n" in ran.out
    options = ran.out[ran.out.index("Options:") :]
    assert max(map(len, options.splitlines())) <= 80
    for parameter in cli.commands[command].params:
        if parameter.param_type_name == "option":
            assert getattr(parameter, "help", None), parameter.name


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_of_every_command_is_valid(command: str) -> None:
    assert cli.commands[command].help is not None
    _, _, examples = cli.commands[command].help.partition("Example:")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    assert lines
    for line in lines:
        program, name, *arguments = shlex.split(line.partition(" >> ")[0])
        assert (program, name) == ("distdual", command)
        cli.commands[command].make_context(command, arguments)


def test_without_a_command_the_help_is_shown_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    ran = call(capsys)
    assert ran.code == 2
    assert ran.err.startswith("Usage: distdual")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--version").out == f"distdual {__version__}\n"


def test_help_does_not_import_numba_or_zarr() -> None:
    code = "import sys, distdual.cli; print(sorted({'numba', 'zarr', 'distributed', 's3fs'} & set(sys.modules)))"
    assert subprocess.run([PROGRAMS / "python", "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_json_has_the_documented_keys(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = call(capsys, "train", config, "--json")
    assert ran.code == 0
    printed = json.loads(ran.out)
    promised = (
        "lower, upper, gap, target, certified, passes, oracle_calls, cache_rows, support, seconds, bytes_read, model"
    )
    assert set(promised.split(", ")) <= set(printed)
    assert printed["gap"] == pytest.approx((printed["upper"] - printed["lower"]) / printed["upper"])
    assert printed["gap"] <= printed["target"] == 0.01
    assert printed["model"] == str(config.parent / "model")
    lines = [json.loads(line) for line in (config.parent / "run.jsonl").read_text().splitlines()]
    assert lines[-1]["lower"] == printed["lower"]
    assert all(a["lower"] <= b["lower"] for a, b in itertools.pairwise(lines))


def test_a_run_that_stops_early_has_valid_bounds_and_exit_code_1(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate = json.loads(call(capsys, "train", config, "--json", "--set", "solver.gap=1e-6").out)
    early = call(capsys, "train", config, "--set", "solver.gap=1e-9", "--set", "solver.max_passes=1")
    assert early.code == 1
    assert "NOT certified" in early.out
    assert "stopped: " in early.out
    assert "raise solver.max_passes or solver.gap; " in early.out
    assert f"solver.start={config.parent}/model continues" in early.out
    shown = call(capsys, "verify", config.parent / "model").out
    assert "everything checks out, but the gap exceeds the target 1.00e-09" in shown
    checked = call(capsys, "verify", config.parent / "model", "--json")
    assert checked.code == 1
    bounds = json.loads(checked.out)
    assert bounds["lower"] <= certificate["upper"]
    assert bounds["upper"] >= certificate["lower"]
    assert bounds["findings"] == []


def test_verify_reports_changes(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "train", config).code == 0
    weights = np.load(config.parent / "model" / "weights.npy")
    np.save(config.parent / "model" / "weights.npy", weights * 1.01)
    ran = call(capsys, "verify", config.parent / "model")
    assert ran.code == 1
    assert "NOT verified" in ran.out
    assert "weights.npy is not what training wrote" in ran.out
    assert "upper is" in ran.out


def test_info_describes_data_sets_and_models(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "train", config).code == 0
    data, model = (json.loads(call(capsys, "info", config.parent / name, "--json").out) for name in ("data", "model"))
    assert (data["what"], data["examples"], data["features"], data["labels"]) == ("data set", 200, 4, ["-1", "1"])
    assert (model["what"], model["C"], model["certificate"]["certified"]) == ("model", 1.0, True)
    shown = call(capsys, "info", config.parent / "data").out
    assert "examples       200\n" in shown
    assert "labels         -1, 1\n" in shown


def test_paths_are_printed_unchanged(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rich must not interpret them as markup or emoji."""
    odd = f"{tmp_path}/[bold]:smile:"
    ran = call(capsys, "train", config, "--set", f"output.url={odd}")
    assert ran.code == 0
    assert f"model      {odd}\n" in ran.out


def test_a_terminal_without_unicode_works(config: Path) -> None:
    ran = distdual("train", config, env=environment(PYTHONIOENCODING="ascii"))
    assert ran.code == 0, ran
    assert "? P(w*) ?" in ran.out


@pytest.mark.parametrize(
    "address", ["tcp://10.0.0.1:8786", "tls://host.example:1", "host:8786", "tcp://[::1]:8786", "tcp://scheduler"]
)
def test_addresses_of_schedulers(address: str) -> None:
    assert ADDRESS.fullmatch(address)


def test_a_dry_run_tells_what_a_run_would_read_and_cost(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = call(capsys, "train", str(config), "--dry-run", "--price", "1,1000", "--json")
    found = json.loads(ran.out)
    assert ran.code == 0
    assert found["expected_cost"] == pytest.approx(found["gets_a_pass"] + found["expected_bytes"] / 1e9)
    shown = call(capsys, "train", str(config), "--dry-run").out
    assert f"in {found['shards']} shards" in shown
    assert "expected cost" not in shown
    assert not (config.parent / "model").exists()


def test_a_run_without_a_bias_says_so_first(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note = "bias: none (problem.bias = 0)\n"
    for bias in ("1.0", '"free"', "0.0"):
        command = ["train", str(config), "--set", f"problem.bias={bias}", "--set", "output.overwrite=true"]
        assert call(capsys, *command, "--dry-run").out.endswith(note) == (bias == "0.0")
        assert call(capsys, *command).err.startswith(note) == (bias == "0.0")


def test_a_dry_run_refuses_options_that_need_a_run(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = call(capsys, "train", str(config), "--dry-run", "--resume")
    assert (ran.code, ran.err) == (2, "distdual: --dry-run trains nothing, so it takes no --resume\n")


def test_the_price_of_a_run_is_that_of_what_it_read(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = call(capsys, "train", str(config), "--price", "0,1000", "--json")
    found = json.loads(ran.out)
    assert found["cost"] == found["gets"] > 0
    assert "reading    " in call(capsys, "train", str(config), "--price").out
    call(capsys, "report", str(config.parent / "model"), "--no-png", "--price", "0,1000")
    assert f"cost {found['gets']:.3g}</td>" in (config.parent / "run.html").read_text()
