"""Tables: CSV and Parquet files, and data frames, as Arrow record batches in bounded memory.

A table tells what each column holds, and is read as often as needed: a first pass may learn levels and means.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from distdual.data.preprocess.table_options import BOOLEAN, DATE, NUMBER, OTHER, TEXT, first_columns
from distdual.data.sources.arrow import arrow
from distdual.data.sources.open_file import first_bytes, open_decompressed, open_source
from distdual.data.storage.location import Location
from distdual.errors import InputError

BATCH_ROWS = 1 << 16
CSV_BYTES = 4 << 20  # of a batch; pyarrow reads 32 of these ahead
HEAD_BYTES = 1 << 20  # within which the line of column names ends
FIELD_SEPARATORS = b",\t;|"
CSV_COLUMN = re.compile(r"In CSV column #(\d+): ")


class Table(NamedTuple):
    """A source of record batches."""

    name: str  # for messages
    types: Mapping[str, str]  # what each column holds: DATE, NUMBER, BOOLEAN, TEXT or OTHER
    batches: Callable[[Mapping[str, str]], Iterator[Any]]  # of these columns, read as these types
    text: bool = False  # which takes long to parse

    def read(self, wanted: Mapping[str, str]) -> Iterator[Any]:
        """Record batches with the wanted columns, from the start."""
        for name in wanted:
            if name not in self.types:
                raise InputError(
                    f"{self.name}: there is no column {name!r}; the columns are {first_columns(self.types)}"
                )
        return self.batches(wanted)


def type_of(field_type: Any) -> str:
    """What a column of this Arrow type holds."""
    types = arrow("pyarrow.types")
    if types.is_dictionary(field_type):
        field_type = field_type.value_type
    if types.is_timestamp(field_type) or types.is_date(field_type):
        return DATE
    if types.is_boolean(field_type):
        return BOOLEAN
    numeric = (types.is_integer, types.is_floating, types.is_decimal, types.is_time, types.is_duration)
    if any(check(field_type) for check in numeric) or types.is_null(field_type):
        return NUMBER
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    return TEXT if any(check(field_type) for check in texts) else OTHER


def types_in(schema: Any, name: str) -> dict[str, str]:
    """What each column of a table holds, once names are there and differ."""
    for column in schema.names:
        if schema.names.count(column) > 1:
            raise InputError(f"{name}: two columns are named {column!r}")
    return {field.name: type_of(field.type) for field in schema}


# --- CSV


def csv_table(file: Location) -> Table:
    """Text with a line of column names; separated by commas, tabs, semicolons or bars, compressed or not."""
    with open_decompressed(file) as stream:
        first = stream.read(HEAD_BYTES).partition(b"\n")[0]
    if not first.strip():
        raise InputError(f"{file}: the file is empty")
    separator = chr(max(FIELD_SEPARATORS, key=first.count))

    def batches(wanted: Mapping[str, str]) -> Iterator[Any]:
        with open_csv(file, separator, wanted, types) as reader:
            yield from csv_batches(reader, str(file), list(types))

    with open_csv(file, separator, {}, {}) as reader:
        types = types_in(reader.schema, str(file))
    return Table(str(file), types, batches, text=True)


class open_csv:
    """A streaming reader of a CSV file, for a `with` statement; reads the `wanted` columns as their types."""

    def __init__(self, file: Location, separator: str, wanted: Mapping[str, str], types: Mapping[str, str]) -> None:
        self.file = file
        self.stream = open_decompressed(file)
        self.options = csv_options(separator, wanted, types)

    def __enter__(self) -> Any:
        csv = arrow("pyarrow.csv")
        stream = self.stream.__enter__()
        try:
            return csv.open_csv(stream, **self.options)
        except arrow().ArrowException as error:
            self.stream.__exit__(None, None, None)
            raise InputError(f"{self.file}: {csv_sentence(error, [])}") from None

    def __exit__(self, *error: Any) -> None:
        self.stream.__exit__(*error)


def csv_options(separator: str, wanted: Mapping[str, str], types: Mapping[str, str]) -> dict[str, Any]:
    """The types that pyarrow would infer from the first rows need not hold for all; `types` are those."""
    pa, csv = arrow(), arrow("pyarrow.csv")
    as_type = {NUMBER: pa.float64(), TEXT: pa.dictionary(pa.int32(), pa.string()), DATE: pa.timestamp("us")}
    inferred = {(BOOLEAN, NUMBER), (BOOLEAN, BOOLEAN), (DATE, DATE)}  # there are several spellings of these
    told = {
        name: as_type[wish]
        for name, wish in wanted.items()
        if wish in as_type and (types.get(name), wish) not in inferred
    }
    return {
        "read_options": csv.ReadOptions(block_size=CSV_BYTES if wanted else HEAD_BYTES),
        "parse_options": csv.ParseOptions(delimiter=separator),
        "convert_options": csv.ConvertOptions(column_types=told, include_columns=list(wanted)),
    }


def csv_batches(reader: Any, name: str, columns: list[str]) -> Iterator[Any]:
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except arrow().ArrowException as error:
            raise InputError(f"{name}: {csv_sentence(error, columns)}") from None
        yield batch


def csv_sentence(error: Exception, columns: list[str]) -> str:
    """What pyarrow found wrong, with the name of the column instead of its number."""
    text = str(error).splitlines()[0]
    found = CSV_COLUMN.search(text)
    if found is None or int(found[1]) >= len(columns):
        return text
    name = columns[int(found[1])]
    rest = text.replace(found[0], "")
    return f"column {name!r}: {rest}; if these are categories, say so: --categorical {name}"


# --- Parquet


def parquet_table(file: Location) -> Table:
    def open_parquet(stream: Any) -> Any:
        try:
            return arrow("pyarrow.parquet").ParquetFile(stream, pre_buffer=False)
        except arrow().ArrowException as error:
            raise InputError(f"{file}: cannot be read as Parquet: {str(error).splitlines()[0]}") from None

    def batches(wanted: Mapping[str, str]) -> Iterator[Any]:
        texts = [name for name, type_ in wanted.items() if type_ == TEXT]
        with open_source(file) as stream:
            try:
                parquet = arrow("pyarrow.parquet").ParquetFile(stream, pre_buffer=False, read_dictionary=texts)
                yield from parquet.iter_batches(BATCH_ROWS, columns=list(wanted))
            except arrow().ArrowException as error:
                raise InputError(f"{file}: cannot be read as Parquet: {str(error).splitlines()[0]}") from None

    with open_source(file) as stream:
        types = types_in(open_parquet(stream).schema_arrow, str(file))
    return Table(str(file), types, batches)


# --- data frames


def is_frame(x: Any) -> bool:
    """Whether `x` is a table: pandas, Polars, Arrow or Dask."""
    return hasattr(x, "__arrow_c_stream__") or is_dask_frame(x)


def is_records(x: Any) -> bool:
    """Whether `x` is a list of rows, each a dict from names of columns to values."""
    return isinstance(x, list) and bool(x) and all(isinstance(row, dict) for row in x)


def records_table(rows: list[dict[str, Any]], names: Sequence[str], where: str) -> Any:
    """An Arrow table of these columns; NaT and other values that differ from themselves are missing."""
    for number, row in enumerate(rows):
        if missing := [name for name in names if name not in row]:
            expected = ", ".join(names[:20])
            raise InputError(f"{where}: row {number} has no value named {missing[0]!r}; expected {expected}")
    values = {name: [None if row[name] != row[name] else row[name] for row in rows] for name in names}
    pa = arrow()
    try:
        return pa.table({name: pa.array(column) for name, column in values.items()})
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"{where} cannot be read: {str(error).splitlines()[0]}") from None


def is_dask_frame(x: Any) -> bool:
    return "dask.dataframe" in sys.modules and hasattr(x, "partitions") and hasattr(x, "columns")


def frame_table(frame: Any, name: str = "the data frame") -> Table:
    """A pandas or Polars data frame, an Arrow table, or a Dask data frame, which is computed by partition."""
    if is_dask_frame(frame):
        return dask_table(frame, name)
    if hasattr(frame, "collect") and not hasattr(frame, "__arrow_c_stream__"):
        raise InputError(f"{name} is lazy; collect it first, or write it to Parquet")
    if not is_frame(frame):
        raise InputError(f"{name} is a {type(frame).__name__}; expected pandas, Polars, Arrow or Dask")
    whole = arrow_table(frame, name)

    def batches(wanted: Mapping[str, str]) -> Iterator[Any]:
        yield from whole.select(list(wanted)).combine_chunks().to_batches(BATCH_ROWS)

    return Table(name, types_in(whole.schema, name), batches)


def arrow_table(frame: Any, name: str) -> Any:
    pa = arrow()
    if isinstance(frame, pa.Table):
        return frame
    if hasattr(frame, "columns") and not all(isinstance(column, str) for column in frame.columns):
        frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    try:
        return pa.table(frame)
    except (pa.ArrowException, TypeError) as error:
        raise InputError(f"{name} cannot be read: {str(error).splitlines()[0]}") from None


def dask_table(frame: Any, name: str) -> Table:
    def batches(wanted: Mapping[str, str]) -> Iterator[Any]:
        for number in range(frame.npartitions):
            part = frame[list(wanted)].partitions[number].compute()
            yield from arrow_table(part, name).combine_chunks().to_batches(BATCH_ROWS)

    # Types of empty columns say little about texts, so that the first rows decide.
    return Table(name, types_in(arrow_table(frame.partitions[0].compute(), name).schema, name), batches)


# --- which file is what

SUFFIXES = {"csv": ("csv", "tsv"), "parquet": ("parquet", "pq")}
PARQUET_MAGIC = b"PAR1"
READERS: dict[str, Callable[[Location], Table]] = {"csv": csv_table, "parquet": parquet_table}


def table_format(file: Location) -> str | None:
    """ "csv" or "parquet" if the name of a file or its first bytes say so."""
    name = file.url.rpartition("/")[2].lower()
    for packed in ("gz", "bz2", "xz"):
        name = name.removesuffix(f".{packed}")
    for format_, suffixes in SUFFIXES.items():
        if name.endswith(tuple(f".{suffix}" for suffix in suffixes)):
            return format_
    with open_source(file) as stream:
        return "parquet" if first_bytes(stream, 4) == PARQUET_MAGIC else None
