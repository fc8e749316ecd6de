"""example: configs and programs to start from, written to a folder of the user's."""

import ast
import shutil
from pathlib import Path

import click

from distdual.errors import InputError

PACKAGE_FOLDER = Path(__file__).parents[1]
HOMES = (PACKAGE_FOLDER / "examples", PACKAGE_FOLDER.parent)  # of an installed wheel, and of a checkout
EXAMPLE_FOLDERS = {"configs": "*.toml", "jobs": "*.py"}
SHARED = "jobs/shared.py"  # what the programs import


@click.command(short_help="Write example configs and programs.")
@click.argument("names", nargs=-1)
@click.option("--dir", "folder", default=".", show_default=True, help="Folder to write configs/ or jobs/ to.")
def example(names: tuple[str, ...], folder: str) -> None:
    """Write example configs and programs; without NAMES, list them.

    A NAME is that of the list, such as configs/binary.toml, or the file's alone, such as binary.toml or binary.

    \b
    Example:
      distdual example configs/binary.toml
    """
    files = examples()
    if not names:
        width = max(map(len, files))
        click.echo("\n".join(f"{name:{width}}  {brief(path)}" for name, path in files.items() if name != SHARED))
        return
    chosen = dict.fromkeys(found for name in names for found in with_shared(find_example(name, files)))
    for name in chosen:
        if name != SHARED and (place := Path(folder, name)).exists():
            raise InputError(f"{place} exists already; remove it, or choose another folder with --dir")
    for name in chosen:
        write_example(files[name], Path(folder, name))


def examples() -> dict[str, Path]:
    """The path of each example by its name, configs first."""
    home = next((home for home in HOMES if (home / "configs").is_dir()), None)
    if home is None:
        raise InputError(f"{HOMES[0]}: the examples are missing; install distdual again")
    return {
        f"{folder}/{path.name}": path
        for folder, kind in EXAMPLE_FOLDERS.items()
        for path in sorted((home / folder).glob(kind))
    }


def find_example(name: str, files: dict[str, Path]) -> str:
    matches = [full for full, path in files.items() if name in (full, path.name, path.stem) and full != SHARED]
    if len(matches) != 1:
        found = f"means {' or '.join(matches)}" if matches else "is none of them"
        raise InputError(f"example: {name!r} {found}; `distdual example` lists the names")
    return matches[0]


def with_shared(name: str) -> list[str]:
    return [name, SHARED] if name.startswith("jobs/") else [name]


def brief(path: Path) -> str:
    """The first sentence of a config's comment or a program's docstring."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    return text.splitlines()[0].removeprefix("# ").rstrip(".:;")


def write_example(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, place)
    click.echo(f"wrote      {place}")
