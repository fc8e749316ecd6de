"""The smallest configuration, as a table and as a file, and how it is refused."""

from typing import Any

import pytest

from distdual.config import from_table
from distdual.errors import InputError

SMALLEST = """
[data]
url = "data/train"

[problem]
kind = "binary"

[output]
url = "model"
"""


def table(**sections: dict[str, Any]) -> dict[str, Any]:
    smallest: dict[str, Any] = {
        "data": {"url": "data/train"},
        "problem": {"kind": "binary"},
        "output": {"url": "model"},
    }
    for name, keys in sections.items():
        smallest[name] = {**smallest.get(name, {}), **keys}
    return smallest


def refusal(**sections: Any) -> str:
    with pytest.raises(InputError) as caught:
        from_table(table(**sections), "run.toml")
    message = str(caught.value)
    assert message.startswith("run.toml: ")
    assert message.count("run.toml") == 1
    return message.removeprefix("run.toml: ")
