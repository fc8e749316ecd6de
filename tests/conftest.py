"""Shared fixtures: a real S3 server, and an empty local or remote folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from distdual.data.storage.location import Location
from tests.s3_server import S3Server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """One server for all tests; use `own_s3` to stop it."""
    server = S3Server()
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture
def own_s3() -> Iterator[S3Server]:
    """A separate server, which the test may kill and restart."""
    server = S3Server()
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture(params=["local", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty local folder, then an empty prefix in a bucket."""
    if request.param == "local":
        return Location(str(tmp_path / "set"))
    server = request.getfixturevalue("s3")
    return Location(server.url(), server.storage_options)
