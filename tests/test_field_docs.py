"""The meaning of a field is the string below it, and every key of a config has one."""

import re
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path

import pytest

from distdual import config
from distdual.field_docs import fields_of
from distdual.problems.registry import BUILT_IN, own_fields


@dataclass(frozen=True, kw_only=True)
class Parent:
    a: int
    """The first."""

    b: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Child(Parent):
    c: str = "x"
    """The third,
    on two lines."""

    b: list[int] = field(default_factory=lambda: [1])
    """The second, documented by the child."""

    def method(self) -> str:
        """Not a field."""
        return self.c


def test_fields_have_type_default_and_meaning():
    a, b, c = fields_of(Child)
    assert a == ("a", int, MISSING, "The first.")
    assert b == ("b", list[int], [1], "The second, documented by the child.")
    assert c == ("c", str, "x", "The third,\non two lines.")
    assert [each.meaning for each in fields_of(Parent)] == ["The first.", ""]


SECTIONS = [each.type for each in fields(config.Config)] + [config.LocalCluster]


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_every_key_of_a_section_is_documented(section):
    assert all(each.meaning.endswith((".", '"')) for each in fields_of(section))


@pytest.mark.parametrize("cls", BUILT_IN, ids=lambda cls: cls.__name__)
def test_every_key_of_a_problem_is_documented(cls):
    assert all(each.meaning for each in own_fields(cls))


def test_the_binary_config_shows_every_key():
    text = (Path(__file__).parent.parent / "configs" / "binary.toml").read_text()
    shown: dict[str, set[str]] = {}
    for line in text.splitlines():
        if head := re.match(r"(?:# )?\[(\w+)\]", line):
            section = shown.setdefault(head[1], set())
        elif key := re.match(r"(?:# )?(\w+) = ", line):
            section.add(key[1])
    sections = {each.name: {key.name for key in fields_of(each.type)} for each in fields(config.Config)}
    sections["problem"] = {"kind", *(key.name for key in own_fields(BUILT_IN[0]))}
    assert shown == sections
