"""The documentation, built as its readers see it."""

import subprocess
import sys
from pathlib import Path

from tests.shell import environment

ROOT = Path(__file__).parents[1]


def build_site(folder: Path) -> Path:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "build.py", "--site", folder],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
