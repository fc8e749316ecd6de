"""Compiled kernels are kept on disk, and made anew when any file that they are made of has changed."""

import shutil
import subprocess
import sys
from pathlib import Path

from numba.core import types

import distdual
from distdual.kernels import jit
from distdual.problems.parsing.cky import at
from tests.shell import environment

SQUARE = """
import numpy as np
from distdual.solver.cache import all_curvatures
from distdual.solver.metric import Plain
from distdual.kernels.rows import DenseRows
out = np.empty(1)
all_curvatures(Plain(), DenseRows(np.array([[1.0, 2.0]], dtype=np.float32)), np.array([0]), out)
print(out[0], sum(all_curvatures.stats.cache_hits.values()))
"""


def test_a_kernel_is_compiled_anew_when_another_file_that_it_calls_has_changed(tmp_path):
    package = tmp_path / "distdual"
    shutil.copytree(Path(distdual.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))

    def square(program: str = SQUARE) -> str:
        return subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
        ).stdout

    assert square() == "5.0 0\n"
    assert square() == "5.0 1\n", "kept on disk"
    rows = package / "kernels" / "rows.py"
    rows.write_text(rows.read_text().replace("return total\n", "return 2.0 * total\n"))
    assert square() == "10.0 0\n"
    for path in package.rglob("*.py"):
        path.write_text(path.read_text().replace("DenseRows", "FullRows"))
    assert square(SQUARE.replace("DenseRows", "FullRows")) == "10.0 0\n", "a type that was kept is no more"


def test_calls_with_constants_and_narrow_whole_numbers_share_what_is_compiled():
    for arguments in ((types.int32, types.literal(3), types.int64), (types.int64, types.int64, types.literal(4))):
        at.get_call_template(arguments, {})
    assert {signature.args for signature in at.nopython_signatures} == {(types.int64,) * 3}


def test_a_kernel_for_kernels_alone_runs_in_python_if_python_calls_it_even_once_it_is_compiled():
    @jit.inner_bare_kernel
    def twice(x: float) -> float:
        return 2.0 * x

    @jit.bare_kernel
    def twice_and_one(x: float) -> float:
        return twice(x) + 1.0

    for _ in range(2):
        assert twice(1.5) == 3.0
        assert twice_and_one(1.0) == 3.0
