"""Ctrl-C as a terminal sends it, to every process of the run at once."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from distdual.data.prepare.api import prepare_arrays
from tests.build import examples
from tests.shell import PROGRAMS, distdual, environment

CONFIG = """
[data]
url = "data"
[problem]
kind = "binary"
[solver]
C = 100.0
gap = 1e-300
max_passes = 1000000
[output]
url = "model"
log = "run.jsonl"
"""


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param("", id="threads"),
        pytest.param("[cluster]\nlocal = { workers = 1 }\n", id="dask", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_certifies_and_saves_the_current_model(cluster: str, tmp_path: Path) -> None:
    made = examples(0, 3000, 20, flip=0.3)
    prepare_arrays(made.x, made.y, str(tmp_path / "data"), "binary", shard_bytes=1 << 15)
    (tmp_path / "run.toml").write_text(CONFIG + cluster)
    process = subprocess.Popen(
        [PROGRAMS / "distdual", "train", "run.toml"],
        cwd=tmp_path,
        env=environment(),
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for_lines(tmp_path / "run.jsonl", 20)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 1, err
    assert "NOT certified" in out
    assert "interrupted" in out
    assert err.count("Ctrl-C again") == 1, err
    assert "Traceback" not in err
    said = json.loads((tmp_path / "model" / "certificate.json").read_text())
    assert said["certified"] is False
    checked = json.loads(distdual("verify", "model", "--json", cwd=tmp_path).out)
    assert checked["findings"] == []
    assert checked["lower"] == pytest.approx(said["lower"], rel=1e-9)
    assert checked["upper"] == pytest.approx(said["upper"], rel=1e-9)


def wait_for_lines(path: Path, n: int) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or len(path.read_text().splitlines()) < n:
        assert time.monotonic() < deadline, "the run did not get going"
        time.sleep(0.05)
