"""Sources of examples from files: which format each has, and the reader for it."""

import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from distdual.config import check_choice
from distdual.data.data_spec import DataSpec
from distdual.data.sources.base import Source
from distdual.data.sources.npy import ArrayNames, blocks_from_npy, blocks_from_npz, npz_has, npz_width
from distdual.data.sources.open_file import open_decompressed
from distdual.data.sources.source_files import is_zarr
from distdual.data.sources.svmhmm import blocks_from_svmhmm
from distdual.data.sources.svmlight import blocks_from_svmlight, has_labels
from distdual.data.sources.tables import READERS, table_format
from distdual.data.sources.zarr_arrays import blocks_from_zarr, rows_of_zarr
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.problems.registry import BUILT_IN

OWN_FORMATS = {cls: cls.data_spec.own_format for cls in BUILT_IN if cls.data_spec.own_format is not None}
TABLE_FORMATS = tuple(READERS)
FORMATS = (
    *TABLE_FORMATS,
    "svmlight",
    "svmhmm",
    "conll",
    "npz",
    "npy",
    "zarr",
    *(own.name for own in OWN_FORMATS.values()),
)
WITH_LABELS = ("npy", "zarr")  # formats whose labels are in files of their own; a Zarr group may hold both
GUESS_BYTES = 1 << 16
SVMLIGHT_LINE = re.compile(rb"([+-]?[0-9.][0-9.eE+-]*)?(\s*qid:\d+)?(\s*\d+:\S+)*")


class Files(NamedTuple):
    """Files of examples, with what the user says about them."""

    files: Sequence[Location]
    labels: Sequence[Location] = ()
    format: str | None = None
    arrays: ArrayNames = ArrayNames()

    def formats(self, spec: DataSpec) -> list[str]:
        """The format of each file, guessed if it is not given."""
        return [self.format or guess_format(file, spec) for file in self.files]


def file_sources(given: Files, kind: str, spec: DataSpec) -> list[Source]:
    format = given.format
    if format is not None:
        check_choice("format", format, FORMATS)
    for cls, other in OWN_FORMATS.items():
        if format == other.name:
            raise InputError(
                f"format {format} holds {other.holds}, for a {cls.kind} problem; a {kind} problem does not use them"
            )
    if spec.examples in ("bags", "queries") and format == "svmlight":
        format = "svmhmm"  # the same text, in which qid names the bag or the query
    formats = given._replace(format=format).formats(spec)
    if not {"npz", "zarr"} & set(formats) and any(given.arrays):
        raise InputError(
            f"--x and --y name arrays of .npz files and Zarr groups; these files are {', '.join(set(formats))}"
        )
    n_npy, n_zarr = formats.count("npy"), formats.count("zarr")
    if not n_npy <= len(given.labels) <= n_npy + n_zarr or (n_zarr and n_npy):
        raise InputError(
            f"each .npy source needs a file of labels: {n_npy} sources, {len(given.labels)} files of labels"
        )
    rest = iter(given.labels)
    return [
        file_source(file, its, next(rest, None) if its in WITH_LABELS else None, given.arrays)
        for file, its in zip(given.files, formats, strict=True)
    ]


def labelled_or_not(given: Files, formats: Sequence[str], kind: str, spec: DataSpec) -> list[tuple[Source, bool]]:
    """The source of each file for prediction, and whether it has labels, which it need not."""
    found = []
    for file, its in zip(given.files, formats, strict=True):
        if its == "svmlight" and not has_labels(file):
            found.append((Source(str(file), partial(blocks_from_svmlight, file, labelled=False)), False))
        elif its == "npz" and not given.arrays.y and not npz_has(file, "y"):
            found.append((npz_source(file, given.arrays, labelled=False), False))
        elif its == "npy" and not given.labels:
            found.append((Source(str(file), partial(blocks_from_npy, file, None)), False))
        elif its == "zarr" and not given.labels and not given.arrays.y:
            found.append((Source(str(file), partial(rows_of_zarr, file, given.arrays.x)), False))
        else:
            one = given._replace(files=[file], format=its)
            found.append((file_sources(one, kind, spec)[0], True))
    return found


def npz_source(file: Location, arrays: ArrayNames, *, labelled: bool = True) -> Source:
    width = npz_width(file, arrays, labelled=labelled)
    return Source(str(file), lambda: blocks_from_npz(file, arrays, labelled=labelled), width)


def file_source(file: Location, format: str, labels: Location | None, arrays: ArrayNames) -> Source:
    if format == "zarr":
        return Source(str(file), lambda: blocks_from_zarr(file, labels, arrays.x, arrays.y))
    if labels is not None:
        return Source(str(file), lambda: blocks_from_npy(file, labels))
    if format == "npz":
        return npz_source(file, arrays)
    read = blocks_from_svmhmm if format == "svmhmm" else blocks_from_svmlight
    return Source(str(file), lambda: read(file))


def guess_format(file: Location, spec: DataSpec) -> str:
    """The format that the name or the first bytes of a file suggest.

    Text is svmlight if its first example is, and one of the first has features. The parser reports bad lines.
    """
    if is_zarr(file):
        return "zarr"
    if found := table_format(file):
        return found
    with open_decompressed(file) as stream:
        start = stream.read(GUESS_BYTES)
    if not start:
        raise InputError(f"{file}: the file is empty")
    if start.startswith(b"PK\x03\x04"):
        return "npz"
    if start.startswith(b"\x93NUMPY"):
        return "npy"
    if len(start) == GUESS_BYTES:
        start = b"".join(start.rsplit(maxsplit=1)[:1])  # the last word may be cut
    lines = [line.partition(b"#")[0].strip() for line in start.splitlines()]
    first = [SVMLIGHT_LINE.fullmatch(line) for line in lines if line][:20]
    if any(first[:1]) and any(b":" in match[0] for match in first if match):
        return "svmhmm" if spec.ragged else "svmlight"
    raise InputError(f"{file}: cannot tell the format from the first lines; name it: {', '.join(FORMATS)}")
