"""The Zarr metadata of a data set, read and checked: group, layout, tables and codecs."""

import json
from typing import Any, Literal

import zarr
import zarr.errors
from zarr.abc.store import Store

from distdual.data.layout import ATTRIBUTES, CHECKSUMS, FORMAT, LENGTHS, NORMS, SEPARATORS, ArraySpec, Layout
from distdual.data.layout_schema import LAYOUT_RULE as SCHEMA
from distdual.data.layout_schema import check_layout, check_table_size, check_zarr_array
from distdual.data.storage.location import Location
from distdual.errors import InputError

PLAIN_ARRAY = "{}: this is a plain Zarr array; make a data set of it with `distdual prepare`, and --labels"
TABLES: dict[str, tuple[str, int]] = {LENGTHS: ("int64", 2), NORMS: ("float64", 1), CHECKSUMS: ("uint32", 1)}
# What Zarr raises about descriptions that it cannot read, and json about those nested too deeply.
UNREADABLE = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class IncompleteError(InputError):
    """A data set without its `complete` mark."""


class DamagedError(InputError):
    """A data set whose description is damaged."""


def text_array(name: str) -> str:
    """The array that holds a text."""
    return f"text_{name}"


def array_of(group: zarr.Group, name: str) -> "zarr.Array[Any]":
    found = group[name]
    if not isinstance(found, zarr.Array):
        raise KeyError(name)
    return found


def codecs_of(location: Location, group: zarr.Group, layout: Layout, spec: ArraySpec) -> Any:
    """How an array is stored, if it is as the layout says."""
    metadata = array_of(group, spec.name).metadata.to_dict()
    check_zarr_array(f"{location}: array {spec.name!r}", as_json(metadata), spec, layout.chunk_shape(spec))
    return metadata["codecs"]


def stored_as(location: Location, group: zarr.Group, name: str, dtype: str, dimensions: int = 1) -> "zarr.Array[Any]":
    """A table or a text, if it is of this form and fits in memory."""
    found = array_of(group, name)
    check_table_size(f"{location}: array {name!r}", as_json(found.metadata.to_dict()), dtype, dimensions)
    return found


def as_json(value: Any) -> Any:
    """Zarr's description of an array as JSON has it."""
    return json.loads(json.dumps(value, default=str))


def damaged(error: BaseException, sentence: str) -> InputError:
    """The error's own sentence if it is an InputError, else `sentence` with the error in it."""
    own = f"{error}; prepare it again"
    return DamagedError(own if isinstance(error, InputError) else sentence.format(error))


def separator_of(location: Location, group: zarr.Group, layout: Layout) -> str:
    """The separator in the names of chunks, which is the same in all arrays."""
    encodings = [array_of(group, spec.name).metadata.to_dict()["chunk_key_encoding"] for spec in layout.arrays]
    for separator in SEPARATORS:
        if all(found == {"name": "default", "configuration": {"separator": separator}} for found in encodings):
            return separator
    raise InputError(f"{location}: its arrays name their chunks in different ways; prepare it again")


def open_group(location: Location, store: Store, mode: Literal["r", "r+"] = "r") -> zarr.Group:
    try:
        return zarr.open_group(store, mode=mode, zarr_format=3)
    except zarr.errors.ContainsArrayError:
        raise InputError(PLAIN_ARRAY.format(location)) from None
    except (zarr.errors.GroupNotFoundError, FileNotFoundError, NotADirectoryError):
        raise InputError(f"{location}: {what_is_there(location)}") from None
    except UNREADABLE as error:
        raise damaged(error, f"{location}: zarr.json is damaged ({{}}); prepare it again") from None


def what_is_there(location: Location) -> str:
    """What stands where a data set is expected, and what to do."""
    fs, path = location.filesystem()
    if not location.remote and fs.isfile(path):
        return "is a file, not a data set; make one of it with `distdual prepare`"
    parts = [part for part in ("train", "test") if (location / part).exists("zarr.json")]
    if parts:
        return f"there is no data set, but there is one in {' and in '.join(f'{location}/{part}' for part in parts)}"
    if location.exists("model.json"):
        return "there is no data set, but a model"
    return "there is no data set; make one with `distdual prepare`"


def read_layout(location: Location, group: zarr.Group) -> Layout:
    attributes = check_attributes(location, dict(group.attrs).get(ATTRIBUTES))
    try:
        SCHEMA(f"{location}: zarr.json", attributes)
        layout = Layout.from_attributes(attributes)
        check_layout(f"{location}: zarr.json", layout)
    except InputError as error:
        raise DamagedError(f"{error}; prepare it again") from None
    return layout


def check_attributes(location: Location, attributes: Any) -> dict[str, Any]:
    if not isinstance(attributes, dict) or type(attributes.get("format")) is not int:
        raise InputError(
            f"{location}: this Zarr group is not a distdual data set; if it holds arrays of features and labels, "
            "make a data set of them with `distdual prepare`"
        )
    if attributes["format"] > FORMAT:
        raise InputError(
            f"{location}: data format {attributes['format']} is newer than {FORMAT}, "
            "the newest this version reads; upgrade distdual"
        )
    if not attributes.get("complete"):
        raise IncompleteError(f"{location}: the data set is incomplete: its `prepare` was interrupted; run it again")
    return attributes
