"""Rows of a table, as Arrow record batches, to features: numbers, dates, levels and hashes.

Missing is what is null, NaN, or an empty text.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.data.preprocess.columns import Column, Columns
from distdual.data.sources.arrow import arrow
from distdual.data.sources.vocabulary import Hashing
from distdual.errors import InputError
from distdual.kernels.rows import Bools, CsrRows, DenseRows, Features, Floats, Ints

DAY = 86_400_000_000  # microseconds
NO_LEVEL = -1


class Coded(NamedTuple):
    """Texts as codes of their distinct values; NO_LEVEL where the value is missing."""

    values: list[str]
    codes: Ints


class RowPlace(NamedTuple):
    """Where a record batch is from, for messages."""

    source: str
    first_row: int

    def refuse(self, column: str, row: int, what: str) -> InputError:
        return InputError(f"{self.source}, row {self.first_row + row} (counted from 0), column {column!r}: {what}")


Unseen = dict[str, str]  # the first value that the training rows do not have, by column


def encode(columns: Columns, batch: Any, place: RowPlace, unseen: Unseen) -> Features:
    """The features of each row, dense or sparse as `columns` has it; adds to `unseen`."""
    parts = [encode_column(column, batch.column(column.name), place, unseen) for column in columns.columns]
    return encoded_dense(columns, parts) if not columns.sparse else encoded_csr(columns, parts)


class Encoded(NamedTuple):
    """One column of n rows: at most one feature a row, and perhaps an indicator."""

    feature: Ints | None  # (n,) the place among the column's features, NO_LEVEL for none; None: all 0
    value: Floats | None  # (n,); None: all 1
    missing: Bools | None  # the value of the indicator


def encode_column(column: Column, array: Any, place: RowPlace, unseen: Unseen) -> Encoded:
    if column.kind in ("number", "date"):
        value = floats_of(column.name, column.kind, array, place) - column.origin
        missing = check_missing(column, np.isnan(value), place)
        value[missing] = column.fill or 0.0
        check_size(column, value, place)
        return Encoded(None, value, missing if column.indicator else None)
    coded = coded_texts(column.name, array, place)
    missing = check_missing(column, coded.codes == NO_LEVEL, place)
    features = np.append(feature_numbers(column, coded.values), NO_LEVEL)[coded.codes]
    if column.name not in unseen and (none := (features == NO_LEVEL) & ~missing).any():
        unseen[column.name] = coded.values[coded.codes[np.argmax(none)]]
    return Encoded(features, None, missing if column.indicator else None)


def feature_numbers(column: Column, values: list[str]) -> Ints:
    """The place of each value among the column's features."""
    if column.kind == "hash":
        return Hashing(column.bits).numbers(values)
    places = {level: place for place, level in enumerate(column.levels)}
    return np.array([places.get(value, NO_LEVEL) for value in values], dtype=np.int64)


def check_missing(column: Column, missing: Bools, place: RowPlace) -> Bools:
    if column.fill is None and missing.any():
        raise place.refuse(
            column.name,
            int(np.argmax(missing)),
            "the value is missing; --missing mean, zero or indicator, for the training data, says what it counts as",
        )
    return missing


def check_size(column: Column, value: Floats, place: RowPlace) -> None:
    """Refuse what float32 cannot hold."""
    bad = ~(np.abs(value) < float(np.finfo(np.float32).max))
    if bad.any():
        row = int(np.argmax(bad))
        why = "is infinite" if np.isinf(value[row]) else "is too large for float32"
        raise place.refuse(column.name, row, f"the value {value[row]} {why}")


def encoded_dense(columns: Columns, parts: list[Encoded]) -> DenseRows:
    n = n_rows_of(parts)
    values = np.zeros((n, columns.n_features), dtype=np.float32)
    for column, first, part in zip(columns.columns, columns.offsets[:-1].tolist(), parts, strict=True):
        if part.feature is None:
            values[:, first] = part.value
        else:
            there = np.flatnonzero(part.feature != NO_LEVEL)
            values[there, first + part.feature[there]] = 1.0
        if part.missing is not None:
            values[:, first + column.width - 1] = part.missing
    return DenseRows(values)


