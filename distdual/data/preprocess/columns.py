"""The columns of a table and the features that each becomes; stored as JSON with data sets and models.

    number   the value                                  one feature, named as the column
    date     days since the first day of the training rows
    levels   1 in the feature of the value, COLUMN=VALUE   one feature for each value of the training rows
    hash     1 in the feature of the value's hash       2^bits features

A missing value is refused, or counts as `fill`; an `indicator` is one more feature, 1 where the value is missing. A
value that the training rows do not have has no feature.
"""

import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from distdual.errors import InputError
from distdual.json_floats import parsed_json
from distdual.kernels.rows import Ints

COLUMN_KINDS = ("number", "date", "levels", "hash")
MISSING_RULES = ("refuse", "mean", "zero", "indicator")
MOST_BITS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table, and how its values become features."""

    name: str
    kind: str = "number"
    fill: float | None = None
    """What a missing number or date counts as; for levels and hashes 0, for no feature. None refuses it."""

    indicator: bool = False
    levels: tuple[str, ...] = ()
    bits: int = 0
    origin: float = 0.0
    """Of dates: the day, counted from 1970-01-01, that is 0."""

    @property
    def width(self) -> int:
        """The number of features."""
        own = {"levels": len(self.levels), "hash": 1 << self.bits}.get(self.kind, 1)
        return own + self.indicator

    @property
    def feature_names(self) -> list[str]:
        if self.kind == "levels":
            own = [f"{self.name}={level}" for level in self.levels]
        elif self.kind == "hash":
            own = [f"{self.name}#{number}" for number in range(1 << self.bits)]
        else:
            own = [self.name]
        return [*own, f"{self.name} is missing"] if self.indicator else own


@dataclass(frozen=True)
class Columns:
    """The columns that features come from, in order, and those that hold labels, costs and groups."""

    columns: tuple[Column, ...]
    label: str | None = None
    weight: str | None = None
    group: str | None = None

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @cached_property
    def offsets(self) -> Ints:
        """(n + 1,) the first feature of each column, and the number of features."""
        return np.concatenate([[0], np.cumsum([column.width for column in self.columns])]).astype(np.int64)

    @property
    def n_features(self) -> int:
        return int(self.offsets[-1])

    @property
    def sparse(self) -> bool:
        """Whether CSR takes less room: 8 bytes for each column's value, against 4 for each feature."""
        return self.n_features > 2 * len(self.columns)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    def to_text(self) -> str:
        default = asdict(Column(name=""))
        columns = [
            {key: value for key, value in asdict(column).items() if value != default[key]} for column in self.columns
        ]
        others = {"label": self.label, "weight": self.weight, "group": self.group}
        return json.dumps(
            {"columns": columns, **{k: v for k, v in others.items() if v is not None}}, ensure_ascii=False
        )


def columns_from(text: str) -> Columns:
    """What `to_text` wrote."""
    try:
        told = parsed_json(text)
        columns = tuple(column_from(entry) for entry in told["columns"])
        others = {name: told.get(name) for name in ("label", "weight", "group")}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the description of columns is damaged ({error})") from None
    if not columns or len({column.name for column in columns}) < len(columns):
        raise InputError("the description of columns is damaged (columns must be there, each once)")
    for name, value in others.items():
        if not isinstance(value, str | None):
            raise InputError(f"the description of columns is damaged ({name} is {value!r}, expected a name)")
    return Columns(columns, **others)


def column_from(entry: dict[str, Any]) -> Column:
    column = Column(**{**entry, "levels": tuple(entry.get("levels", ()))})
    good = (
        isinstance(column.name, str)
        and column.kind in COLUMN_KINDS
        and all(isinstance(level, str) for level in column.levels)
        and isinstance(column.indicator, bool)
        and isinstance(column.bits, int)
        and 0 <= column.bits <= MOST_BITS
        and (column.fill is None or is_finite(column.fill))
        and is_finite(column.origin)
    )
    if not good:
        raise ValueError(f"column {column.name!r}")
    return column


def is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def numeric_columns(names: Any) -> Columns:
    """Columns of numbers that become features as they are."""
    return Columns(tuple(Column(name=str(name)) for name in names))
