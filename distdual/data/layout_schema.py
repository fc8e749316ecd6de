"""The schema of a data set's stored description: its attributes, its Zarr arrays, its tables."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdual.data.layout import CHECKSUMS, FORMAT, LENGTHS, NORMS, RUN_DTYPES, SHAPE, ArraySpec, Layout
from distdual.data.shard import are_structures
from distdual.errors import InputError
from distdual.memory import check_room
from distdual.schema import (
    MOST,
    array,
    choice,
    each,
    flag,
    maybe,
    refuse,
    table,
    table_of,
    text,
    whole,
)

NAME = text(r"[a-z]\w{0,40}", "a name of small letters")

RECIPE = table(
    {"templates": each(text())}, {"hash_bits": whole(1, 62), "min_count": whole(1, MOST)}, others=True
)  # templates are parsed where text becomes features

LAYOUT_RULE = table(
    {
        "format": whole(1, FORMAT),
        "complete": choice(True),
        "kind": text(r"[\w.:]+", "the name of a problem"),
        "n_features": whole(),
        "features": choice("dense", "csr", "none"),
        "index_dtype": choice("int32", "int64"),
        "labels": each(text(), distinct=True),
        "columns": each(choice("cost", "margin"), distinct=True),
        "chunk": table_of(whole()),
        "compress": flag,
    },
    {
        "ragged": flag,
        "unlabelled": flag,
        "runs": table_of(choice(*RUN_DTYPES), NAME),
        "texts": table_of(whole(0, 2**32 - 1), NAME),
        "recipe": RECIPE,
        "scale": choice("none", "unit-variance", "unit-rows"),
    },
)

CODEC = table({"name": text()}, {"configuration": maybe(table({}, others=True))}, others=True)
GRID = table({"configuration": table({"chunk_shape": each(whole(1))}, others=True)}, others=True)
ZARR_ARRAY = table(
    {"shape": each(whole()), "data_type": text(), "codecs": each(CODEC), "chunk_grid": GRID}, others=True
)
CODECS = (["bytes", "crc32c"], ["bytes", "blosc", "crc32c"])


def check_layout(where: str, layout: Layout) -> None:
    """Refuse a layout whose parts, each as declared, do not belong together."""
    if set(layout.chunk) != set(layout.axes):
        raise refuse(f"{where}: chunk", f"a length for each of {', '.join(layout.axes)}", layout.chunk)
    names = [spec.name for spec in layout.arrays]
    if len(set(names)) < len(names) or {LENGTHS, NORMS, CHECKSUMS} & set(names):
        raise refuse(f"{where}: runs", "names that no other array has", list(layout.runs))
    if layout.structured:
        check_structured(where, layout)
    if layout.unlabelled and (layout.labels or layout.structured):
        raise refuse(f"{where}: unlabelled", "false where there are labels, and for structures", True)
    if layout.index_dtype == "int32" and layout.n_features > 2**31:
        raise refuse(f"{where}: index_dtype", f"int64 for {layout.n_features} features", layout.index_dtype)
    for spec in layout.arrays:
        rows = layout.chunk[spec.axis] + spec.extra
        check_room(f"{where}: a chunk of {spec.name!r}", rows * max(spec.width, 1) * np.dtype(spec.dtype).itemsize)


def check_structured(where: str, layout: Layout) -> None:
    """Refuse structures without x, with features or labels of rows, and shapes of nothing."""
    if not are_structures(layout.runs) or layout.ragged or layout.labels or layout.n_features:
        raise refuse(f"{where}: runs", "structures: columns of x, and no features or labels", list(layout.runs))
    for name, dtype in layout.runs.items():
        if name.endswith(SHAPE) and (dtype != "int64" or name.removesuffix(SHAPE) not in layout.runs):
            raise refuse(f"{where}: runs.{name}", "the shapes of another column, of type int64", dtype)


def check_zarr_array(where: str, metadata: dict[str, Any], spec: ArraySpec, chunk: tuple[int, ...]) -> None:
    """Refuse an array that is not stored as the layout says."""
    grid = check_codecs(where, metadata)
    if metadata["data_type"] != spec.dtype:
        raise refuse(where, f"the type {spec.dtype}", metadata["data_type"])
    if grid != list(chunk):
        raise refuse(f"{where}: chunk_shape", str(list(chunk)), grid)


def check_codecs(where: str, metadata: dict[str, Any]) -> list[int]:
    """Refuse a way of storing that `prepare` does not use; return the shape of chunks."""
    ZARR_ARRAY(where, metadata)
    codecs = metadata["codecs"]
    found = [codec["name"] for codec in codecs]
    if found not in CODECS:
        raise InputError(f"{where} is stored as {', '.join(found)}, as no `distdual prepare` does; prepare it again")
    if (codecs[0].get("configuration") or {}).get("endian", "little") != "little":
        raise InputError(f"{where} is stored big-endian; expected little-endian")
    return list(metadata["chunk_grid"]["configuration"]["chunk_shape"])


def check_table_size(where: str, metadata: dict[str, Any], dtype: str, dimensions: int) -> None:
    """Refuse a table or a text before it is read."""
    grid, shape = check_codecs(where, metadata), metadata["shape"]
    if len(shape) != dimensions or metadata["data_type"] != dtype:
        raise refuse(where, f"{dimensions} dimensions of {dtype}", f"{len(shape)} of {metadata['data_type']}")
    check_room(where, max(math.prod(shape), math.prod(grid)) * np.dtype(dtype).itemsize)


def check_tables(
    where: str, layout: Layout, lengths: NDArray[Any], largest_norm: NDArray[Any], checksum: NDArray[Any]
) -> None:
    """Refuse tables that do not describe the same shards, and shards that are not within their chunks."""
    n = len(lengths)
    if not n:
        raise InputError(f"{where}: the table {LENGTHS} has no shards")
    array(f"{where}: the table {LENGTHS}", lengths, np.int64, (n, len(layout.axes)), low=0)
    array(f"{where}: the table {NORMS}", largest_norm, np.float64, (n,), low=0)
    array(f"{where}: the table {CHECKSUMS}", checksum, np.uint32, (n,))
    most = np.array([layout.chunk[axis] for axis in layout.axes])
    wrong = (lengths > most) | (np.arange(len(most)) == 0) & (lengths < 1)
    if wrong.any():
        shard, axis = map(int, np.argwhere(wrong)[0])
        expected = f"expected {0 if axis else 1} to {most[axis]}"
        raise InputError(
            f"{where}: shard {shard} has {lengths[shard, axis]} entries of {layout.axes[axis]!r}, {expected}"
        )
    total = sum(int(most[k]) for k in range(len(most))) * n
    if total > MOST or (layout.ragged and (lengths[:, 2] < lengths[:, 0]).any()):
        raise InputError(f"{where}: the table {LENGTHS} says that a shard has fewer tokens than examples")
