"""The source files of a kernel: its own, all that this imports, and those that specialise generic calls."""

import functools
import hashlib
import re
from pathlib import Path

IMPORT = re.compile(r"^\s*(?:from|import) ([\w.]+)", re.MULTILINE)
SPECIALISE = re.compile(r"^@specialise\b", re.MULTILINE)  # what a generic call compiles to for a type


def digest_of(package: Path, module: str) -> str:
    """A digest of these files for a kernel of `module`; others may change without it being compiled anew."""
    found = hashlib.sha256()
    for path in kernel_sources(package, module):
        found.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def kernel_sources(package: Path, module: str) -> list[Path]:
    """All files of the package for a module outside it, such as a user's own."""
    files, imported, specialising = imported_sources(package)
    left, found = [module, *specialising], set[str]()
    if module not in files:
        left += files
    while left:
        name = left.pop()
        if name in files and name not in found:
            found.add(name)
            left += imported[name]
    return sorted(files[name] for name in found)


@functools.cache
def imported_sources(package: Path) -> tuple[dict[str, Path], dict[str, set[str]], list[str]]:
    """The files of a package by module, the modules that each imports, and those that specialise."""
    files = {module_name(path, package): path for path in package.rglob("[!.]*.py")}  # not what an editor hides there
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    imported = {name: set(IMPORT.findall(text)) for name, text in texts.items()}
    return files, imported, [name for name, text in texts.items() if SPECIALISE.search(text)]


def module_name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
