"""The problems that can be learnt: base (the contract), linear (what some share), then one file each."""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from distdual.config import check_choice, convert, nearest
from distdual.errors import InputError
from distdual.problems.base import Problem
from distdual.problems.binary import Binary
from distdual.problems.chain import Chain
from distdual.problems.multiclass import Multiclass
from distdual.problems.regression import Regression

KINDS: dict[str, type[Any]] = {cls.kind: cls for cls in (Binary, Multiclass, Regression, Chain)}

_FROM_DATA = ("n_features", "classes")


def make_problem(kind: str, options: Mapping[str, Any], *, n_features: int, classes: tuple[str, ...]) -> Problem:
    """The problem that [problem] of a config asks for, on data of this shape."""
    check_choice("problem.kind", kind, list(KINDS))
    cls = KINDS[kind]
    known = {f.name: f for f in dataclasses.fields(cls) if f.name not in _FROM_DATA}
    hints = typing.get_type_hints(cls)
    values = {}
    for key, value in options.items():
        if key not in known:
            raise InputError(f"[problem] of kind {kind!r}: unknown key {key}{nearest(key, known, 'problem.')}")
        values[key] = convert(hints[key], value, "[problem]", f"problem.{key}")
    made: Problem = cls(n_features=n_features, classes=classes, **values)
    return made


def problem_from(description: Mapping[str, Any]) -> Problem:
    """The problem that `describe` wrote down."""
    options = {key: value for key, value in description.items() if key not in ("kind", *_FROM_DATA)}
    return make_problem(
        description["kind"],
        options,
        n_features=description["n_features"],
        classes=tuple(description["classes"]),
    )
