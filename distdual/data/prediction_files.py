"""Files of predictions, written as they come: text, CSV, NumPy, Parquet or Zarr; readers see all of one or nothing."""

import contextlib
import csv
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import zarr
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from distdual.data.sources.arrow import arrow
from distdual.data.storage.location import PARTIAL, Location, clear_errors
from distdual.data.zarr_store import zarr_store
from distdual.errors import InputError

PredictionColumns = Mapping[str, NDArray[Any]]  # columns of some rows; the first is the prediction
ENDINGS = (".txt", ".npy", ".csv", ".parquet", ".zarr")
ONE_COLUMN = (".txt", ".npy")  # formats that hold the predictions alone
ZARR_CHUNK = 1 << 20  # entries


def ending_of(out: str) -> str:
    found = next((ending for ending in ENDINGS if out.endswith(ending)), None)
    if found is None:
        raise InputError(
            f"{out}: predictions are written as .txt or .npy, or .csv, .parquet and .zarr; give the file such an ending"
        )
    return found


def check_file_name(out: str, *, several: bool = False) -> None:
    """Refuse a name that tells no format, or one for a single column where there are `several`."""
    ending = ending_of(out)
    if several and ending in ONE_COLUMN:
        raise InputError(f"{out}: {ending} holds predictions alone; scores and classes need .csv, .parquet or .zarr")
    if ending == ".parquet":
        arrow("pyarrow.parquet")


def write_rows(parts: Iterable[PredictionColumns], out: Location) -> int:
    """Write all rows and return their number; on failure nothing is left."""
    ending = ending_of(out.url)
    if ending == ".zarr":
        return write_zarr(parts, out)
    writer = {".txt": write_text, ".npy": write_npy, ".csv": write_csv, ".parquet": write_parquet}[ending]
    with finished_file(out) as path:
        return writer(parts, path)


@contextlib.contextmanager
def finished_file(out: Location) -> Iterator[str]:
    """A local file to write, which becomes the file `out` if the body succeeds."""
    fs, path = out.filesystem()
    with clear_errors(out.url):
        if not out.remote:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            try:
                yield path + PARTIAL
                os.replace(path + PARTIAL, path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path + PARTIAL)
            return
        folder = tempfile.mkdtemp()
        try:
            local = os.path.join(folder, "rows")
            yield local
            fs.put_file(local, path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def write_text(parts: Iterable[PredictionColumns], path: str) -> int:
    n = 0
    with open(path, "w", encoding="utf-8") as file:
        for rows in parts:
            lines = [str(value) for value in first_column(rows)]
            file.writelines(f"{line}\n" for line in lines)
            n += len(lines)
    return n


def write_csv(parts: Iterable[PredictionColumns], path: str) -> int:
    n = 0
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for rows in parts:
            if not n:
                writer.writerow(rows)
            writer.writerows(zip(*(column.tolist() for column in rows.values()), strict=True))
            n += len(first_column(rows))
    return n


def write_parquet(parts: Iterable[PredictionColumns], path: str) -> int:
    parquet = arrow("pyarrow.parquet")
    n, writer = 0, None
    try:
        for rows in parts:
            table = arrow().table({name: arrow_column(column) for name, column in rows.items()})
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
            n += len(table)
    finally:
        if writer is not None:
            writer.close()
    return n


def arrow_column(column: NDArray[Any]) -> Any:
    return arrow().array(column.tolist() if column.dtype.kind in "UO" else column)


def write_npy(parts: Iterable[PredictionColumns], path: str) -> int:
    """The header has room for any number of rows, and is written again at the end."""
    n, dtype = 0, None
    parts = iter(parts)
    with open(path, "wb") as file:
        for rows in parts:
            column = np.asarray(first_column(rows))
            if column.dtype.kind == "O":  # texts of any length: all are needed before the first is written
                whole = np.concatenate([column, *map(first_column, parts)]).astype(np.str_)
                np.save(file, whole, allow_pickle=False)
                return len(whole)
            if dtype is None:
                dtype = column.dtype
                write_header(file, 0, dtype)
            file.write(np.ascontiguousarray(column, dtype=dtype).tobytes())
            n += len(column)
        file.seek(0)
        write_header(file, n, dtype or np.dtype(np.float64))
    return n


def write_header(file: Any, n: int, dtype: np.dtype[Any]) -> None:
    told = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": (n,)}
    npy_format.write_array_header_1_0(file, told)


def write_zarr(parts: Iterable[PredictionColumns], out: Location) -> int:
    """A group with an array a column; texts are codes, with the texts as the attribute `labels`."""
    if not out.is_empty():
        raise InputError(f"{out}: is not empty; choose another place for the predictions")
    n, group, arrays = 0, None, {}
    labels: dict[str, dict[str, int]] = {}
    try:
        with clear_errors(out.url):
            for rows in parts:
                group = group or zarr.create_group(zarr_store(out, read_only=False), zarr_format=3)
                for name, column in rows.items():
                    values = coded(column, labels.setdefault(name, {})) if column.dtype.kind in "UO" else column
                    if name not in arrays:
                        arrays[name] = group.create_array(name, shape=(0,), chunks=(ZARR_CHUNK,), dtype=values.dtype)
                    arrays[name].append(values)
                n += len(first_column(rows))
            for name, codes in labels.items():
                if codes:
                    arrays[name].attrs["labels"] = list(codes)
    except BaseException:
        with contextlib.suppress(InputError):
            out.remove()
        raise
    return n


def coded(texts: NDArray[Any], codes: dict[str, int]) -> NDArray[np.int32]:
    """Codes in order of first appearance."""
    return np.array([codes.setdefault(str(text), len(codes)) for text in texts], dtype=np.int32)


def first_column(rows: PredictionColumns) -> NDArray[Any]:
    return next(iter(rows.values()))
