"""Blocks of sequences from text in columns: one token a line, a blank line after each sentence.

Columns are separated by tabs where a line has any, else by white space. Every line of a file has as many as its first.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from distdual.data.dataset import Dataset, open_dataset
from distdual.data.layout import VOCABULARY
from distdual.data.preprocess.stored import Like
from distdual.data.shard import Block
from distdual.data.sources.base import Attached, Opened, Source
from distdual.data.sources.svmlight import whole_lines
from distdual.data.sources.templates import Templates, templates_from
from distdual.data.sources.token_features import Sentences, found_features
from distdual.data.sources.vocabulary import Hashing, Numbering, Vocabulary, count_features, indicator_rows
from distdual.data.storage.location import Location
from distdual.errors import InputError

TEXT_BYTES = 1 << 20  # of text at a time: its features are some twenty times as large
MAX_TOKENS = 100_000  # tokens of a sentence; text without blank lines is not read whole before it is refused
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
TAG_COLUMN = ""  # what the column of the tag is called beside those that templates name


def text_from(
    files: Sequence[Location], templates: Mapping[str, Any] | str | Path | None, vocabulary: Location | None
) -> Opened:
    """Features by `templates`, numbered over all of `files`; or features, numbers and tags of a data set."""
    if (templates is None) == (vocabulary is None):
        raise InputError(
            "conll text needs either templates, to begin a vocabulary, or vocabulary: a data set whose own are used"
        )
    if vocabulary is not None:
        dataset = open_dataset(vocabulary)
        made = made_with(dataset)
        return text_of(files, made, stored_numbering(dataset, made), dataset.layout.labels)
    assert templates is not None
    made = templates_from(templates)
    return text_of(files, made, new_numbering(files, made), ())


def text_like(
    files: Sequence[Location], like: Like, templates: Mapping[str, Any] | str | Path | None, vocabulary: Any
) -> Opened:
    """Features, numbers and tags of the data set or the model that is to be matched."""
    if templates is not None or vocabulary is not None:
        raise InputError(f"{like.name} decides templates and vocabulary; leave these out")
    if not like.preprocessing.recipe:
        raise InputError(f"{like.name}: was not made from conll text, so it has no vocabulary and no templates")
    made = templates_from(like.preprocessing.recipe)
    if made.hash_bits is not None:
        return text_of(files, made, Hashing(made.hash_bits), like.labels)
    return text_of(files, made, Vocabulary.from_text(like.preprocessing.texts[VOCABULARY]), like.labels)


def text_of(files: Sequence[Location], made: Templates, numbering: Numbering, labels: tuple[str, ...]) -> Opened:
    texts = {} if isinstance(numbering, Hashing) else {VOCABULARY: numbering.to_text()}
    sources = [
        Source(str(file), lambda file=file: blocks_from_conll(file, made, numbering), numbering.n_features)  # type: ignore[misc]
        for file in files
    ]
    return Opened(sources, Attached(made.describe(), texts, labels))


def new_numbering(files: Sequence[Location], made: Templates) -> Numbering:
    """One pass over the text; none for hashing."""
    if made.hash_bits is not None:
        return Hashing(made.hash_bits)
    sentences = chain.from_iterable(sentences_of(file, made) for file in files)
    found = chain.from_iterable(found_features(some, made.expanded) for some in sentences)
    return count_features(found, made.min_count)


def text_to_predict(
    files: Sequence[Location], recipe: Mapping[str, Any], texts: Mapping[str, str]
) -> list[tuple[Source, bool]]:
    """The source of each file, by the templates and the vocabulary of a model, and whether it has tags."""
    made = templates_from(recipe)
    numbering = Hashing(made.hash_bits) if made.hash_bits is not None else Vocabulary.from_text(texts[VOCABULARY])

    def source(file: Location, tagged: bool) -> Source:
        return Source(str(file), lambda: blocks_from_conll(file, made, numbering, tagged=tagged), numbering.n_features)

    return [(source(file, tagged), tagged) for file in files for tagged in (has_tags(file, made),)]


def made_with(dataset: Dataset) -> Templates:
    """The templates that a data set was made with."""
    if not dataset.layout.recipe:
        raise InputError(f"{dataset.location}: was not made from conll text, so it has no vocabulary and no templates")
    return templates_from(dataset.layout.recipe)


def stored_numbering(dataset: Dataset, made: Templates) -> Numbering:
    if made.hash_bits is not None:
        return Hashing(made.hash_bits)
    return Vocabulary.from_text(dataset.texts[VOCABULARY])


def blocks_from_conll(
    source: Location, made: Templates, numbering: Numbering, block_bytes: int = TEXT_BYTES, *, tagged: bool = True
) -> Iterator[Block]:
    """The sentences of a text file, plain or compressed, local or remote; y is 0 for text that is not `tagged`."""
    for some in sentences_of(source, made, block_bytes, tagged=tagged):
        x = indicator_rows(found_features(some, made.expanded), numbering)
        tags = [tag.decode() for tag in some.columns[TAG_COLUMN]] if tagged else np.zeros(x.n_rows, dtype=np.int32)
        yield Block(x, np.array(tags), tokens=some.tokens)


def has_tags(source: Location, made: Templates) -> bool:
    """Whether a file has a column for tags, beside those that templates name; its first token tells."""
    for _, text in whole_lines(source, TEXT_BYTES):
        for line in text.split(b"\n"):
            fields = split_columns(line)
            if fields and not (made.conllu and fields[0].startswith(b"#")):
                wide = len(fields) > max(made.columns.values())
                return wide if made.tag is None else len(fields) >= made.tag
    return False


def sentences_of(
    source: Location, made: Templates, block_bytes: int = TEXT_BYTES, *, tagged: bool = True
) -> Iterator[Sentences]:
    """Whole sentences, about `block_bytes` of text at a time."""
    reader = Reader(str(source), made, tagged=tagged)
    for first_line, text in whole_lines(source, block_bytes):
        reader.read(text, first_line)
        if len(reader.bounds) > 1:
            yield reader.take()
    reader.end_sentence()
    if len(reader.bounds) > 1:
        yield reader.take()


class Reader:
    """The tokens that were read and not yet taken."""

    def __init__(self, name: str, made: Templates, *, tagged: bool = True) -> None:
        self.name = name
        self.made = made
        self.tagged = tagged
        self.first: list[bytes] = []  # the first line
        self.rows: list[list[bytes]] = []
        self.bounds = [0]  # where sentences begin in `rows`, and the end of the last whole one

    def read(self, text: bytes, first_line: int) -> None:
        """Take whole lines in."""
        if first_line == 1:
            text = text.removeprefix(BYTE_ORDER_MARK)
        self._check_encoding(text, first_line)
        for number, line in enumerate(text[:-1].split(b"\n"), first_line):
            fields = split_columns(line)
            if not fields:
                self.end_sentence()
            elif not self.made.conllu or self._is_token(fields, number):
                if len(fields) != len(self.first):
                    self._check_width(fields, number)
                if b"" in fields:
                    raise InputError(f"{self.name}, line {number}: column {fields.index(b'') + 1} is empty")
                self.rows.append(fields)
        if len(self.rows) - self.bounds[-1] > MAX_TOKENS:
            raise InputError(
                f"{self.name}, line {first_line}: a sentence of more than {MAX_TOKENS:,} tokens; "
                "expected a blank line after each sentence"
            )

    def end_sentence(self) -> None:
        if len(self.rows) > self.bounds[-1]:
            self.bounds.append(len(self.rows))

    def take(self) -> Sentences:
        """All whole sentences; what is read of the next one stays."""
        end = self.bounds[-1]
        whole, tokens = self.rows[:end], np.array(self.bounds, dtype=np.int64)
        self.rows, self.bounds = self.rows[end:], [0]
        places = {name: number - 1 for name, number in self.made.columns.items()}
        if self.tagged:
            places[TAG_COLUMN] = (self.made.tag or 0) - 1
        return Sentences({name: [row[at] for row in whole] for name, at in places.items()}, tokens)

    def _check_encoding(self, text: bytes, first_line: int) -> None:
        try:
            text.decode()
        except UnicodeDecodeError as error:
            line = first_line + text.count(b"\n", 0, error.start)
            raise InputError(f"{self.name}, line {line}: not UTF-8 text") from None

    def _is_token(self, fields: list[bytes], number: int) -> bool:
        """Whether a line of CoNLL-U is a token: no comment, no word of several tokens, no empty one."""
        if fields[0].startswith(b"#"):
            return False
        if not fields[0].replace(b"-", b"").replace(b".", b"").isdigit():
            found = fields[0].decode()
            raise InputError(f"{self.name}, line {number}: expected the number of a token, found {found!r}")
        return fields[0].isdigit()

    def _check_width(self, fields: list[bytes], number: int) -> None:
        """Fix the number of columns by the first line; refuse a line with another."""
        if self.first:
            comment = b"#" in (self.first[0][:1], fields[0][:1])
            hint = "; if this is CoNLL-U, say conllu = true" if comment else ""
            raise InputError(
                f"{self.name}, line {number}: {len(fields)} columns, "
                f"but the lines before it have {len(self.first)}{hint}"
            )
        wanted = {**self.made.columns, **({"tag": self.made.tag or 2} if self.tagged else {})}
        for name, column in wanted.items():
            if column > len(fields):
                raise InputError(
                    f"{self.name}, line {number}: {len(fields)} columns, but {name} is given as column {column}"
                )
        if self.tagged and self.made.tag is None:
            self._check_last(len(fields))
        self.first = fields

    def _check_last(self, last: int) -> None:
        looked_at = {term.column for template in self.made.expanded for term in template}
        for name in looked_at:
            if self.made.columns[name] == last:
                raise InputError(
                    f"{self.name}: templates look at {name}, column {last}, which as the last holds the tag; "
                    "give tag, the number of its column"
                )


def split_columns(line: bytes) -> list[bytes]:
    if b"\t" not in line or line.isspace():
        return line.split()
    return line.strip(b"\r\n").split(b"\t")
