"""The stream of blocks through checks, scaling, split and shuffle into a data set.

    sources ── checked ── scaled ── split ── shuffled ── written

Everything streams: memory does not grow with the number of examples.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from distdual.config import RETRY_SECONDS, KernelConfig
from distdual.data.data_spec import form_name
from distdual.data.dataset import Dataset, open_dataset
from distdual.data.layout import MAP_TEXT, SCALE
from distdual.data.prepare.appender import Appender
from distdual.data.prepare.destination import found_at
from distdual.data.prepare.shard_cuts import SHARD_BYTES
from distdual.data.prepare.shuffle import BUDGET_BYTES, Shuffler
from distdual.data.prepare.writer import DatasetWriter
from distdual.data.prepare_options import Options, TestMask
from distdual.data.preprocess.draw_map import MapDraw
from distdual.data.preprocess.map_text import StoredMap, map_text
from distdual.data.preprocess.preprocessing import Preprocessing
from distdual.data.preprocess.scale import ColumnSpread, write_factors
from distdual.data.shard import Block
from distdual.data.sources.base import Attached, Opened, Source
from distdual.data.storage.claim import Claim, claimed
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows, Floats

UNFINISHED = "prepare.unfinished"  # exists in DEST while DEST/train and DEST/test are being written


@dataclass(frozen=True, slots=True)
class Summary:
    """A written data set."""

    url: str
    n_examples: int
    n_features: int
    n_shards: int
    labels: tuple[str, ...]
    n_bytes: int  # of all shards in memory


class NamedBlock(NamedTuple):
    """A block and the source it came from, for messages."""

    name: str
    block: Block


def write(opened: Opened, dest: Location, options: Options, like: Preprocessing | None = None) -> tuple[Summary, ...]:
    """Write all examples to `dest`, or to `dest`/train and `dest`/test; if anything fails, all is as it was.

    Features are scaled as `like` says, which is that of another data set, or by their own statistics. No other process
    may write there meanwhile.
    """
    places = [dest / "train", dest / "test"] if options.test_fraction else [dest]
    if not options.append and not (len(places) > 1 and dest.exists(UNFINISHED)):
        for place in places:
            found_at(place, overwrite=options.overwrite)  # what may not be written to is not touched
    with contextlib.ExitStack() as stack:
        claims = [stack.enter_context(claimed(place)) for place in places]
        return write_claimed(opened, dest.patient(RETRY_SECONDS), claims, options, like)


def write_claimed(
    opened: Opened, dest: Location, claims: Sequence[Claim], options: Options, like: Preprocessing | None
) -> tuple[Summary, ...]:
    sources = opened.sources
    there = open_dataset(dest) if options.append else None
    made = like or own_preprocessing(opened, options, str(dest))
    options = mapped_options(options, made, str(dest))
    attached = replace(
        opened.attached, scale=made.scale, texts={**opened.attached.texts, **made.texts}, recipe=made.recipe
    )
    width = Width(raw_width(options, made, there))
    blocks = split_test(converted_blocks(checked_blocks(sources, width), made), options)
    first = next(blocks, None)
    if first is None:
        raise InputError(f"{', '.join(source.name for source in sources)}: there are no examples")
    with open_parts(dest, claims, width, options, attached) as parts:
        for pair in chain([first], blocks):
            for part, block in zip(parts, pair, strict=True):
                part.add(block)
        for part in parts:
            part.check_size(options.test_fraction)
        for part in parts:
            part.finish(width.final(str(dest)) if made.map is None else made.map.feature_map.width)
        return tuple(part.summary() for part in parts)


# --- the stream


def checked_blocks(sources: Sequence[Source], width: "Width") -> Iterator[NamedBlock]:
    """The blocks of all sources in order, which must agree in what they hold; `width` learns how wide they are."""
    before: tuple[str, ...] = ()
    for source in sources:
        width.declare(source.n_features, source.name)
        for block in source.blocks():
            if not block.n_examples:
                continue
            holds = traits_of(block)
            for found, expected in zip(holds, before, strict=False):
                if found != expected:
                    raise InputError(f"{source.name} has {found}, but what came before it has {expected}")
            before = holds
            width.add(block, source.name)
            yield NamedBlock(source.name, block)


def traits_of(block: Block) -> tuple[str, ...]:
    """Properties, in words, that all blocks of a data set must share."""
    if isinstance(block.x, DenseRows):
        features = f"dense rows of {block.x.width} features"
    else:
        features = f"sparse rows with {block.x.indices.dtype} column numbers"
    return (
        features,
        "labels that are text" if block.y.dtype.kind == "U" else "labels that are numbers",
        "no costs" if block.cost is None else "costs",
        "no margins" if block.margin is None else "margins",
        form_name(ragged=block.tokens is not None, structured=block.structured),
        f"the arrays {', '.join(block.runs or ())}",
    )


class Width:
    """Finds the number of features; `wanted` is the n_features option."""

    def __init__(self, wanted: int | None) -> None:
        self.wanted = wanted
        self.found = 0
        self.structured = False  # there are no features

    def declare(self, width: int | None, name: str) -> None:
        if width is not None and self.wanted is not None and width > self.wanted:
            raise InputError(f"{name} has {width} features, more than the n_features of {self.wanted}")
        self.found = max(self.found, width or 0)

    def add(self, block: Block, name: str) -> None:
        width = block.x.width
        self.structured = block.structured
        if width is None:
            self.declare(block.x.n_columns, name)
            return
        if self.wanted not in (None, width):
            raise InputError(f"{name} has dense rows of {width} features, but n_features is {self.wanted}")
        self.found = width

    def final(self, name: str) -> int:
        if not self.found and self.wanted is None and not self.structured:
            raise InputError(f"{name}: no example has any feature; give n_features")
        return self.wanted or self.found


def converted_blocks(blocks: Iterable[NamedBlock], made: Preprocessing) -> Iterator[Block]:
    for name, block in blocks:
        yield made.converted(block, name)


def split_test(blocks: Iterable[Block], options: Options) -> Iterator[tuple[Block, ...]]:
    """Each block as (all,), or as (train, test)."""
    if not options.test_fraction:
        for block in blocks:
            yield (block,)
        return
    test = TestMask(options)
    for block in blocks:
        chosen = test.next(block.n_examples)
        yield block.take(~chosen), block.take(chosen)


def own_preprocessing(opened: Opened, options: Options, name: str) -> Preprocessing:
    """The preprocessing of a new data set, with factors of columns found in the sources if they are not known."""
    attached, texts = opened.attached, dict(opened.attached.texts)
    if options.scale == "unit-variance":
        factors = column_factors(opened.sources, options) if opened.factors is None else opened.factors
        texts[SCALE] = write_factors(factors)
    made = Preprocessing(options.scale, attached.recipe, texts)
    if options.kernel is None:
        return made
    stored = drawn_map(opened.sources, options, options.kernel, made, name)
    return replace(made, texts={**texts, MAP_TEXT: map_text(stored)})


def drawn_map(
    sources: Sequence[Source], options: Options, kernel: KernelConfig, made: Preprocessing, name: str
) -> StoredMap:
    """The map of rows of the training part, scaled; one more pass over the sources."""
    width, draw = Width(options.n_features), MapDraw(kernel, options.shuffle or 0)
    for pair in split_test(converted_blocks(checked_blocks(sources, width), made), options):
        if width.structured:
            raise InputError(f"{name}: structures have no rows of features to map; leave map out")
        draw.add(pair[0].x)
    if not draw.n_rows:
        raise InputError(f"{name}: there are no examples to draw landmarks from")
    return draw.made(width.final(name), name)


def raw_width(options: Options, made: Preprocessing, there: Dataset | None) -> int | None:
    """The features of the sources, where they are known."""
    if made.map is not None:
        return made.map.feature_map.n_inputs
    return options.n_features if there is None else there.n_features


def mapped_options(options: Options, made: Preprocessing, name: str) -> Options:
    """With the number of features that are stored, if that is the one of a map."""
    if made.map is None:
        return options
    takes, width = made.map.feature_map.n_inputs, made.map.feature_map.width
    if options.n_features not in (None, takes):
        raise InputError(f"{name}: n_features is {options.n_features}, but the map takes {takes}")
    return replace(options, n_features=width)


def column_factors(sources: Sequence[Source], options: Options) -> Floats:
    """The standard deviation of each column over the training part."""
    spread = ColumnSpread()
    for pair in split_test((block for _, block in checked_blocks(sources, Width(options.n_features))), options):
        spread.add(pair[0].x)
    return spread.factors()


# --- where it goes


class Output:
    """One of the data sets that are being written, and the shuffle before it."""

    def __init__(self, writer: DatasetWriter, shuffler: Shuffler | None) -> None:
        self.writer = writer
        self.shuffler = shuffler
        self.n_examples = 0

    def add(self, block: Block) -> None:
        self.n_examples += block.n_examples
        if self.shuffler is None:
            self.writer.append(block)
        else:
            self.shuffler.add(block)

    def check_size(self, test_fraction: float) -> None:
        if not self.n_examples:
            raise InputError(f"{self.writer.location}: no example is left for it at a test_fraction of {test_fraction}")

    def finish(self, n_features: int) -> None:
        if self.shuffler is not None:
            for block in self.shuffler.drain():
                self.writer.append(block)
        self.writer.n_features = n_features
        self.writer.finish()

    def summary(self) -> Summary:
        return summary_of(self.writer.location)


def summary_of(location: Location) -> Summary:
    found = open_dataset(location)
    return Summary(str(location), found.n_examples, found.n_features, found.n_shards, found.classes, found.nbytes)


@contextlib.contextmanager
def open_parts(
    dest: Location, claims: Sequence[Claim], width: Width, options: Options, attached: Attached
) -> Iterator[list[Output]]:
    """One part, or train and test; what was written is deleted if the body fails."""
    several = len(claims) > 1
    with contextlib.ExitStack() as stack:
        if several:
            clear_interrupted(dest, claims)
            stack.callback(dest.remove_file, UNFINISHED)
        writers = [stack.enter_context(new_writer(claim, width, options, attached)) for claim in claims]
        for writer in writers:
            writer.codes = writers[0].codes  # a label has the same code in both
        if several and not any(writer.replaces for writer in writers):
            dest.write(UNFINISHED, b"")
        yield [Output(writer, new_shuffler(k, len(writers), options, stack)) for k, writer in enumerate(writers)]


def clear_interrupted(dest: Location, claims: Sequence[Claim]) -> None:
    """Of two new data sets that belong together an interrupted run may have finished one; take it away."""
    if dest.exists("zarr.json"):
        raise InputError(f"{dest}: holds a data set; choose another place for {dest}/train and {dest}/test")
    if dest.exists(UNFINISHED):
        for claim in claims:
            claim.location.clear()
        dest.remove_file(UNFINISHED)


def new_writer(claim: Claim, width: Width, options: Options, attached: Attached) -> DatasetWriter:
    place = claim.location.patient(RETRY_SECONDS)
    if options.append:
        return Appender(place, options.kind, n_features=options.n_features, claim=claim)
    huge = width.found if width.found > 2**31 else None  # column numbers need 64 bits: the writer must know at once
    return DatasetWriter(
        place,
        options.kind,
        shard_bytes=options.shard_bytes or SHARD_BYTES,
        n_features=options.n_features or huge,
        compress=options.compress,
        overwrite=options.overwrite,
        attached=attached,
        unlabelled=options.unlabelled,
        claim=claim,
    )


def new_shuffler(k: int, n: int, options: Options, stack: contextlib.ExitStack) -> Shuffler | None:
    if options.shuffle is None:
        return None
    seed = np.random.SeedSequence([options.shuffle, 2 + k])
    return stack.enter_context(Shuffler(seed, BUDGET_BYTES // n))
