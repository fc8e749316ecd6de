"""The functions that write a data set: from files, arrays or data frames."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from distdual.data.data_spec import DataSpec, OwnFormat
from distdual.data.layout import STRUCTURES
from distdual.data.prepare.open_sources import FORMATS, OWN_FORMATS, TABLE_FORMATS, Files, file_sources, labelled_or_not
from distdual.data.prepare.partition_writer import takes_partitions, write_partitions
from distdual.data.prepare.pipeline import Summary, write
from distdual.data.prepare_options import Options
from distdual.data.preprocess.stored import Like, read_like
from distdual.data.preprocess.table_options import TableOptions, first_columns
from distdual.data.shard import Block
from distdual.data.sources.arrays import blocks_from_arrays, width_of
from distdual.data.sources.base import Attached, Opened, Source
from distdual.data.sources.conll import text_from, text_like
from distdual.data.sources.npy import ArrayNames
from distdual.data.sources.sequences import blocks_from_ragged, lengths_of, ragged
from distdual.data.sources.source_files import expanded
from distdual.data.sources.structures import python_source, structure_source
from distdual.data.sources.table_blocks import check_grouped, known_tables, new_tables
from distdual.data.sources.tables import READERS, Table, frame_table
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
    spec = data_spec(kind)
    own_format, own = spec.own_format, own_options(spec, options, storage_options)
    table = take_table_options(options)
    chosen = Options(kind=kind, **options)
    given = [sources] if isinstance(sources, Location | str | os.PathLike) else sources
    files = expanded([as_location(file, storage_options) for file in given])
    label_files = [as_location(file, storage_options) for file in labels]
    place = as_location(dest, storage_options)
    if not files:
        raise InputError("no source file was given")
    known = like_of(like, storage_options)
    if chosen.append:
        inherited = {"templates": templates, "vocabulary": vocabulary, "like": like}
        inherited |= {own_format.inherited: own[own_format.inherited]} if own_format else {}
        for name, value in inherited.items():
            if value is not None:
                raise InputError(f"append takes the {name} of the data set itself; leave {name} out")
        known = read_like(place)
        check_scale(known, chosen, place)
    if known is not None and own_format:
        own[own_format.inherited] = place if chosen.append else as_location(like or "", storage_options)
    told = Files(files, label_files, format, ArrayNames(x, y))
    if spec.examples == "structures":
        check_structures(chosen, kind, label_files, known, [x, y, templates, vocabulary, *table.values()])
        opened = Opened([structure_source(file, format) for file in files], Attached())
    elif format == "conll" or templates is not None or vocabulary is not None or (known and known.preprocessing.recipe):
        check_conll(format, kind, spec, label_files)
        check_labels_wanted(chosen, "text in columns has its tags in one of them")
        if known is not None:
            opened = text_like(files, known, templates, vocabulary)
        else:
            opened = text_from(
                files, templates, None if vocabulary is None else as_location(vocabulary, storage_options)
            )
    elif own_format is not None:
        check_own_format(chosen, own_format)
        if format not in (None, own_format.name) or label_files:
            raise InputError(
                f"a {kind} problem reads {own_format.holds} alone: format {own_format.name}, no files of labels"
            )
        opened = own_format.open(files, own_format.options(**own), chosen)
    elif TABLES_HERE & set(formats := told.formats(spec)):
        if set(formats) - TABLES_HERE or label_files:
            raise InputError(
                f"{', '.join(map(str, files))}: tables cannot be mixed with other files, nor with --labels"
            )
        tables = [READERS[found](file) for file, found in zip(files, formats, strict=True)]
        opened = open_tables(tables, table, chosen, known)
    else:
        check_no_columns(known, table, files)
        if chosen.unlabelled:
            found = [source for source, _ in labelled_or_not(told, formats, kind, spec)]
        else:
            found = file_sources(told, kind, spec)
        opened = Opened(found, Attached())
    return written(opened, place, chosen, known)


TABLES_HERE = set(TABLE_FORMATS)


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
    data_spec(kind)
    table, place = take_table_options(options), as_location(dest, storage_options)
    chosen = Options(kind=kind, **options)
    known = like_of(like, storage_options)
    if chosen.append:
        known = read_like(place)
        check_scale(known, chosen, place)
    return written(open_tables([frame_table(frame)], table, chosen, known), place, chosen, known)


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
    if not data_spec(kind).ragged and not one_process and takes_partitions(x, (y, cost), chosen):
        return write_partitions(x, y, cost, place, chosen)
    if data_spec(kind).ragged or lengths is not None:
        if margin is not None:
            raise InputError(f"the arrays: a margin for each sequence does not apply to a {kind} problem; leave it out")
        made = ragged(x, y, lengths)
        source = Source("the arrays", lambda: blocks_from_ragged(made, cost), width_of(made.x))
    else:
        source = Source("the arrays", lambda: blocks_from_arrays(x, y, cost, margin), width_of(x))
    known = like_of(like, storage_options)
    if chosen.append:
        known = read_like(place)
        check_scale(known, chosen, place)
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


def check_structures(
    options: Options, kind: str, labels: Sequence[Any] = (), known: Like | None = None, others: Sequence[Any] = ()
) -> None:
    """Refuse options that have a meaning for features only."""
    check_labels_wanted(options, "structures need no labels")
    told = options.scale != "none" or options.n_features is not None or options.map is not None
    if told or labels or (known is not None and not options.append) or any(other is not None for other in others):
        raise InputError(f"{kind} data have arrays of their own: leave options about features and labels out")


def open_tables(tables: Sequence[Table], told: dict[str, Any], options: Options, known: Like | None) -> Opened:
    """Examples of tables, whose columns become features as in `known`, or as a first pass finds out."""
    spec = data_spec(options.kind)
    if known is None:
        if options.unlabelled:
            raise InputError(f"{tables[0].name}: unlabelled rows are prepared for a model; name it: --like MODEL")
        table_options = TableOptions(**told)
        check_grouped(table_options.group, options.kind, ragged=spec.ragged, weight=table_options.weight)
        return new_tables(tables, table_options, options)
    if (columns := known.preprocessing.columns) is None:
        raise InputError(f"{tables[0].name} is a table, but {known.name} was not prepared from one")
    others = {name: told.pop(name) for name in ("label", "weight", "group") if told.get(name) is not None}
    if told:
        raise InputError(f"{', '.join(told)}: the columns of {known.name} decide this already; leave it out")
    columns = replace(columns, **others)
    if options.unlabelled:
        columns = replace(columns, label=None, weight=None)
    check_grouped(columns.group, options.kind, ragged=spec.ragged, weight=columns.weight)
    for table in tables:
        if columns.label is not None and columns.label not in table.types:
            raise InputError(
                f"{table.name}: there is no column {columns.label!r} of labels, only {first_columns(table.types)}; "
                "prepare rows without labels with --unlabelled, or predict them as they are"
            )
    return known_tables(tables, columns)


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


def check_own_format(options: Options, own_format: OwnFormat) -> None:
    check_labels_wanted(options, f"{own_format.holds} tell their labels")
    if options.map is not None:
        raise InputError(f"{own_format.holds} have no rows of features to map; leave map out")


def check_labels_wanted(options: Options, why: str) -> None:
    if options.unlabelled:
        raise InputError(f"{why}; leave unlabelled out")


def take_table_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options of tables that are given, taken out of `options`."""
    found = {field.name: options.pop(field.name, None) for field in fields(TableOptions)}
    return {name: value for name, value in found.items() if value is not None and value != ()}


