"""Blocks of structures from Python objects, .npz files and JSON lines; see data/structures.py.

An .npz file has an array for each field, x_NAME or y_NAME (or x and y alone), with an entry for each example along its
first axis; or all entries of all examples, where x_NAME_indptr says at which entry each example begins, and the end of
the last. A line of JSON is an object with x and, where they are there, y and cost.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdual.data.shard import Block
from distdual.data.sources.base import Source
from distdual.data.sources.open_file import BLOCK_BYTES, open_decompressed, open_source
from distdual.data.storage.location import Location
from distdual.data.storage.npy_io import BAD_ZIP, unzip
from distdual.data.structures import Example, Forms, arrays_of_side
from distdual.errors import InputError

STRUCTURE_FORMATS = ("npz", "jsonl")
INDPTR = "_indptr"
MOST_EXAMPLES = 4096  # examples of a block


def blocks_from_structures(examples: Iterable[Any], where: str) -> Iterator[Block]:
    """Blocks of examples, each (x,), (x, y), (x, y, cost) or an `Example`."""
    forms, pending, size = Forms(where), list[Example](), 0
    for found in examples:
        example = example_of(found, f"{where}: example {forms.n_examples + len(pending)}")
        pending.append(example)
        size += sum(array.nbytes for array in arrays_of_side("x", example.x, where).values())
        if size >= BLOCK_BYTES or len(pending) == MOST_EXAMPLES:
            yield forms.block(pending)
            pending, size = [], 0
    if pending:
        yield forms.block(pending)


def example_of(found: Any, where: str) -> Example:
    if isinstance(found, Example):
        return found
    if isinstance(found, tuple) and 1 <= len(found) <= 3:
        return Example(*found)
    raise InputError(f"{where} is of type {type(found).__name__}; expected a tuple (x, y), (x, y, cost) or (x,)")


def structure_source(file: Location, format: str | None) -> Source:
    """The structures of one file."""
    ending = file.url.removesuffix(".gz").removesuffix(".bz2").removesuffix(".xz").rpartition(".")[2]
    its = format or {"json": "jsonl", "ndjson": "jsonl"}.get(ending, ending)
    if its not in STRUCTURE_FORMATS:
        raise InputError(
            f"{file}: structures are read from {' and '.join(STRUCTURE_FORMATS)}; name the format of the file"
        )
    read = from_npz if its == "npz" else from_json
    return Source(str(file), lambda: blocks_from_structures(read(file), str(file)))


def from_json(file: Location) -> Iterator[Example]:
    with open_decompressed(file) as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                told = json.loads(line)
            except ValueError as error:
                raise InputError(f"{file}, line {number}: not JSON: {error}") from None
            if not isinstance(told, dict) or "x" not in told or set(told) - set(Example._fields):
                raise InputError(f"{file}, line {number}: expected an object with x, and maybe y and cost")
            yield Example(**told)


def from_npz(file: Location) -> Iterator[Example]:
    try:
        with open_source(file) as stream:
            arrays = unzip(stream.read())
    except BAD_ZIP as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file}: not an .npz file of plain arrays: {error}") from None
    cost = arrays.pop("cost", None)
    cuts = {name: arrays.pop(name + INDPTR, None) for name in list(arrays) if not name.endswith(INDPTR)}
    for name in arrays:
        if name not in ("x", "y") and not name.startswith(("x_", "y_")):
            raise InputError(f"{file}: the array {name!r} is none of x, y, x_NAME, y_NAME, their _indptr and cost")
    lengths = {name: n_entries(f"{file}: {name}", arrays[name], cut) for name, cut in cuts.items()}
    lengths |= {} if cost is None else {"cost": len(cost)}
    if len(set(lengths.values())) != 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items()) or "none"
        raise InputError(f"{file}: expected arrays of one number of examples, found {found}")
    for i in range(next(iter(lengths.values()))):
        parts = {name: entry(arrays[name], cut, i) for name, cut in cuts.items()}
        y = side_of(parts, "y")
        yield Example(side_of(parts, "x"), y, None if cost is None else float(cost[i]))


def n_entries(where: str, array: NDArray[Any], cut: NDArray[Any] | None) -> int:
    """The number of examples that an array has entries of."""
    if not array.ndim:
        raise InputError(f"{where} is a single value; expected an entry for each example")
    if cut is None:
        return len(array)
    whole = cut.ndim == 1 and cut.dtype.kind in "iu" and len(cut) and cut[0] == 0 and cut[-1] == len(array)
    if not whole or (np.diff(cut.astype(np.int64)) < 0).any():
        raise InputError(f"{where}{INDPTR} must rise from 0 to the {len(array)} entries of {where.rpartition(' ')[2]}")
    return len(cut) - 1


def entry(array: NDArray[Any], cut: NDArray[Any] | None, i: int) -> NDArray[Any]:
    return np.asarray(array[i] if cut is None else array[int(cut[i]) : int(cut[i + 1])])


def side_of(parts: Mapping[str, NDArray[Any]], side: str) -> Any:
    if side in parts:
        return parts[side]
    return {name[2:]: part for name, part in parts.items() if name.startswith(f"{side}_")} or None


def python_source(examples: Iterable[Any]) -> Source:
    return Source("the structures", partial(blocks_from_structures, examples, "the structures"))


def structure_block(x: Iterable[Any], y: Iterable[Any] | None, cost: Any = None) -> Block:
    """All examples of lists as one block, for training in memory."""
    given = list(x)
    labels = [None] * len(given) if y is None else list(y)
    costs = [None] * len(given) if cost is None else [float(each) for each in cost]
    if not given or not len(given) == len(labels) == len(costs):
        raise InputError(f"{len(given)} structures, but {len(labels)} labels and {len(costs)} costs")
    return Forms("the structures").block([Example(*each) for each in zip(given, labels, costs, strict=True)])
