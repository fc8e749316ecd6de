"""The comparison of distdual's sources: results of a worker with other sources prove nothing."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import distdual
from distdual.errors import InputError


class Sources(NamedTuple):
    """What a process runs."""

    version: str
    digest: str  # SHA-256 of all files of the package


class ForeignWorkerError(Exception):
    """A task was sent to a worker that runs another distdual; the argument is its address."""


def hashed(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


# Computed when this module is loaded: files may be replaced while a worker runs what it has loaded.
HERE = Sources(distdual.__version__, hashed(Path(distdual.__file__).parent))


def sources() -> Sources:
    """What this process runs; sent to workers to be called there."""
    return HERE


def is_same(found: Any) -> bool:
    """Whether a worker runs the sources of this process."""
    return isinstance(found, tuple) and tuple(found) == HERE


def check_sources(found: Mapping[str, Any]) -> None:
    """Raise unless all workers, by address, run what this process runs."""
    for address, answer in found.items():
        if not is_same(answer):
            raise InputError(f"{differs(address, answer)}; install the same on all workers")


def differs(address: str, found: Any) -> str:
    told = f"distdual {found[0]}" if isinstance(found, tuple) else f"no distdual that answers ({found})"
    return f"worker {address} runs {told} with other sources than this process, distdual {HERE.version}"
