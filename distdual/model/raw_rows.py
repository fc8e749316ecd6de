"""Raw rows from files, converted to a model's features; labelled or not, in any number."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.data.data_spec import OwnFormat
from distdual.data.prepare.open_sources import TABLE_FORMATS, Files, labelled_or_not
from distdual.data.preprocess.columns import Columns
from distdual.data.preprocess.preprocessing import Preprocessing
from distdual.data.shard import Block, Shard
from distdual.data.sources.base import Source
from distdual.data.sources.conll import text_to_predict
from distdual.data.sources.source_files import expanded, is_pattern, is_zarr
from distdual.data.sources.table_blocks import known_tables
from distdual.data.sources.tables import READERS, Table
from distdual.data.storage.location import Location
from distdual.data.validate import label_name, normal_block
from distdual.errors import InputError
from distdual.model.io import Model


class RawShard(NamedTuple):
    """Some rows, as a problem reads them, with labels as the source spells them; None where there are none."""

    shard: Shard
    labels: NDArray[Any] | None


def is_raw(place: Location) -> bool:
    """Whether the input is files of rows rather than a data set."""
    if is_pattern(place):
        return True
    fs, path = place.filesystem()
    if fs.isfile(path):
        return True
    return bool(fs.isdir(path)) and not (is_zarr(place) and is_dataset(place))


def is_dataset(place: Location) -> bool:
    """Whether zarr.json describes a distdual data set, complete or not."""
    return place.exists("zarr.json") and b'"distdual"' in place.read("zarr.json")


def raw_shards(model: Model, given: Files) -> Iterator[RawShard]:
    """The rows of all files, some at a time."""
    return shards_from(model, raw_sources(model, given))


def table_shards(model: Model, tables: list[Table]) -> Iterator[RawShard]:
    return shards_from(model, table_sources(model, tables))


def shards_from(model: Model, sources: list[tuple[Source, bool]]) -> Iterator[RawShard]:
    preprocessing, first = known_preprocessing(model), 0
    n_features = model.problem.describe()["n_features"]
    for number, (source, labelled) in enumerate(sources):
        for block in source.blocks():
            if not block.n_examples:
                continue
            found = preprocessing.converted(normal_block(block, source.name), source.name)
            check_row_width(found, n_features, source.name)
            y = np.zeros(len(block.y), dtype=np.int32)
            shard = Shard(number, first, found.x, y, tokens=found.tokens, runs=found.runs)
            yield RawShard(shard, block.y if labelled else None)
            first += block.n_examples


def known_preprocessing(model: Model) -> Preprocessing:
    if model.preprocessing is None:
        raise InputError(
            "the model does not record how its features were made, as it was trained by distdual 0.2.0; "
            "prepare the rows as its data were, and predict on the data set"
        )
    return model.preprocessing


def raw_sources(model: Model, given: Files) -> list[tuple[Source, bool]]:
    """The source of each file, and whether it has labels."""
    given = given._replace(files=expanded(list(given.files)))
    spec = model.problem.data_spec
    known = known_preprocessing(model)
    if known.recipe:
        if given.format not in (None, "conll") or given.labels or any(given.arrays):
            raise InputError(f"{given.files[0]}: the model was trained on text in columns; give such text")
        return text_to_predict(given.files, known.recipe, known.texts)
    if spec.own_format:
        return [(plain_source(file, spec.own_format, known), False) for file in given.files]
    formats = given.formats(spec)
    if set(formats) & set(TABLE_FORMATS):
        readers = zip(given.files, formats, strict=True)
        return table_sources(model, [READERS[found](file) for file, found in readers if check_table(file, found)])
    if known.columns is not None:
        raise InputError(
            f"{given.files[0]}: the model was trained on the named columns of a table; give CSV or Parquet"
        )
    return labelled_or_not(given, formats, model.problem.kind, spec)


def plain_source(file: Location, own: OwnFormat, known: Preprocessing) -> Source:
    return Source(str(file), lambda: own.plain(file, known.texts), 0)


def check_table(file: Location, found: str) -> bool:
    if found not in TABLE_FORMATS:
        raise InputError(f"{file}: tables cannot be mixed with files of format {found}")
    return True


def known_columns(model: Model, table: str = "the data") -> Columns:
    columns = known_preprocessing(model).columns
    if columns is None:
        raise InputError(f"{table} is a table, but the model was trained on features without names; give arrays")
    return columns


def table_sources(model: Model, tables: list[Table]) -> list[tuple[Source, bool]]:
    columns = known_columns(model, tables[0].name)
    sources = known_tables(tables, columns, labelled=False).sources
    return [(source, columns.label in table.types) for source, table in zip(sources, tables, strict=True)]


def check_row_width(block: Block, expected: int, name: str) -> None:
    found, sparse = block.x.n_columns, block.x.width is None
    if found > expected or (found < expected and not sparse):
        raise InputError(f"{name}: {found} features, but the model was trained with {expected}")


def label_codes(labels: NDArray[Any]) -> tuple[tuple[str, ...], NDArray[Any]]:
    """The names of the labels that occur, and the code of each row's label among them."""
    values, codes = np.unique(labels, return_inverse=True)
    return tuple(label_name(value) for value in values.tolist()), codes
