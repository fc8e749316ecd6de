"""The source files that kernels are made of: those that define some, and all that these import."""

import hashlib
import re
from pathlib import Path

IMPORT = re.compile(r"^\s*(?:from|import) ([\w.]+)", re.MULTILINE)
JIT = "kernels.jit"  # what every file with a kernel imports


def digest_of(package: Path) -> str:
    """A digest of these files; others may change without a kernel being compiled anew."""
    found = hashlib.sha256()
    for path in kernel_sources(package):
        found.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def kernel_sources(package: Path) -> list[Path]:
    files = {module_name(path, package): path for path in package.rglob("[!.]*.py")}  # not what an editor hides there
    imported = {name: set(IMPORT.findall(path.read_text(encoding="utf-8"))) for name, path in files.items()}
    jit = f"{package.name}.{JIT}"
    left, found = [name for name in files if name == jit or jit in imported[name]], set[str]()
    while left:
        name = left.pop()
        if name in files and name not in found:
            found.add(name)
            left += imported[name]
    return sorted(files[name] for name in found)


def module_name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
