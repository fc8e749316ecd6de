"""The check of a destination: it is empty, holds a data set to replace, or holds something to keep."""

import contextlib
import re
from typing import NamedTuple

from distdual.data.dataset import open_dataset
from distdual.data.layout import SEPARATORS
from distdual.data.storage.conditional import version_of
from distdual.data.storage.location import Location
from distdual.data.zarr_description import DamagedError, IncompleteError
from distdual.errors import InputError


class There(NamedTuple):
    """A data set that is to be replaced."""

    version: str | None  # of its zarr.json
    separator: str  # in the names of its chunks


def found_at(location: Location, *, overwrite: bool) -> There | None:
    """The data set to replace; None if there is nothing, or only what an interrupted `prepare` left.

    Raises if something else is there, or if a data set is there and must not be replaced.
    """
    if location.is_empty():
        return None
    how = ""
    with contextlib.suppress(InputError):
        version = version_of(location, "zarr.json")
        if overwrite and is_complete(location):
            return There(version, separator_at(location))
        if is_interrupted(location):
            return None
        if is_complete(location) and not overwrite:
            how = ", or replace the data set: --overwrite (overwrite=True)"
    raise InputError(f"{location}: is not empty; choose an empty destination{how}")


def is_interrupted(location: Location) -> bool:
    try:
        open_dataset(location)
    except IncompleteError:
        return True
    return False


def is_complete(location: Location) -> bool:
    """Whether a data set that this version knows is there, damaged or not."""
    try:
        open_dataset(location)
    except IncompleteError:
        return False
    except DamagedError:
        return True
    return True


def separator_at(location: Location) -> str:
    """The separator in the names of chunks, of a data set that may be damaged."""
    try:
        return open_dataset(location).layout.separator
    except DamagedError:
        dotted = re.search(rb'"separator":\s*"\."', location.read("zarr.json"))
        return SEPARATORS[dotted is not None]
