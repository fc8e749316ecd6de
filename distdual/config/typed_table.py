"""TOML tables as dataclasses: unknown keys and values of a wrong type are refused."""

import dataclasses
import difflib
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from distdual.errors import InputError

T = TypeVar("T")


def read_table(path: str | Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; expected a TOML file") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: not a TOML file: {error}") from None


def toml_value(text: str) -> Any:
    """`text` parsed as a TOML value, or unchanged if it is none."""
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if len(found) == 1 else text


def parse(cls: type[T], table: Any, source: str, prefix: str = "") -> T:
    """Build the dataclass `cls` from a TOML table; refuse unknown keys, missing keys and values of a wrong type."""
    if not isinstance(table, Mapping):
        raise InputError(f"{source}: {prefix.rstrip('.')} must be a section, got {shown_setting(prefix, table)}")
    fields = {f.name: f for f in dataclasses.fields(cast(Any, cls))}
    hints = typing.get_type_hints(cls)
    for key in table:
        if key not in fields:
            raise InputError(f"{source}: unknown key {prefix}{key}{nearest(str(key), fields, prefix)}")
    for name, spec in fields.items():
        required = spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING
        if required and name not in table:
            raise InputError(f"{source}: {prefix}{name} is missing")
    values = {key: convert(hints[key], value, source, prefix + key) for key, value in table.items()}
    try:
        return cls(**values)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def convert(hint: Any, value: Any, source: str, name: str) -> Any:
    """Check `value` against a type hint; an int may stand for a float, nothing else is converted."""
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        options = [option for option in typing.get_args(hint) if option is not types.NoneType]
        hint = str if str in options and isinstance(value, str) else options[0]
    if dataclasses.is_dataclass(hint):
        return parse(cast(type[Any], hint), value, source, name + ".")
    kind = typing.get_origin(hint) or hint
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**1023:
        return float(value)
    if (kind is not bool and isinstance(value, bool)) or not isinstance(value, kind):
        called = {
            float: "a number",
            int: "a whole number",
            str: "a string",
            bool: "true or false",
            dict: "a table",
            list: "a list",
        }
        raise InputError(
            f"{source}: {name} must be {called.get(kind, kind.__name__)}, got {shown_setting(name, value)}"
        )
    return value


def shown_setting(name: str, value: Any) -> str:
    """`value` as shown in error messages, with nothing that could hold credentials."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if "storage_options" in name:
        return "something else"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def nearest(key: str, known: Mapping[str, Any], prefix: str = "") -> str:
    """The suggestion that ends an error message about an unknown key."""
    if not known:
        return "; there are none"
    folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(key.casefold(), folded, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {prefix}{folded[close[0]]}?"
    return f"; known are {', '.join(prefix + name for name in sorted(known))}"
