"""The functions that write a data set from files or arrays: `prepare` and `prepare_arrays`."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from distdual.data.data_spec import DataSpec
from distdual.data.prepare.pipeline import Summary, write
from distdual.data.prepare_options import Options, check_choice
from distdual.data.sources.arrays import blocks_from_arrays, width_of
from distdual.data.sources.base import Attached, Opened, Source
from distdual.data.sources.conll import text_from
from distdual.data.sources.npy import blocks_from_npy, blocks_from_npz, npz_width
from distdual.data.sources.open_file import open_decompressed
from distdual.data.sources.sequences import blocks_from_ragged, ragged
from distdual.data.sources.svmhmm import blocks_from_svmhmm
from distdual.data.sources.svmlight import blocks_from_svmlight
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.problems.registry import BUILT_IN, KINDS, class_of, is_own

__all__ = ["FORMATS", "KINDS", "Options", "Summary", "prepare", "prepare_arrays"]

Place = Location | str | os.PathLike[str]

OWN_FORMATS = {cls: cls.data_spec.own_format for cls in BUILT_IN if cls.data_spec.own_format is not None}
FORMATS = ("svmlight", "svmhmm", "conll", "npz", "npy", *(own.name for own in OWN_FORMATS.values()))
GUESS_BYTES = 1 << 16
SVMLIGHT_LINE = re.compile(rb"[+-]?[0-9.][0-9.eE+-]*(\s+qid:\d+)?(\s+\d+:\S+)*")


def prepare(
    sources: Place | Sequence[Place],
    dest: Place,
    kind: str,
    *,
    format: str | None = None,
    labels: Sequence[Place] = (),
    templates: Mapping[str, Any] | str | Path | None = None,
    vocabulary: Place | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Summary, ...]:
    """Write the examples of `sources`, read in order, as a data set at `dest`; or as `dest`/train and `dest`/test.

    `format` is one of FORMATS, guessed from the first bytes of each file if not given. `labels` names the .npy file
    of labels that belongs to each .npy source. Text in columns, "conll", takes either `templates`, a TOML file or a
    table of the same keys (data/templates.py), or `vocabulary`: a data set whose templates, feature numbers and tags
    are used; features that it does not know are left out, tags are added to its own.

    `storage_options` are for those places that are given as the text of a remote URL. The other options are those of
    `Options`: shard_bytes, shuffle, test_fraction, scale, n_features, compress, overwrite, append; and those of the
    problem's own file format, such as `TreeOptions`. If anything fails, `dest` is as it was.
    """
    spec = data_spec(kind)
    own_format, own = spec.own_format, own_options(kind, spec, options, storage_options)
    chosen = Options(kind=kind, **options)
    given = [sources] if isinstance(sources, Location | str | os.PathLike) else sources
    files = [as_location(file, storage_options) for file in given]
    label_files = [as_location(file, storage_options) for file in labels]
    place = as_location(dest, storage_options)
    if not files:
        raise InputError("no source file was given")
    if chosen.append:
        inherited = {"templates": templates, "vocabulary": vocabulary}
        inherited |= {own_format.inherited: own[own_format.inherited]} if own_format else {}
        for name, value in inherited.items():
            if value is not None:
                raise InputError(f"append takes the {name} of the data set itself; leave {name} out")
        vocabulary = place if format == "conll" else None
        own |= {own_format.inherited: place} if own_format else {}
    if format == "conll" or templates is not None or vocabulary is not None:
        check_conll(format, kind, spec, label_files)
        known = None if vocabulary is None else as_location(vocabulary, storage_options)
        opened = text_from(files, templates, known)
    elif own_format is not None:
        if format not in (None, own_format.name) or label_files:
            raise InputError(
                f"a {kind} problem reads {own_format.holds} alone: format {own_format.name}, no files of labels"
            )
        opened = own_format.open(files, own_format.options(**own), chosen)
    else:
        opened = Opened(file_sources(files, label_files, format, kind, spec), Attached())
    return write(opened.sources, place, chosen, opened.attached)


def prepare_arrays(
    x: Any,
    y: Any,
    dest: Place,
    kind: str,
    *,
    cost: Any = None,
    margin: Any = None,
    lengths: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Summary, ...]:
    """The same from NumPy, scipy.sparse or Dask arrays: one row of `x` and one entry of `y` for each example.

    For a chain, `x` and `y` are lists with an array a sequence, or have a row a token and `lengths` says how many
    tokens each sequence has; `cost` has an entry for each sequence. A latent problem has bags for sequences and
    candidates for tokens, each with the label of its bag.
    """
    chosen = Options(kind=kind, **options)
    if data_spec(kind).ragged or lengths is not None:
        if margin is not None:
            raise InputError(f"the arrays: a margin for each sequence has no meaning in a {kind} problem; leave it out")
        made = ragged(x, y, lengths)
        source = Source("the arrays", lambda: blocks_from_ragged(made, cost), width_of(made.x))
    else:
        source = Source("the arrays", lambda: blocks_from_arrays(x, y, cost, margin), width_of(x))
    return write([source], as_location(dest, storage_options), chosen)


def as_location(where: Place, storage_options: Mapping[str, Any] | None) -> Location:
    if isinstance(where, Location):
        return where
    plain = Location(os.fspath(where))
    return Location(plain.url, storage_options) if plain.remote and storage_options else plain


def data_spec(kind: str) -> DataSpec:
    """The declaration of the problem class."""
    if not is_own(kind):
        check_choice("problem", kind, [*KINDS, "package.module:Class"])
    spec: DataSpec = class_of(kind).data_spec
    return spec


def own_options(
    kind: str, spec: DataSpec, options: dict[str, Any], storage_options: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The options of the problem's own format, taken out of `options`; those of other formats are refused."""
    names = [field.name for field in fields(spec.own_format.options)] if spec.own_format else []
    own = {name: options.pop(name, None) for name in names}
    for cls, other in OWN_FORMATS.items():
        for name in [field.name for field in fields(other.options) if field.name in options]:
            if options.pop(name) is not None:
                raise InputError(
                    f"{name} has no meaning in a {kind} problem, only in a {cls.kind} problem; leave it out"
                )
    if spec.own_format and (stored := own[spec.own_format.inherited]) is not None:
        own[spec.own_format.inherited] = as_location(stored, storage_options)
    return own