def like_of(like: Place | None, storage_options: Mapping[str, Any] | None) -> Like | None:
    return None if like is None else read_like(as_location(like, storage_options))


def check_scale(known: Like, options: Options, place: Location) -> None:
    """Appended examples are scaled as those that are there, which the user has to say."""
    if known.preprocessing.scale != options.scale:
        raise InputError(
            f"{place}: was prepared with the scale {known.preprocessing.scale}, not {options.scale}; append with that"
        )


def check_no_columns(known: Like | None, table: Mapping[str, Any], sources: Sequence[Any]) -> None:
    """Features without names cannot stand in for the columns of a table, nor take options of tables."""
    if known is not None and known.preprocessing.columns is not None:
        raise InputError(f"{sources[0]} has no named columns, but {known.name} was prepared from a table; give a table")
    for name in table:
        raise InputError(f"{name} is an option of tables (CSV, Parquet); {sources[0]} is none; leave {name} out")


def data_spec(kind: str) -> DataSpec:
    """The declaration of the problem class."""
    return spec_of(kind)


def own_options(spec: DataSpec, options: dict[str, Any], storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options of the problem's own format, taken out of `options`; those of other formats are refused."""
    names = [field.name for field in fields(spec.own_format.options)] if spec.own_format else []
    own = {name: options.pop(name, None) for name in names}
    for cls, other in OWN_FORMATS.items():
        for name in [field.name for field in fields(other.options) if field.name in options]:
            if options.pop(name) is not None:
                raise InputError(f"{name} applies only to a {cls.kind} problem; leave it out")
    if spec.own_format and (stored := own[spec.own_format.inherited]) is not None:
        own[spec.own_format.inherited] = as_location(stored, storage_options)
    return own


def check_conll(format: str | None, kind: str, spec: DataSpec, labels: list[Location]) -> None:
    if format not in (None, "conll"):
        raise InputError(f"templates and vocabulary are for conll text, but the format given is {format}")
    if spec.examples != "sequences":
        raise InputError(f"conll text holds tagged sequences, for a chain problem; a {kind} problem does not use them")
    if labels:
        raise InputError("conll text holds its tags in a column; leave the files of labels out")
