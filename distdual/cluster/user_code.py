"""The code of a user's own problem on its way to workers: a module and what it imports beside it, or a package.

Workers keep it in a folder of their own, ahead of everything else on their path. The sending
process does not change: there the class stays the one that was imported.
"""

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distdual.errors import InputError
from distdual.problems.base import Problem
from distdual.problems.latent.base import stated

MOST_PACKAGE_BYTES = 16 << 20  # of a package; more are data, which workers should read from storage
INSTALLED = ("purelib", "platlib", "stdlib")

Code = dict[str, bytes]  # by path, relative to a folder on Python's path


def send_module(client: Any, problem: Problem) -> None:
    """Send the code of a user's own problem to all current and future workers, unless it is installed."""
    send_code(client, code_of(type(stated(problem)).__module__))


def send_code(client: Any, code: Code) -> None:
    if code and not client.scheduler.address.startswith("inproc://"):
        from distdual.cluster.user_code_plugin import UserCode

        plugin = UserCode(code, code_digest(code)[:16])
        client.register_plugin(plugin, name=plugin.name)


def code_of(name: str) -> Code:
    """The files that an imported module needs; none if it is installed, or was sent to this process itself."""
    top = sys.modules.get(name.partition(".")[0])
    file = getattr(top, "__file__", None)
    if top is None or file is None or name == "__main__" or not file.endswith(".py"):
        return {}
    path = Path(file)
    if is_installed(path) or was_sent(path) or top.__name__ == "distdual":
        return {}
    if path.name == "__init__.py":
        return package(path.parent)
    found: Code = {}
    add_module(path, found)
    return found


def is_installed(path: Path) -> bool:
    return any(path.is_relative_to(sysconfig.get_path(key)) for key in INSTALLED)


def was_sent(path: Path) -> bool:
    """Whether this process is a worker that was sent the file, as a job's coordinator may be."""
    from distributed import get_worker

    try:
        return path.is_relative_to(get_worker().local_directory)
    except ValueError:  # this process is not a worker
        return False


def package(folder: Path) -> Code:
    """All files of a package but compiled and hidden ones."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not is_hidden(path.relative_to(folder))]
    total = sum(path.stat().st_size for path in files)
    if total > MOST_PACKAGE_BYTES:
        raise InputError(
            f"{folder}: the package of the problem has {total >> 20} MiB, the most that is sent to workers is "
            f"{MOST_PACKAGE_BYTES >> 20}; move data out of it, or install it on all workers"
        )
    return {str(path.relative_to(folder.parent)): path.read_bytes() for path in files}


def is_hidden(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def add_module(path: Path, found: Code) -> None:
    """Add a module, and what it imports from its own folder, wherever in its code it does so."""
    if path.name in found:
        return
    found[path.name] = path.read_bytes()
    for name in imports_of(found[path.name]):
        beside = path.parent / f"{name}.py"
        if beside.is_file():
            add_module(beside, found)
        elif (path.parent / name / "__init__.py").is_file() and not is_installed(path.parent / name):
            found.update(package(path.parent / name))


def imports_of(source: bytes) -> Iterator[str]:
    """The first parts of the names of all modules that a source imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def code_digest(code: Code) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(code.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
