"""Where compiled kernels are kept, in processes that may write nowhere or only to temporary files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from distdual.kernels import compile_cache
from distdual.kernels.compile_cache import (
    copy_kernels,
    is_private,
    on_compile,
    private_folder,
    use_private_cache,
    watch,
)

NOBODY = "65534"
FIT = """
import logging, os
logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
import numpy as np, numba
import distdual
from distdual.kernels.rows import product
assert os.getuid() == 65534
print(product(np.ones(3), np.ones(3)), "cache:", numba.config.CACHE_DIR)
"""


WHOLE = """
import os, subprocess, sys
from sklearn.datasets import load_digits
import distdual
x, y = load_digits(return_X_y=True)
assert distdual.SVC(C=0.01).fit(x / 16, y % 2).certificate_["certified"]
folder = os.environ["TMPDIR"] + "/first"
for command in (["quickstart", "--dir", folder], ["info", folder + "/model"], ["verify", folder + "/model"]):
    subprocess.run([os.path.join(os.path.dirname(sys.executable), "distdual"), *command], check=True)
"""


def as_nobody(*, temporary: Path, code: str = FIT, **more: str) -> subprocess.CompletedProcess[str]:
    """Run code as a user without rights, home or writable packages; it may read all files, as those of the tests."""
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can start a process of another user, with setpriv of util-linux")
    capability = "-all,+dac_read_search"
    user = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
    user += ["--inh-caps", capability, "--ambient-caps", capability]
    if subprocess.run([*user, "true"], capture_output=True).returncode:
        pytest.skip("this container does not let root pass on CAP_DAC_READ_SEARCH")
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(temporary), **more}
    return subprocess.run([*user, sys.executable, "-c", code], env=env, cwd="/", capture_output=True, text=True)


def test_a_user_without_home_keeps_kernels_in_a_private_temporary_folder(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    done = as_nobody(temporary=temporary)
    assert done.returncode == 0, done.stderr
    folder = temporary / f"distdual-kernels-{NOBODY}"
    assert done.stdout.split() == ["3.0", "cache:", str(folder)]
    assert done.stderr.count("\n") == 1
    assert "NUMBA_CACHE_DIR" in done.stderr
    kept = list(folder.rglob("*.nbc"))
    assert kept
    as_nobody(temporary=temporary)
    assert list(folder.rglob("*.nbc")) == kept  # another process finds them


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_user_without_home_fits_trains_on_a_local_cluster_and_verifies(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    done = as_nobody(temporary=temporary, code=WHOLE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("verified: ") == 2


def test_kernels_compiled_ahead_in_a_read_only_folder_are_used(tmp_path):
    ahead, temporary = tmp_path / "ahead", tmp_path / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    env = {**os.environ, "NUMBA_CACHE_DIR": str(ahead), "DISTDUAL_BOUNDSCHECK": ""}
    code = FIT.replace("assert", "#")
    subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True)
    before = {file.name: file.read_bytes() for file in ahead.rglob("*.nbc")}
    assert before
    done = as_nobody(temporary=temporary, NUMBA_CACHE_DIR=str(ahead))
    assert done.returncode == 0, done.stderr
    assert {file.name: file.read_bytes() for file in temporary.rglob("*.nbc")} == before


def test_without_any_writable_folder_there_is_no_cache(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(compile_cache.tempfile, "tempdir", str(tmp_path / "missing"))
    use_private_cache.cache_clear()
    assert private_folder() is None
    assert (use_private_cache(), use_private_cache()) == (False, False)
    assert len(caplog.records) == 1
    use_private_cache.cache_clear()


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(compile_cache.tempfile, "tempdir", str(tmp_path))
    shared = tmp_path / f"distdual-kernels-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)
    found = private_folder()
    assert found is not None
    assert found != shared
    assert is_private(found)


def test_a_link_is_not_a_private_folder(tmp_path):
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    assert is_private(tmp_path / "mine")
    assert not is_private(tmp_path / "link")


def test_a_folder_that_is_missing_copies_nothing(tmp_path):
    copy_kernels(tmp_path / "missing", tmp_path)
    assert list(tmp_path.iterdir()) == []


class Event:
    def __init__(self, module: str) -> None:
        function = type("function", (), {"__module__": module})
        self.data = {"dispatcher": type("dispatcher", (), {"py_func": function})}


def test_only_the_outermost_kernel_of_this_package_is_told():
    told: list[bool] = []
    mine, other = Event("distdual.solver.sweep"), Event("numba.np.arraymath")
    with on_compile(told.append):
        for event in (mine, other, mine):
            watch.on_start(event)
        for event in (mine, other, mine):
            watch.on_end(event)
        assert told == [True, False]
    watch.on_start(mine)
    watch.on_end(mine)
    assert told == [True, False]
