"""The problems that can be learnt: base (the contract), linear (what some share), then one file each.

Tagging takes three: viterbi (the best path), paths (rows of two paths), chain (the problem).
Parsing takes four: derivation (trees as numbers), cky (the best tree), runner_up (the best but one), cfg (the problem).
`completed` is the contract of latent problems, and the convex problem that is left of one.

`load` finds the class that a config or a model names.
"""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from distdual.config import convert, nearest
from distdual.errors import InputError
from distdual.fields import Field, fields_of
from distdual.problems.base import Problem
from distdual.problems.load import Named, class_of, trusted_class

_FROM_DATA = ("n_features", "classes")


def make_problem(
    kind: str,
    options: Mapping[str, Any],
    *,
    n_features: int,
    classes: tuple[str, ...],
    texts: Mapping[str, str] | None = None,
) -> Problem:
    """The problem that [problem] of a config asks for, on data of this shape and with these texts."""
    return build(class_of(kind), options, n_features=n_features, classes=classes, texts=texts)


def problem_from(
    description: Mapping[str, Any], named: Named | None = None, texts: Mapping[str, str] | None = None
) -> Problem:
    """The problem that `describe` wrote down; a user's own must also be `named` by who asks."""
    cls = trusted_class(description["kind"], named)
    apart = ("kind", *_FROM_DATA, *cls.texts)
    made = build(
        cls,
        {key: value for key, value in description.items() if key not in apart},
        n_features=description["n_features"],
        classes=tuple(description["classes"]),
        texts=texts,
    )
    check_texts(made, description)
    return made


def texts_of(description: Mapping[str, Any], named: Named | None = None) -> tuple[str, ...]:
    """The texts that `problem_from` needs."""
    names: tuple[str, ...] = trusted_class(description["kind"], named).texts
    return names


def check_texts(problem: Problem, description: Mapping[str, Any]) -> None:
    """A problem is what its description says only if its texts are the same."""
    for name in problem.texts:
        if problem.describe()[name] != description.get(name):
            raise InputError(f"the {name} is not the one that the model was trained with")


def own_fields(cls: type[Any]) -> list[Field]:
    """The keys of [problem] that this problem has, with what they mean."""
    return [field for field in fields_of(cls) if field.name not in (*_FROM_DATA, *cls.texts)]


def build(
    cls: type[Any],
    options: Mapping[str, Any],
    *,
    n_features: int,
    classes: tuple[str, ...],
    texts: Mapping[str, str] | None = None,
) -> Problem:
    apart = (*_FROM_DATA, *cls.texts)
    known = {f.name: f for f in dataclasses.fields(cls) if f.name not in apart}
    hints = typing.get_type_hints(cls)
    values = {}
    for key, value in options.items():
        if key not in known:
            raise InputError(f"[problem] of kind {cls.kind!r}: unknown key {key}{nearest(key, known, 'problem.')}")
        values[key] = convert(hints[key], value, "[problem]", f"problem.{key}")
    for name in cls.texts:
        if name not in (texts or {}):
            raise InputError(
                f"a {cls.kind} problem needs a data set with a {name}; prepare it with --problem {cls.kind}"
            )
    from_texts = {name: texts[name] for name in cls.texts} if texts else {}
    made: Problem = cls(n_features=n_features, classes=classes, **from_texts, **values)
    return made
