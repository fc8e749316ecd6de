"""Partitions of a Dask array written as shards, each by the worker that holds it or computes it.

Neighbouring partitions that are small share a shard; a large one is several. This process writes the tables of shards
and the description alone.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from zarr.core.sync import sync

from distdual.config import RETRY_SECONDS
from distdual.data.layout import Layout
from distdual.data.prepare.destination import found_at
from distdual.data.prepare.pipeline import Summary, summary_of
from distdual.data.prepare.shard_cuts import SHARD_BYTES, index_dtype
from distdual.data.prepare.writer import DatasetWriter, TableRow, coded_labels, pending_bytes, written_row
from distdual.data.prepare.zarr_arrays import new_arrays, write_chunks
from distdual.data.prepare_options import Options
from distdual.data.preprocess.preprocessing import Preprocessing
from distdual.data.shard import Block, join_blocks
from distdual.data.shard_arrays import shard_arrays
from distdual.data.sources.arrays import is_dask
from distdual.data.sources.base import Attached
from distdual.data.sources.partitions import delayed_blocks
from distdual.data.storage.claim import check_holder, claimed, holder_of
from distdual.data.storage.location import Location
from distdual.data.validate import Form, check_block, check_examples, form_of, label_name
from distdual.data.zarr_store import zarr_store
from distdual.errors import InputError
from distdual.kernels.rows import Ints
from distdual.problems.registry import spec_of


class PartitionPlan(NamedTuple):
    """What this process must know of a partition before any is written."""

    n_examples: int
    n_bytes: int  # of features
    form: Form
    index_dtype: str
    labels: NDArray[Any]  # distinct ones; none for targets
    cuts: Ints  # (n_pieces + 1,) where its shards begin, and the end of the last
    n_values: int  # stored values of its largest shard; 1 for dense rows


class ShardGroup(NamedTuple):
    """Partitions that one task writes: several as one shard, or one as several."""

    parts: range
    first_shard: int
    first_example: int
    cuts: Ints  # as in PartitionPlan, of the partitions joined


@dataclass(frozen=True, slots=True)
class Target:
    """Where shards are written, and how."""

    location: Location
    layout: Layout
    codes: Mapping[str, int]  # of labels
    holder: Mapping[str, Any]  # of the claim on the folder


def takes_partitions(x: Any, columns: Sequence[Any], options: Options) -> bool:
    """Whether workers can write: Dask arrays of known lengths, a cluster, and options that keep the order of examples.

    Other arrays and options go through this process as a stream.
    """
    scale = "none" if options.scale == "unit-rows" else options.scale
    others = replace(options, scale=scale, shard_bytes=None, compress=None, overwrite=False)
    if not is_dask(x) or x.ndim != 2 or not x.shape[1] or others != Options(kind=options.kind):
        return False
    from dask.base import get_scheduler

    arrays = [x, *(column for column in columns if is_dask(column))]
    return get_scheduler() is not None and not any(np.isnan(array.chunks[0]).any() for array in arrays)


def write_partitions(x: Any, y: Any, cost: Any, dest: Location, options: Options) -> tuple[Summary, ...]:
    """Write the partitions of `x` as a data set at `dest`; if anything fails, `dest` is as it was."""
    from dask.base import compute
    from dask.delayed import delayed

    found_at(dest, overwrite=options.overwrite)
    place, shard_bytes = dest.patient(RETRY_SECONDS), options.shard_bytes or SHARD_BYTES
    made = Preprocessing(options.scale)
    with claimed(dest) as claim:
        scaled = delayed(made.converted, pure=False)
        blocks = [scaled(block, f"partition {number}") for number, block in enumerate(delayed_blocks(x, y, cost))]
        plan = delayed(partial(plan_partition, options.kind, shard_bytes, width=int(x.shape[1])), pure=False)
        plans = compute(*map(plan, blocks))
        there = [number for number, found in enumerate(plans) if found.n_examples]
        blocks, plans = [blocks[k] for k in there], [plans[k] for k in there]
        if not plans:
            raise InputError("the Dask array has no rows")
        attached = Attached(scale=options.scale)
        with DatasetWriter(
            place,
            options.kind,
            shard_bytes=shard_bytes,
            n_features=int(x.shape[1]),
            compress=options.compress,
            overwrite=options.overwrite,
            attached=attached,
            claim=claim,
        ) as writer:
            groups = shard_groups(plans, shard_bytes)
            writer.create(planned_layout(writer, plans, groups))
            assert writer.layout is not None
            target = Target(place, writer.layout, writer.codes, holder_of(dest))
            write = delayed(partial(write_group, target), pure=False)
            tasks = [write(group, [blocks[k] for k in group.parts]) for group in groups]
            for rows in compute(*tasks):
                if isinstance(rows, Exception):
                    raise rows
                writer.table += rows
            writer.finish()
    return (summary_of(dest),)


def planned_layout(writer: DatasetWriter, plans: Sequence[PartitionPlan], groups: Sequence[ShardGroup]) -> Layout:
    """The layout that all partitions fit in; the writer learns their labels."""
    for number, plan in enumerate(plans):
        if plan.form != plans[0].form:
            raise InputError(f"partition {number} has {plan.form}, the first one {plans[0].form}")
    for label in np.unique(np.concatenate([plan.labels for plan in plans])).tolist():
        writer.learn(label_name(label), "the labels")
    form = plans[0].form
    sparse = form.width is None
    values = [sum(plans[k].n_values for k in group.parts) for group in groups]
    return Layout(
        kind=writer.kind,
        n_features=writer.n_features or 0,
        sparse=sparse,
        index_dtype=plans[0].index_dtype,
        labels=("",) if writer.spec.labels == "classes" else (),
        columns=form.columns,
        chunk={
            "example": max(int(np.diff(group.cuts).max()) for group in groups),
            "value": max(values) if sparse else 1,
        },
        compress=sparse if writer.compress is None else writer.compress,
        scale=writer.attached.scale,
        separator=writer.separator,
    )


def shard_groups(plans: Sequence[PartitionPlan], shard_bytes: int) -> list[ShardGroup]:
    """Join neighbouring partitions as long as they fit in a shard together."""
    runs = list[range]()
    room = 0
    for number, plan in enumerate(plans):
        if runs and plan.n_bytes <= room:
            runs[-1] = range(runs[-1].start, number + 1)
            room -= plan.n_bytes
        else:
            runs.append(range(number, number + 1))
            room = shard_bytes - plan.n_bytes
    groups, first_shard, first_example = list[ShardGroup](), 0, 0
    for parts in runs:
        n = sum(plans[k].n_examples for k in parts)
        cuts = plans[parts[0]].cuts if len(parts) == 1 else np.array([0, n])
        groups.append(ShardGroup(parts, first_shard, first_example, cuts))
        first_shard, first_example = first_shard + len(cuts) - 1, first_example + n
    return groups


# --- on workers


def plan_partition(kind: str, shard_bytes: int, block: Block, width: int) -> PartitionPlan:
    spec, n = spec_of(kind), block.n_examples
    check_examples(block, kind, spec, "the Dask array")
    n_bytes = pending_bytes(block)
    cuts = np.linspace(0, n, max(1, min(n, -(-n_bytes // shard_bytes))) + 1).astype(np.int64)
    ends = block.x.ends
    n_values = 1 if ends is None else max(1, int(np.diff(np.concatenate([[0], ends])[cuts]).max()))
    labels = np.unique(block.y) if spec.labels == "classes" else block.y[:0]
    return PartitionPlan(n, n_bytes, form_of(block), index_dtype(block.x, width), labels, cuts, n_values)


def write_group(target: Target, group: ShardGroup, blocks: list[Block]) -> list[TableRow] | Exception:
    """Write the shards of a group; an error is returned, so that no task still writes when this process cleans up."""
    try:
        return list(write_shards(target, group, join_blocks(blocks)))
    except Exception as error:
        return error


def write_shards(target: Target, group: ShardGroup, whole: Block) -> Iterator[TableRow]:
    layout, place = target.layout, target.location
    arrays = new_arrays(layout, zarr_store(place, read_only=False))
    for k, (begin, end) in enumerate(itertools.pairwise(group.cuts.tolist())):
        number, block = group.first_shard + k, whole.take(slice(begin, end))
        check_block(block, f"{place}: shard {number}", group.first_example + begin, layout)
        y = coded_labels(block.y, target.codes) if layout.labels else block.y.astype(np.float64)
        contents = shard_arrays(block, y)
        check_holder(place, target.holder)
        place.patiently("", partial(write_now, layout, arrays, number, contents))
        yield written_row(block, contents, layout)


def write_now(layout: Layout, arrays: Any, number: int, contents: Mapping[str, NDArray[Any]]) -> None:
    sync(write_chunks(layout, arrays, number, contents))
