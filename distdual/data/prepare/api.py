"""The functions that write a data set: from files, arrays or data frames."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from distdual.data.layout import STRUCTURES
from distdual.data.prepare.open_files import (
    Request,
    check_no_columns,
    check_structures,
    open_files,
    open_tables,
    own_options,
)
from distdual.data.prepare.open_sources import FORMATS, Files
from distdual.data.prepare.partition_writer import takes_partitions, write_partitions
from distdual.data.prepare.pipeline import Summary, write
from distdual.data.prepare_options import Options
from distdual.data.preprocess.stored import Like, read_like
from distdual.data.preprocess.table_options import TableOptions
from distdual.data.shard import Block
from distdual.data.sources.arrays import blocks_from_arrays, width_of
from distdual.data.sources.base import Attached, Opened, Source
from distdual.data.sources.npy import ArrayNames
from distdual.data.sources.sequences import blocks_from_ragged, lengths_of, ragged
from distdual.data.sources.source_files import expanded
from distdual.data.sources.structures import python_source
from distdual.data.sources.tables import frame_table
from distdual.data.storage.location import Location, Place, as_location
from distdual.errors import InputError
from distdual.problems.registry import KINDS, spec_of

__all__ = [
    "FORMATS",
    "KINDS",
    "Options",
    "Summary",
    "TableOptions",
    "prepare",
    "prepare_arrays",
    "prepare_frame",
    "prepare_structures",
]


def prepare(
    sources: Place | Sequence[Place],
    dest: Place,
    kind: str,
    *,
    format: str | None = None,
    labels: Sequence[Place] = (),
    templates: Mapping[str, Any] | str | Path | None = None,
    vocabulary: Place | None = None,
    like: Place | None = None,
    x: str | None = None,
    y: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Summary, ...]:
    """Write the examples of `sources`, read in order, as a data set at `dest`; or as `dest`/train and `dest`/test.

    A source is a file, a pattern such as part-*.csv, or a folder. `format` is one of FORMATS, guessed from the name or
    the first bytes of each file if not given. `labels` names the .npy file of labels that belongs to each .npy source;
    `x` and `y` name the arrays of an .npz file or a Zarr group. CSV and Parquet files take the options of
    `TableOptions`: label, features, drop, weight, group, missing, categorical, hashed, hash_bits, max_levels. Text in
    columns, "conll", takes either `templates`, a TOML file or a table of the same keys (data/templates.py), or
    `vocabulary`: a data set whose templates, feature numbers and tags are used; features that it does not know are left
    out, tags are added to its own.

    `like` is a data set or a model: features are made and scaled as theirs were, with their levels, means and factors.
    With `unlabelled`, it may be predicted on a cluster, and nothing else: labels and weights are left out.

    `storage_options` are for those places that are given as the text of a remote URL. The other options are those of
    `Options`: shard_bytes, shuffle, test_fraction, scale, map, n_features, compress, overwrite, unlabelled, append; and
    those of the problem's own file format, such as `TreeOptions`. If anything fails, `dest` is as it was.
    """
    spec = spec_of(kind)
    own, table = own_options(spec, options, storage_options), take_table_options(options)
    chosen, place = Options(kind=kind, **options), as_location(dest, storage_options)
    given = [sources] if isinstance(sources, Location | str | os.PathLike) else sources
    files = expanded([as_location(file, storage_options) for file in given])
    if not files:
        raise InputError("no source file was given")
    known, inherited = known_of(chosen, place, like, storage_options), spec.own_format and spec.own_format.inherited
    if chosen.append:
        told = {"templates": templates, "vocabulary": vocabulary, "like": like}
        check_inherited(told | ({inherited: own[inherited]} if inherited else {}))
    if known is not None and inherited:
        own[inherited] = place if chosen.append else as_location(like or "", storage_options)
    request = Request(
        Files(files, [as_location(file, storage_options) for file in labels], format, ArrayNames(x, y)),
        spec,
        chosen,
        known,
        templates,
        None if vocabulary is None else as_location(vocabulary, storage_options),
        table,
        own,
    )
    return written(open_files(request), place, chosen, known)


def prepare_frame(
    frame: Any,
    dest: Place,
    kind: str,
    *,
    like: Place | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Summary, ...]:
    """The same from a pandas or Polars data frame, an Arrow table, or a Dask data frame, computed by partition.

    `label` names the column of labels; for it and the other options of tables see `TableOptions`.
    """
    spec, table, place = spec_of(kind), take_table_options(options), as_location(dest, storage_options)
    chosen = Options(kind=kind, **options)
    known = known_of(chosen, place, like, storage_options)
    return written(open_tables([frame_table(frame)], spec, table, chosen, known), place, chosen, known)


def prepare_arrays(
    x: Any,
    y: Any,
    dest: Place,
    kind: str,
    *,
    cost: Any = None,
    margin: Any = None,
    lengths: Any = None,
    qid: Any = None,
    like: Place | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Summary, ...]:
    """The same from NumPy, scipy.sparse or Dask arrays: one row of `x` and one entry of `y` for each example.

    On a Dask cluster, the workers write the partitions of Dask arrays that they hold or compute, at the same time; not
    persisted, partitions are computed twice. A place on a disk must be one that all of them share. Neighbouring small
    partitions share a shard, large ones are cut. With shuffle, test_fraction, unit-variance, map, n_features, like,
    append or margin, and where lengths of chunks are unknown, one chunk after another comes to this process instead.

    For a chain, `x` and `y` are lists with an array a sequence, or have a row a token and `lengths` says how many
    tokens each sequence has; `cost` has an entry for each sequence. A latent problem has bags for sequences and
    candidates for tokens, each with the label of its bag. A ranking has queries of documents, each with its relevance;
    instead of `lengths`, `qid` may name the query of each row.
    """
    chosen, place = Options(kind=kind, **options), as_location(dest, storage_options)
    if chosen.unlabelled and y is None:
        y = [np.zeros(len(each)) for each in x] if isinstance(x, list) else np.zeros(x.shape[0])
    if qid is not None:
        if lengths is not None:
            raise InputError("the arrays: qid and lengths both say where queries begin; leave one out")
        lengths = lengths_of(qid, "the arrays: qid")
    one_process = any(each is not None for each in (margin, lengths, like))  # which must see all rows
    if not spec_of(kind).ragged and not one_process and takes_partitions(x, (y, cost), chosen):
        return write_partitions(x, y, cost, place, chosen)
    if spec_of(kind).ragged or lengths is not None:
        if margin is not None:
            raise InputError(f"the arrays: a margin for each sequence does not apply to a {kind} problem; leave it out")
        made = ragged(x, y, lengths)
        source = Source("the arrays", lambda: blocks_from_ragged(made, cost), width_of(made.x))
    else:
        source = Source("the arrays", lambda: blocks_from_arrays(x, y, cost, margin), width_of(x))
    known = known_of(chosen, place, like, storage_options)
    check_no_columns(known, {}, ["the arrays"])
    return written(Opened([source], Attached()), place, chosen, known)


def prepare_structures(
    examples: Iterable[Any],
    dest: Place,
    kind: str = STRUCTURES,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Summary, ...]:
    """Write examples of any shape: tuples (x, y), (x, y, cost), or (x,) where there are no labels.

    x and y are each an array of numbers of any shape, or a mapping of names to such arrays; all examples have the same
    names, types and numbers of dimensions. `examples` may be a generator, read once. See `prepare` for `options`.
    """
    chosen, place = Options(kind=kind, **options), as_location(dest, storage_options)
    if spec_of(kind).examples != "structures":
        raise InputError(f"prepare_structures writes data of the kind {STRUCTURES!r}, not {kind!r}")
    check_structures(chosen, kind)
    return written(Opened([python_source(examples)], Attached()), place, chosen, None)


def written(opened: Opened, place: Location, options: Options, known: Like | None) -> tuple[Summary, ...]:
    """Write the data set, with the preprocessing, labels and width of `known` where that is given."""
    if options.unlabelled:
        opened = without_labels(opened)
    if known is None:
        return write(opened, place, options)
    if options.map is not None:
        raise InputError(f"{known.name} decides how features are mapped; leave map out")
    if options.scale not in ("none", known.preprocessing.scale):
        raise InputError(f"{known.name} decides the scale, {known.preprocessing.scale}; leave {options.scale} out")
    labels = () if options.unlabelled else opened.attached.labels or known.labels
    attached = replace(opened.attached, labels=labels)
    options = replace(
        options, scale=known.preprocessing.scale, n_features=options.n_features or known.n_features or None
    )
    return write(opened._replace(attached=attached), place, options, known.preprocessing)


def without_labels(opened: Opened) -> Opened:
    """The same examples without what only training uses."""

    def bare(source: Source) -> Source:
        return source._replace(
            blocks=lambda: (Block(block.x, np.zeros(len(block.y)), tokens=block.tokens) for block in source.blocks())
        )

    return opened._replace(sources=[bare(source) for source in opened.sources])


def take_table_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options of tables that are given, taken out of `options`."""
    found = {field.name: options.pop(field.name, None) for field in fields(TableOptions)}
    return {name: value for name, value in found.items() if value is not None and value != ()}


def known_of(
    options: Options, place: Location, like: Place | None, storage_options: Mapping[str, Any] | None
) -> Like | None:
    """The data set or model whose preprocessing is taken over: `like`, or the data set that grows."""
    if not options.append:
        return None if like is None else read_like(as_location(like, storage_options))
    known = read_like(place)
    check_scale(known, options, place)
    return known


def check_inherited(told: Mapping[str, Any]) -> None:
    """Refuse what an append takes from the data set itself."""
    for name, value in told.items():
        if value is not None:
            raise InputError(f"append takes the {name} of the data set itself; leave {name} out")


def check_scale(known: Like, options: Options, place: Location) -> None:
    """Appended examples are scaled as those that are there, which the user has to say."""
    if known.preprocessing.scale != options.scale:
        raise InputError(
            f"{place}: was prepared with the scale {known.preprocessing.scale}, not {options.scale}; append with that"
        )