def encoded_csr(columns: Columns, parts: list[Encoded]) -> CsrRows:
    """Rows without zeros; features rise along a row, as columns do."""
    entries = sum(1 + (part.missing is not None) for part in parts)
    n = n_rows_of(parts)
    indices, values = np.empty((n, entries), dtype=np.int32), np.empty((n, entries), dtype=np.float32)
    at = 0
    for column, first, part in zip(columns.columns, columns.offsets[:-1].tolist(), parts, strict=True):
        if part.feature is None:
            indices[:, at], values[:, at] = first, part.value
        else:
            np.add(part.feature, first, out=indices[:, at], casting="same_kind")
            values[:, at] = part.feature != NO_LEVEL
        at += 1
        if part.missing is not None:
            indices[:, at], values[:, at] = first + column.width - 1, part.missing
            at += 1
    keep = values != 0
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(keep.sum(axis=1), out=indptr[1:])
    if indptr[-1] == values.size:
        return CsrRows(indptr, indices.reshape(-1), values.reshape(-1))
    return CsrRows(indptr, indices[keep], values[keep])


def n_rows_of(parts: list[Encoded]) -> int:
    first = parts[0]
    return len(first.value if first.feature is None else first.feature)  # type: ignore[arg-type]


# --- Arrow arrays as NumPy arrays


def floats_of(name: str, kind: str, array: Any, place: RowPlace) -> Floats:
    """A column of numbers, or of dates as days since 1970, as float64; NaN where it is missing."""
    pa = arrow()
    try:
        if kind == "date":
            found = days_of(array)
        else:
            found = plain_numbers(array).cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        wanted = "a date" if kind == "date" else "a number"
        row, value = first_misfit(array, kind)
        raise place.refuse(name, row, f"{value!r} is not {wanted} ({str(error).splitlines()[0]})") from None
    return np.array(found, dtype=np.float64)  # a copy: Arrow's memory is read-only


def plain_numbers(array: Any) -> Any:
    """Booleans, times of day and durations as whole numbers of their unit; everything else as it is."""
    types = arrow("pyarrow.types")
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_time(array.type) or types.is_duration(array.type):
        array = array.cast(arrow().int64() if array.type.bit_width == 64 else arrow().int32())
    if types.is_string(array.type) or types.is_large_string(array.type):
        array = array.cast(arrow().float64())
    return array.cast(arrow().int8()) if types.is_boolean(array.type) else array


def days_of(array: Any) -> Floats:
    pa, types = arrow(), arrow("pyarrow.types")
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_integer(array.type) or types.is_floating(array.type):
        raise pa.ArrowInvalid("a number stands where a date is expected")
    if not types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us"))
    instant = array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64())
    days: Floats = instant.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) / DAY
    return days


def first_misfit(array: Any, kind: str) -> tuple[int, Any]:
    """The first entry that is no number or no date."""
    for row in range(len(array)):
        try:
            piece = array.slice(row, 1)
            days_of(piece) if kind == "date" else plain_numbers(piece).cast(arrow().float64())
        except arrow().ArrowException:
            return row, array[row].as_py()
    return 0, array[0].as_py()


def coded_texts(name: str, array: Any, place: RowPlace) -> Coded:
    """A column of texts, or of anything that has one spelling, as codes."""
    pa, types = arrow(), arrow("pyarrow.types")
    if not types.is_dictionary(array.type):
        array = as_text(name, array, place).dictionary_encode()
    values = ["" if value is None else value for value in as_text(name, array.dictionary, place).to_pylist()]
    codes = array.indices.cast(pa.int64()).fill_null(NO_LEVEL).to_numpy(zero_copy_only=False)
    if "" in values:
        empty = np.array([value == "" for value in [*values, "x"]])
        codes = np.where(empty[codes], NO_LEVEL, codes)
    return Coded(values, codes)


def as_text(name: str, array: Any, place: RowPlace) -> Any:
    """Texts; whole numbers are spelt without a point, as labels are."""
    pa, types = arrow(), arrow("pyarrow.types")
    if types.is_floating(array.type):
        compute = arrow("pyarrow.compute")
        array = compute.if_else(compute.is_nan(array), None, array)
        whole = compute.all(compute.equal(compute.floor(array), array)).as_py() is not False
        array = array.cast(pa.int64()) if whole else array
    try:
        return array.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise place.refuse(name, 0, f"a column of type {array.type} is neither numbers nor texts; drop it") from None


def column_labels(name: str, array: Any, place: RowPlace) -> NDArray[Any]:
    """Labels as float64, booleans or texts; none may be missing."""
    types = arrow("pyarrow.types")
    if types.is_integer(array.type) or types.is_floating(array.type) or types.is_decimal(array.type):
        found: NDArray[Any] = floats_of(name, "number", array, place)
        missing = np.isnan(found)
    elif types.is_boolean(array.type):
        missing = np.asarray(array.is_null())
        found = np.asarray(array.fill_null(False))
    else:
        coded = coded_texts(name, array, place)
        missing = coded.codes == NO_LEVEL
        found = np.array([*coded.values, ""])[coded.codes]
    if missing.any():
        raise place.refuse(name, int(np.argmax(missing)), "the label is missing")
    return found
