"""Rules for values that come from storage or over the network; each format declares its schema with them.

A rule takes the name of a value, for the message, and the value. It raises an InputError unless the value is what the
rule declares.
"""

import dataclasses
import math
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdual.errors import InputError

Rule = Callable[[str, Any], None]

MOST = 1 << 48  # entries of anything, so that sums and products of sizes stay below 2⁶³
LARGEST_FINITE = 2.0**1023  # of finite numbers, so that twice as much is finite
SHOWN = 60  # characters of a wrong value in a message


def refuse(name: str, expected: str, value: Any) -> InputError:
    text = repr(value)
    return InputError(f"{name}: expected {expected}, found {text if len(text) <= SHOWN else text[:SHOWN] + '…'}")


# --- values of JSON


def whole(low: int = 0, high: int = MOST) -> Rule:
    """A whole number from `low` to `high`."""

    def check(name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise refuse(name, f"a whole number from {low} to {high}", value)

    return check


def number(*, finite: bool = True, positive: bool = False) -> Rule:
    """A number that is not NaN."""

    def check(name: str, value: Any) -> None:
        ok = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= math.inf
        is_int = isinstance(value, int)  # JSON has such of any length
        if not ok or ((finite or is_int) and not abs(value) < LARGEST_FINITE) or (positive and not value > 0):
            raise refuse(name, f"a {'positive ' if positive else ''}{'finite ' if finite else ''}number", value)

    return check


def flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise refuse(name, "true or false", value)


def text(pattern: str = "", what: str = "a text") -> Rule:
    """A text that matches all of `pattern`, if there is one."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, str) or (pattern and not re.fullmatch(pattern, value)):
            raise refuse(name, what, value)

    return check


def choice(*known: Any) -> Rule:
    def check(name: str, value: Any) -> None:
        if not any(type(value) is type(each) and value == each for each in known):
            raise refuse(name, " or ".join(map(repr, known)), value)

    return check


def anything(name: str, value: Any) -> None:
    """Accepts any value: nothing depends on it."""


def maybe(rule: Rule) -> Rule:
    """Null, or what `rule` says."""

    def check(name: str, value: Any) -> None:
        if value is not None:
            rule(name, value)

    return check


def each(rule: Rule, *, length: int | None = None, distinct: bool = False) -> Rule:
    """A list whose entries all meet `rule`."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, list | tuple) or (length is not None and len(value) != length):
            raise refuse(name, "a list" if length is None else f"a list of {length}", value)
        for k, one in enumerate(value):
            rule(f"{name}[{k}]", one)
        if distinct and len(set(value)) < len(value):
            raise refuse(name, "a list that names nothing twice", value)

    return check


def table(required: Mapping[str, Rule], optional: Mapping[str, Rule] | None = None, *, others: bool = False) -> Rule:
    """A table with these keys; `others` says whether it may have more."""
    known = {**required, **(optional or {})}

    def check(name: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise refuse(name, "a table", value)
        if missing := [key for key in required if key not in value]:
            raise InputError(f"{name}: {missing[0]} is missing")
        if not others and (unknown := [key for key in value if key not in known]):
            raise InputError(f"{name}: unknown key {str(unknown[0])[:SHOWN]!r}")
        for key, rule in known.items():
            if key in value:
                rule(f"{name}: {key}", value[key])

    return check


def table_of(rule: Rule, names: Rule = anything) -> Rule:
    """A table whose names meet `names`, and its values `rule`."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise refuse(name, "a table", value)
        for key, one in value.items():
            names(f"{name}: a name", key)
            rule(f"{name}: {key}", one)

    return check


def record(cls: type[Any]) -> Rule:
    """A table with the fields of a dataclass or a NamedTuple, by their type hints; infinity is a number here."""
    hints = typing.get_type_hints(cls)
    needed = set(hints)
    if dataclasses.is_dataclass(cls):
        missing = dataclasses.MISSING
        free = [f for f in dataclasses.fields(cls) if f.default is not missing or f.default_factory is not missing]
        needed -= {f.name for f in free}
    rules = {name: of_hint(hint) for name, hint in hints.items()}
    return table({n: r for n, r in rules.items() if n in needed}, {n: r for n, r in rules.items() if n not in needed})


def row(cls: type[Any]) -> Rule:
    """A list with the fields of a NamedTuple, by their type hints."""
    rules = [of_hint(hint) for hint in typing.get_type_hints(cls).values()]

    def check(name: str, value: Any) -> None:
        each(anything, length=len(rules))(name, value)
        for k, rule in enumerate(rules):
            rule(f"{name}[{k}]", value[k])

    return check


def of_hint(hint: Any) -> Rule:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    simple: dict[Any, Rule] = {
        int: whole(-MOST, 1 << 62),
        float: number(finite=False),
        bool: flag,
        str: text(),
        Any: anything,
    }
    if hint in simple:
        return simple[hint]
    if origin is list:
        return each(of_hint(inner[0]))
    if origin is dict:
        return table_of(of_hint(inner[1]), of_hint(inner[0]))
    raise TypeError(f"no rule for {hint}")


# --- arrays


def array(
    name: str, value: Any, dtype: Any, shape: tuple[int | None, ...], *, low: float | None = None, finite: bool = True
) -> NDArray[Any]:
    """The array, if it is of one of these types and of this shape (None: any length), at least `low` and finite."""
    dtypes = [np.dtype(one) for one in (dtype if isinstance(dtype, tuple) else (dtype,))]
    fits = isinstance(value, np.ndarray) and value.dtype in dtypes and value.ndim == len(shape)
    if not fits or any(n not in (None, m) for n, m in zip(shape, value.shape, strict=True)):
        size = "×".join("n" if n is None else str(n) for n in shape)
        found = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise InputError(f"{name}: expected {' or '.join(map(str, dtypes))} of shape {size or '()'}, found {found}")
    found_array: NDArray[Any] = value
    if finite and found_array.dtype.kind == "f" and not np.isfinite(found_array).all():
        raise InputError(f"{name}: a number is NaN or infinite")
    if low is not None and found_array.size and found_array.min() < low:
        raise InputError(f"{name}: {found_array.min()} is below {low:g}")
    return found_array


def rising(name: str, indptr: NDArray[Any], n_values: int, *, least: int = 0) -> None:
    """Refuse an indptr that does not divide `n_values` entries into runs of at least `least` each."""
    if not len(indptr) or indptr[0] != 0 or indptr[-1] != n_values or (indptr[1:] < indptr[:-1] + least).any():
        some = " of at least one each" if least else ""
        raise InputError(f"{name}: must rise from 0 to {n_values}, in runs{some}")


def below(name: str, numbers: NDArray[Any], end: int) -> None:
    """Refuse numbers that are not from 0 to `end` − 1."""
    if numbers.size and not int(numbers.view(f"u{numbers.itemsize}").max()) < end:  # numbers below 0 are large there
        wrong = int(numbers.min()) if numbers.min() < 0 else int(numbers.max())
        raise InputError(f"{name}: {wrong} is not from 0 to {end - 1}")


def rising_numbers(name: str, numbers: NDArray[Any], *, strictly: bool = False) -> None:
    """Refuse numbers that fall, or with `strictly` that do not rise."""
    wrong = numbers[1:] <= numbers[:-1] if strictly else numbers[1:] < numbers[:-1]
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(f"{name}: {numbers[at + 1]:g} follows {numbers[at]:g}; the numbers must rise")
