"""The problems that can be learnt: base (the contract), linear (what some share), then one file each.

`load` finds the class that a config or a model names.
"""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from distdual.config import convert, nearest
from distdual.errors import InputError
from distdual.problems.base import Problem
from distdual.problems.load import Named, class_of, trusted_class

_FROM_DATA = ("n_features", "classes")


def make_problem(kind: str, options: Mapping[str, Any], *, n_features: int, classes: tuple[str, ...]) -> Problem:
    """The problem that [problem] of a config asks for, on data of this shape."""
    return build(class_of(kind), options, n_features=n_features, classes=classes)


def problem_from(description: Mapping[str, Any], named: Named | None = None) -> Problem:
    """The problem that `describe` wrote down; a user's own must also be `named` by who asks."""
    options = {key: value for key, value in description.items() if key not in ("kind", *_FROM_DATA)}
    return build(
        trusted_class(description["kind"], named),
        options,
        n_features=description["n_features"],
        classes=tuple(description["classes"]),
    )


def build(cls: type[Any], options: Mapping[str, Any], *, n_features: int, classes: tuple[str, ...]) -> Problem:
    known = {f.name: f for f in dataclasses.fields(cls) if f.name not in _FROM_DATA}
    hints = typing.get_type_hints(cls)
    values = {}
    for key, value in options.items():
        if key not in known:
            raise InputError(f"[problem] of kind {cls.kind!r}: unknown key {key}{nearest(key, known, 'problem.')}")
        values[key] = convert(hints[key], value, "[problem]", f"problem.{key}")
    made: Problem = cls(n_features=n_features, classes=classes, **values)
    return made
