"""Tables of text that are read twice: the first pass keeps what it parsed in a temporary file for the second one.

Parsing takes most of the time of a pass; from the file, Arrow's own format, batches come as fast as the disk reads.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from distdual.data.sources.arrow import arrow
from distdual.data.sources.tables import Table
from distdual.errors import InputError


def spooled(table: Table, wanted: Mapping[str, str]) -> Table:
    """The same table; the first pass reads all `wanted` columns, whichever of these it asks for, and later ones a file.

    The file has no name, and is gone once nobody can read it any more.
    """
    kept: list[Any] = []

    def batches(_: Mapping[str, str]) -> Iterator[Any]:
        if kept:
            kept[0].seek(0)
            with arrow("pyarrow.ipc").open_stream(kept[0]) as reader:
                yield from reader
        else:
            handle, path = tempfile.mkstemp(prefix="distdual-")
            os.close(handle)
            try:
                yield from kept_in_file(table.read(wanted), path)
                kept.append(arrow().OSFile(path, "rb"))
            finally:
                os.remove(path)

    return table._replace(batches=batches)


def kept_in_file(batches: Iterator[Any], path: str) -> Iterator[Any]:
    """The batches themselves, each of which is written to the file at `path` before."""
    with arrow().OSFile(path, "wb") as file:
        writer = None
        for batch in batches:
            try:
                writer = writer or arrow("pyarrow.ipc").new_stream(file, batch.schema)
                writer.write_batch(batch)
            except OSError as error:
                where = tempfile.gettempdir()
                raise InputError(
                    f"{where}: parsed rows cannot be kept there ({error}); set TMPDIR to a folder with more room"
                ) from None
            yield batch
        if writer is not None:
            writer.close()
