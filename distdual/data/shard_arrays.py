"""The arrays that a shard is stored as, their lengths and their checksum."""

from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from distdual.data.layout import Axis, Layout
from distdual.data.shard import Block, Shard, run_arrays


def shard_arrays(shard: Shard | Block, y: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The arrays of a shard under their names in the data set; `y` is what its labels are stored as."""
    columns = {"y": y, "cost": shard.cost, "margin": shard.margin, "tokens": shard.tokens}
    given = {name: column for name, column in columns.items() if column is not None}
    return {**shard.x.arrays(), **given, **run_arrays(shard.runs)}


def checksum_of(arrays: dict[str, NDArray[Any]], layout: Layout) -> int:
    """crc32c over the arrays of a shard, one after another, without padding."""
    crc = 0
    for spec in layout.arrays:
        flat = np.ascontiguousarray(arrays[spec.name], dtype=spec.dtype).reshape(-1)
        crc = google_crc32c.extend(crc, flat.view(np.uint8))
    return crc


def axis_length(block: Block, axis: Axis) -> int:
    if axis == "value":
        return 0 if block.x.ends is None else int(block.x.ends[-1])
    if block.runs and axis in block.runs:
        return len(block.runs[axis].values)
    return block.n_examples if axis == "example" else len(block.y)
