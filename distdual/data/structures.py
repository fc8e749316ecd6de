"""Structures: examples made of arrays_of_side arrays of any length and type, and the ragged columns that store them.

x and y of an example are each an array or a mapping of names to arrays. The values of x["size"] of all examples are the
column "x_size", those of an unnamed x the column "x". Arrays with other than one dimension have their shapes in a
second column, "x_size_shape".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.data.layout import RUN_DTYPES, SHAPE
from distdual.data.shard import Block, Runs, no_features
from distdual.errors import InputError
from distdual.kernels.rows import Floats

FIELD_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


class Example(NamedTuple):
    """One structure: x, y where it is labelled, and what a unit of its slack costs."""

    x: Any
    y: Any = None
    cost: float | None = None


class FieldForm(NamedTuple):
    """What all arrays of a field have in common."""

    dtype: np.dtype[Any]
    rank: int


class Forms:
    """The fields of the examples of one data set, as the first example shows them."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.columns: dict[str, FieldForm] | None = None
        self.n_examples = 0

    def block(self, examples: Sequence[Example]) -> Block:
        """A block of these examples, all with the same fields."""
        found = [self._arrays(example) for example in examples]
        assert self.columns is not None
        runs: dict[str, Runs] = {}
        for name, column in self.columns.items():
            arrays = [arrays[name] for arrays in found]
            runs[name] = runs_from([array.reshape(-1) for array in arrays], column.dtype)
            if column.rank != 1:
                runs[name + SHAPE] = runs_from([np.array(array.shape, dtype=np.int64) for array in arrays], np.int64)
        costs = [example.cost for example in examples]
        if len({cost is None for cost in costs}) > 1:
            raise InputError(f"{self.where}: some examples have a cost, others none")
        cost: Floats | None = None if costs[0] is None else np.array(costs, dtype=np.float64)
        return Block(no_features(len(examples)), np.zeros(len(examples)), cost, None, None, runs)

    def _arrays(self, example: Example) -> dict[str, NDArray[Any]]:
        where = f"{self.where}: example {self.n_examples}"
        self.n_examples += 1
        arrays = {**arrays_of_side("x", example.x, where), **arrays_of_side("y", example.y, where)}
        if self.columns is None:
            self.columns = {name: FieldForm(array.dtype, array.ndim) for name, array in arrays.items()}
            check_names(self.columns, where)
        if arrays.keys() != self.columns.keys():
            raise InputError(f"{where} has {', '.join(arrays)}; the first example has {', '.join(self.columns)}")
        for name, array in arrays.items():
            column = self.columns[name]
            if array.ndim != column.rank:
                raise InputError(f"{where}: {name} has {array.ndim} dimensions, that of the first has {column.rank}")
            if array.size and not np.can_cast(array.dtype, column.dtype, "safe"):
                raise InputError(
                    f"{where}: {name} is of type {array.dtype}, which {column.dtype}, the type of the first example's, "
                    "cannot hold; give all arrays of a field one type"
                )
        return arrays


def arrays_of_side(side: str, value: Any, where: str) -> dict[str, NDArray[Any]]:
    """The arrays of x or y by their columns; none for a y that is not known."""
    if value is None and side == "y":
        return {}
    parts = {f"{side}_{name}": part for name, part in value.items()} if isinstance(value, Mapping) else {side: value}
    found = {}
    for name, part in parts.items():
        try:
            array = np.asarray(part)
        except ValueError as error:
            raise InputError(f"{where}: {name} is not an array: {error}") from None
        if array.dtype.name not in RUN_DTYPES:
            raise InputError(f"{where}: {name} is of type {array.dtype}; expected numbers or booleans")
        found[name] = array
    if not found:
        raise InputError(f"{where}: {side} is an empty mapping; expected at least one array")
    return found


def check_names(columns: Iterable[str], where: str) -> None:
    for name in columns:
        if not FIELD_NAME.fullmatch(name) or name.endswith(SHAPE):
            raise InputError(
                f"{where}: {name[2:]!r} cannot name an array; expected small letters, digits and underscores, "
                f"at most 28, not ending in {SHAPE}"
            )


def runs_from(arrays: Sequence[NDArray[Any]], dtype: Any) -> Runs:
    indptr = np.concatenate([[0], np.cumsum([len(array) for array in arrays], dtype=np.int64)])
    return Runs(indptr, np.concatenate(arrays, dtype=dtype, casting="unsafe"))


class StoredField(NamedTuple):
    name: str  # "" for an unnamed x or y
    values: Runs
    shapes: Runs | None

    def of(self, i: int) -> NDArray[Any]:
        flat = self.values.of(i)
        return flat if self.shapes is None else flat.reshape(self.shapes.of(i))


class Side:
    """The x, or the y, of the examples of a shard; arrays are read-only views."""

    def __init__(self, runs: Mapping[str, Runs], side: str) -> None:
        self.fields = [
            StoredField(name[len(side) + 1 :], frozen(column), runs.get(name + SHAPE))
            for name, column in runs.items()
            if (name == side or name.startswith(f"{side}_")) and not name.endswith(SHAPE)
        ]

    def __bool__(self) -> bool:
        return bool(self.fields)

    def of(self, i: int) -> Any:
        """What `prepare` was given for example i, as an array or a dict of arrays."""
        if len(self.fields) == 1 and not self.fields[0].name:
            return self.fields[0].of(i)
        return {field.name: field.of(i) for field in self.fields}


def frozen(column: Runs) -> Runs:
    """The same column with values that nobody can change by accident."""
    values = column.values.view()
    values.flags.writeable = False
    return Runs(column.indptr, values)
