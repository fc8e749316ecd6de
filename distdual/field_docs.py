"""The meaning of each dataclass field, read from the string below it, for help texts and documentation."""

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple


class Field(NamedTuple):
    name: str
    hint: Any
    default: Any  # dataclasses.MISSING if required
    meaning: str


def fields_of(cls: Any) -> Iterator[Field]:
    """The fields of a dataclass, or of one that may be None, in order and including inherited ones."""
    cls = next(iter(typing.get_args(cls)), cls)
    meanings, hints = meanings_of(cls), typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        yield Field(field.name, hints[field.name], default, meanings.get(field.name, ""))


def meanings_of(cls: Any) -> dict[str, str]:
    found = {}
    owners: list[type] = [*reversed(cls.__mro__)]
    for owner in owners:
        if dataclasses.is_dataclass(owner):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
            assert isinstance(tree, ast.ClassDef)
            for field, below in zip(tree.body, tree.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and (text := string(below)):
                    found[field.target.id] = inspect.cleandoc(text)
    return found


def string(node: ast.stmt) -> str | None:
    text = node.value if isinstance(node, ast.Expr) else None
    return text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else None
