"""Source files named by patterns and folders."""

import re
from collections.abc import Sequence
from dataclasses import replace

from distdual.data.storage.location import Location, clear_errors
from distdual.errors import InputError

ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")  # of which an array or a group has one
PATTERN = re.compile(r"[*?\[]")


def expanded(files: Sequence[Location]) -> list[Location]:
    """The files themselves: patterns such as part-*.csv and folders are replaced by their files, sorted by name."""
    return [found for file in files for found in (glob_files(file) if is_pattern(file) else inside(file))]


def is_pattern(place: Location) -> bool:
    return PATTERN.search(place.url) is not None


def glob_files(pattern: Location) -> list[Location]:
    fs, path = pattern.filesystem()
    with clear_errors(pattern.url):
        found = [name for name in fs.glob(path) if fs.isfile(name)]
    if not found:
        raise InputError(f"{pattern}: no file matches the pattern")
    return [named(pattern, name) for name in sorted(found)]


def inside(place: Location) -> list[Location]:
    """The place itself if it is a file, or all files of a folder; names that begin with . or _ are left out."""
    fs, path = place.filesystem()
    with clear_errors(place.url):
        if not fs.isdir(path) or is_zarr(place):
            return [place]
        below = {name: name[len(path) :].strip("/").split("/") for name in fs.find(path)}
    found = [name for name, parts in below.items() if not any(part.startswith((".", "_")) for part in parts)]
    if not found:
        raise InputError(f"{place}: the folder holds no files")
    if any("=" in part for name in found for part in below[name][:-1]):
        raise InputError(
            f"{place}: folders such as {below[found[0]][0]} hold a column in their names; write it to the files"
        )
    return [named(place, name) for name in sorted(found)]


def is_zarr(place: Location) -> bool:
    """Whether a folder is a Zarr array or group."""
    return any(place.exists(name) for name in ZARR_FILES)


def named(place: Location, path: str) -> Location:
    """A file of the same storage."""
    protocol, colon, _ = place.url.partition("://")
    return replace(place, url=f"{protocol}://{path}" if colon else path)