def check_conll(format: str | None, kind: str, spec: DataSpec, labels: list[Location]) -> None:
    if format not in (None, "conll"):
        raise InputError(f"templates and vocabulary are for conll text, but the format is said to be {format}")
    if spec.examples != "sequences":
        raise InputError(
            f"conll text holds tagged sequences, for a chain problem; a {kind} problem has no use for them"
        )
    if labels:
        raise InputError("conll text holds its tags in a column; leave the files of labels out")


def file_sources(
    files: list[Location], labels: list[Location], format: str | None, kind: str, spec: DataSpec
) -> list[Source]:
    if format is not None:
        check_choice("format", format, FORMATS)
    for cls, other in OWN_FORMATS.items():
        if format == other.name:
            raise InputError(
                f"format {format} holds {other.holds}, for a {cls.kind} problem; a {kind} problem has no use for them"
            )
    if spec.examples == "bags" and format == "svmlight":
        format = "svmhmm"  # the same text, in which qid names the bag
    formats = [format or guess_format(file, spec) for file in files]
    n_npy = formats.count("npy")
    if n_npy != len(labels):
        raise InputError(f"each .npy source needs a file of labels: {n_npy} sources, {len(labels)} files of labels")
    rest = iter(labels)
    return [
        file_source(file, its, next(rest) if its == "npy" else None) for file, its in zip(files, formats, strict=True)
    ]


def file_source(file: Location, format: str, labels: Location | None) -> Source:
    if labels is not None:
        return Source(str(file), lambda: blocks_from_npy(file, labels))
    if format == "npz":
        return Source(str(file), lambda: blocks_from_npz(file), npz_width(file))
    read = blocks_from_svmhmm if format == "svmhmm" else blocks_from_svmlight
    return Source(str(file), lambda: read(file))


def guess_format(file: Location, spec: DataSpec) -> str:
    """What the first bytes of a file tell; text is svmlight if its first example is, and one of the first has features.

    A bad line further on is for the parser to name.
    """
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
