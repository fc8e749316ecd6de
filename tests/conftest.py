"""What all tests share: a real S3 server, and a fresh place to write to, local or remote."""

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
    """A server of the test's own, which it may kill and start again."""
    server = S3Server()
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture(params=["local", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty place: a local folder, then a prefix in a bucket."""
    if request.param == "local":
        return Location(str(tmp_path / "set"))
    server = request.getfixturevalue("s3")
    return Location(server.url(), server.storage_options)
