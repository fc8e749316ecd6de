"""Replacement of the files of a folder: until all new ones are there, the old ones are as they were.

The new files go to a folder of their own, replacement-…/, and the file replacement.json, created by one write, makes
them valid. Then each takes its place, and both are removed. A process killed before that write leaves the old files;
one killed after it leaves the new ones, which readers find by `current` and the next replacement puts in their places.
"""

import contextlib
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from distdual.data.storage.conditional import write_if
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.json_floats import parsed_json

POINTER = "replacement.json"
REPLACEMENT_FOLDER = re.compile(r"replacement-[0-9a-f]{8}")


def create_files(location: Location, files: Mapping[str, bytes], last: str) -> None:
    """Write the first files of a folder, `last` at the end; if that fails, remove them."""
    written = list[str]()
    try:
        for name, content in sorted(files.items(), key=lambda file: file[0] == last):
            written.append(name)
            if name == last:
                write_if(location, name, content, None)
            else:
                location.write(name, content)
    except BaseException:
        with contextlib.suppress(InputError):
            for name in written:
                location.patient(0).remove_file(name)
        raise


def replace_files(location: Location, files: Mapping[str, bytes], obsolete: Iterable[str]) -> None:
    """Replace the files of a folder, and remove the obsolete ones."""
    settle(location)
    folder = f"replacement-{secrets.token_hex(4)}"
    new = location / folder
    about = {"folder": folder, "files": list(files), "obsolete": list(obsolete)}
    try:
        for name, content in files.items():
            new.write(name, content)
        write_if(location, POINTER, json.dumps(about).encode(), None)
    except BaseException:
        with contextlib.suppress(InputError):
            if current(location.patient(0)) != new:
                new.patient(0).remove()
        raise
    settle(location)


def settle(location: Location) -> None:
    """Put the files of a replacement in their places, and remove what killed ones have left."""
    about = pointer(location)
    if about is not None:
        new = location / about["folder"]
        for name in about["files"]:
            new.copy(name, location)
        for name in about["obsolete"]:
            location.remove_file(name)
        location.remove_file(POINTER)
    for name in location.names():
        if REPLACEMENT_FOLDER.fullmatch(name):
            (location / name).remove()
        elif name.startswith(f"{POINTER}."):
            location.remove_file(name)  # a copy on its way


def current(location: Location) -> Location:
    """Where the valid files are: in the folder itself or, for a moment, in the replacement."""
    about = pointer(location)
    found = location if about is None else location / about["folder"]
    return found.patient(location.retry_seconds)


def pointer(location: Location) -> dict[str, Any] | None:
    if not location.exists(POINTER):
        return None
    try:
        about = parsed_json(location.read(POINTER))
        plain = REPLACEMENT_FOLDER.fullmatch(about["folder"]) and all(
            map(stays_inside, [*about["files"], *about["obsolete"]])
        )
    except (ValueError, TypeError, KeyError) as error:
        if isinstance(error, InputError):
            raise
        plain = None
    if not plain:
        raise InputError(f"{location}/{POINTER}: it is not what `distdual train` writes; remove it")
    return dict(about)


def stays_inside(name: object) -> bool:
    """Whether a name stays within the folder."""
    return isinstance(name, str) and re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name) is not None and ".." not in name
