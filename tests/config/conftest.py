"""The smallest configuration as a file."""

from pathlib import Path

import pytest

from tests.config.tables import SMALLEST


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(SMALLEST)
    return path
