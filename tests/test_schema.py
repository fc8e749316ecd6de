"""Rules pass what they declare and name what they do not."""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from distdual import schema
from distdual.errors import InputError


class Pair(NamedTuple):
    number: int
    share: float


@dataclass
class Line:
    count: int
    share: float
    more: dict[str, list[float]] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (schema.whole(1, 3), [1, 3], [0, 4, True, 1.0, "1", None]),
        (schema.number(), [0, -1.5], [math.nan, math.inf, 10**400, "0", True, None]),
        (schema.number(finite=False), [math.inf, 1], [math.nan, "inf", 10**400]),
        (schema.number(positive=True), [1e-300], [0, -1]),
        (schema.flag, [True], [1, None]),
        (schema.text("a+", "letters a"), ["aa"], ["ab", "", 1]),
        (schema.choice("a", 1), ["a", 1], ["b", True, 1.0]),
        (schema.maybe(schema.flag), [None, True], [0]),
        (schema.each(schema.flag), [[], [True]], [[1], {}, "x"]),
        (schema.each(schema.text(), distinct=True), [["a", "b"]], [["a", "a"]]),
        (schema.table({"a": schema.flag}, {"b": schema.flag}), [{"a": True}], [{}, {"a": 1}, {"a": True, "c": 1}, []]),
        (schema.table_of(schema.flag, schema.text("a")), [{"a": True}], [{"b": True}, {"a": 1}]),
        (schema.row(Pair), [[1, 0.5], [1, math.inf]], [[1], [1.5, 1], [1, None]]),
        (schema.record(Line), [{"count": 1, "share": 2}], [{"count": 1}, {"count": 1, "share": 1, "x": 1}]),
        (
            schema.record(Line),
            [{"count": 1, "share": 1, "more": {"a": [1.0]}}],
            [{"count": 1, "share": 1, "more": [1]}],
        ),
    ],
)
def test_a_rule_passes_what_it_declares_and_nothing_else(rule, good, bad):
    for value in good:
        rule("here", value)
    for value in bad:
        with pytest.raises(InputError, match=r"^here"):
            rule("here", value)


@pytest.mark.parametrize(
    ("value", "options", "words"),
    [
        (np.zeros(3), {"dtype": np.int64, "shape": (3,)}, "expected int64 of shape 3, found float64"),
        (np.zeros((3, 1)), {"dtype": np.float64, "shape": (3,)}, r"found float64 of shape \(3, 1\)"),
        (np.zeros(3), {"dtype": np.float64, "shape": (4,)}, "shape 4"),
        (np.array([np.nan]), {"dtype": np.float64, "shape": (None,)}, "NaN"),
        (np.array([-1]), {"dtype": np.int64, "shape": (None,), "low": 0}, "-1 is below 0"),
        (None, {"dtype": np.int64, "shape": (None,)}, "found NoneType"),
    ],
)
def test_an_array_of_another_form_is_refused(value: Any, options: dict[str, Any], words: str):
    with pytest.raises(InputError, match=words):
        schema.array("here", value, **options)


def test_long_values_are_shown_in_part():
    with pytest.raises(InputError) as error:
        schema.flag("here", "x" * 10**6)
    assert len(str(error.value)) < 200
