"""Examples of files, read in the way that their problem, the options or the formats of the files ask for."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from distdual.data.data_spec import DataSpec
from distdual.data.prepare.open_sources import OWN_FORMATS, TABLE_FORMATS, Files, file_sources, labelled_or_not
from distdual.data.prepare_options import Options
from distdual.data.preprocess.stored import Like
from distdual.data.preprocess.table_options import TableOptions, first_columns
from distdual.data.sources.base import Attached, Opened
from distdual.data.sources.conll import text_from, text_like
from distdual.data.sources.structures import structure_source
from distdual.data.sources.table_blocks import check_grouped, known_tables, new_tables
from distdual.data.sources.tables import READERS, Table
from distdual.data.storage.location import Location, as_location
from distdual.errors import InputError


class Request(NamedTuple):
    """What `prepare` is asked to read, and how."""

    told: Files
    spec: DataSpec  # of the problem
    options: Options
    known: Like | None  # whose preprocessing is taken over
    templates: Mapping[str, Any] | str | Path | None
    vocabulary: Location | None
    table: dict[str, Any]  # options of tables
    own: dict[str, Any]  # options of the problem's own format

    @property
    def is_text(self) -> bool:
        """Whether files are read as text in columns, "conll"."""
        asked = self.told.format == "conll" or self.templates is not None or self.vocabulary is not None
        return asked or bool(self.known and self.known.preprocessing.recipe)


def open_files(request: Request) -> Opened:
    if request.spec.examples == "structures":
        return open_structures(request)
    if request.is_text:
        return open_text(request)
    if request.spec.own_format is not None:
        return open_own_format(request)
    formats = request.told.formats(request.spec)
    if set(TABLE_FORMATS) & set(formats):
        return open_table_files(request, formats)
    return open_rows(request, formats)


def open_structures(request: Request) -> Opened:
    told, others = request.told, [*request.told.arrays, request.templates, request.vocabulary, *request.table.values()]
    check_structures(request.options, request.options.kind, told.labels, request.known, others)
    return Opened([structure_source(file, told.format) for file in told.files], Attached())


def open_text(request: Request) -> Opened:
    told, known = request.told, request.known
    check_conll(told, request.options.kind, request.spec)
    check_labels_wanted(request.options, "text in columns has its tags in one of them")
    if known is not None:
        return text_like(told.files, known, request.templates, request.vocabulary)
    return text_from(told.files, request.templates, request.vocabulary)


def open_own_format(request: Request) -> Opened:
    told, kind, own = request.told, request.options.kind, request.spec.own_format
    assert own is not None
    check_labels_wanted(request.options, f"{own.holds} tell their labels")
    if request.options.map is not None:
        raise InputError(f"{own.holds} have no rows of features to map; leave map out")
    if told.format not in (None, own.name) or told.labels:
        raise InputError(f"a {kind} problem reads {own.holds} alone: format {own.name}, no files of labels")
    return own.open(told.files, own.options(**request.own), request.options)


def open_table_files(request: Request, formats: Sequence[str]) -> Opened:
    files = request.told.files
    if set(formats) - set(TABLE_FORMATS) or request.told.labels:
        raise InputError(f"{', '.join(map(str, files))}: tables cannot be mixed with other files, nor with --labels")
    tables = [READERS[found](file) for file, found in zip(files, formats, strict=True)]
    return open_tables(tables, request.spec, request.table, request.options, request.known)


def open_rows(request: Request, formats: Sequence[str]) -> Opened:
    told, kind, spec = request.told, request.options.kind, request.spec
    check_no_columns(request.known, request.table, told.files)
    if request.options.unlabelled:
        return Opened([source for source, _ in labelled_or_not(told, formats, kind, spec)], Attached())
    return Opened(file_sources(told, kind, spec), Attached())


def open_tables(
    tables: Sequence[Table], spec: DataSpec, told: dict[str, Any], options: Options, known: Like | None
) -> Opened:
    """Examples of tables, whose columns become features as in `known`, or as a first pass finds out."""
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


def check_structures(
    options: Options, kind: str, labels: Sequence[Any] = (), known: Like | None = None, others: Sequence[Any] = ()
) -> None:
    """Refuse options that have a meaning for features only."""
    check_labels_wanted(options, "structures need no labels")
    told = options.scale != "none" or options.n_features is not None or options.map is not None
    if told or labels or (known is not None and not options.append) or any(other is not None for other in others):
        raise InputError(f"{kind} data have arrays of their own: leave options about features and labels out")


def check_labels_wanted(options: Options, why: str) -> None:
    if options.unlabelled:
        raise InputError(f"{why}; leave unlabelled out")


def check_no_columns(known: Like | None, table: Mapping[str, Any], sources: Sequence[Any]) -> None:
    """Features without names cannot stand in for the columns of a table, nor take options of tables."""
    if known is not None and known.preprocessing.columns is not None:
        raise InputError(f"{sources[0]} has no named columns, but {known.name} was prepared from a table; give a table")
    for name in table:
        raise InputError(f"{name} is an option of tables (CSV, Parquet); {sources[0]} is none; leave {name} out")


def check_conll(told: Files, kind: str, spec: DataSpec) -> None:
    if told.format not in (None, "conll"):
        raise InputError(f"templates and vocabulary are for conll text, but the format given is {told.format}")
    if spec.examples != "sequences":
        raise InputError(f"conll text holds tagged sequences, for a chain problem; a {kind} problem does not use them")
    if told.labels:
        raise InputError("conll text holds its tags in a column; leave the files of labels out")
