"""Data sets of trees: grammar, vocabulary, and blocks of sentences with their derivations.

The trees for training are read once to collect the grammar and the vocabulary, and once more to be written; a data
set for testing takes both from the one for training. A sentence is a sequence: a word is a token with one feature,
which is the word itself or, if that is rare, its shape, and with its tag as y. Two columns of runs go with it: `tree`,
the derivation as grammar.py writes it, and `text`, the words as they stood in the source.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any

import numpy as np

from distdual.data.data_spec import OwnFormat
from distdual.data.dataset import open_dataset
from distdual.data.layout import VOCABULARY
from distdual.data.prepare_options import Options, TestMask
from distdual.data.shard import Block, Runs
from distdual.data.sources.base import Attached, Opened, Source
from distdual.data.sources.open_file import BLOCK_BYTES
from distdual.data.sources.vocabulary import Vocabulary
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows
from distdual.problems.parsing.brackets import Tree, bracket_lines, cleaned, decoded, trees_of
from distdual.problems.parsing.grammar import UNKNOWN_TAG, Grammar, GrammarBuilder, Reading, read_grammar

BLOCK_TREES = 1000
SUFFIX = 2  # letters that the shape of a word ends with


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOptions:
    """Options of `prepare` for trees; None means the default, or that of the grammar."""

    max_length: int | None = None
    """Leave out sentences of more words."""

    grammar: Location | None = None
    """A data set whose grammar and vocabulary to use: for test data, that of the training data."""

    binarise: str | None = None
    markov_order: int | str | None = None
    function_tags: bool | None = None
    traces: bool | None = None
    min_count: int | None = None

    def reading(self) -> Reading:
        """How to read trees where no grammar is given."""
        names = [field.name for field in fields(Reading)]
        told: dict[str, Any] = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        order = told.get("markov_order")
        if isinstance(order, str):
            if order != "all" and not order.isdigit():
                raise InputError(f"markov_order must be a number or 'all', got {order!r}")
            told["markov_order"] = None if order == "all" else int(order)
        if self.grammar is not None and told:
            raise InputError(f"{', '.join(told)}: the grammar of {self.grammar} decides this already; leave it out")
        if self.max_length is not None and self.max_length < 1:
            raise InputError(f"max_length must be 1 or more, got {self.max_length}")
        return Reading(**told)


def open_treebank(files: Sequence[Location], told: TreeOptions, options: Options) -> Opened:
    """Sources of sentences, once the grammar and the vocabulary are known."""
    if options.scale != "none":
        raise InputError(f"scale {options.scale!r} does not apply to words; leave it out")
    if options.n_features is not None:
        raise InputError("n_features does not apply to words: the vocabulary decides; leave it out")
    reading = told.reading()
    if told.grammar is None:
        grammar, vocabulary = collect(files, reading, told.max_length, options)
    else:
        grammar, vocabulary = stored(told.grammar)
    features = {word: k for k, word in enumerate(vocabulary)}

    def source(file: Location) -> Source:
        def blocks() -> Iterator[Block]:
            return blocks_from_trees(read_trees(file, grammar.reading, told.max_length), grammar, features)

        return Source(str(file), blocks, len(vocabulary))

    texts = {"grammar": grammar.to_text(), VOCABULARY: Vocabulary(vocabulary).to_text()}
    return Opened([source(file) for file in files], Attached(texts=texts, labels=grammar.tags))


SAMPLE_TREES = """\
(S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat)) (PP (IN with) (NP (DT the) (NN bird)))))
(S (NP (DT a) (NN bird)) (VP (VBZ sees) (NP (NP (DT the) (NN dog)) (PP (IN with) (NP (DT a) (NN cat))))))
(S (NP (PRP it)) (VP (VBZ sleeps)))
"""


def stored(location: Location) -> tuple[Grammar, list[str]]:
    """The grammar and the vocabulary of a data set."""
    texts = open_dataset(location).texts
    if not {"grammar", VOCABULARY} <= set(texts):
        raise InputError(f"{location}: the data set holds no grammar; name one that was prepared with --problem cfg")
    return read_grammar(texts["grammar"]), Vocabulary.from_text(texts[VOCABULARY]).names


def read_trees(file: Location, reading: Reading, max_length: int | None) -> Iterator[tuple[str, Tree]]:
    """The trees of a file, cleaned, and where each ends; without those of nothing but traces or of too many words."""
    for line, tree in trees_of(file):
        found = cleaned(tree, function_tags=reading.function_tags, traces=reading.traces)
        if found is not None and (max_length is None or sum(1 for _ in found.leaves()) <= max_length):
            yield f"{file}, line {line}", found


def collect(
    files: Sequence[Location], reading: Reading, max_length: int | None, options: Options
) -> tuple[Grammar, list[str]]:
    """The grammar and the vocabulary of the training part."""
    builder, seen = GrammarBuilder(reading), Counter[tuple[str, str]]()
    test = TestMask(options)
    for file in files:
        for where, tree in read_trees(file, reading, max_length):
            if not test.next(1)[0]:
                check_symbols(tree, where)
                builder.add(tree)
                seen.update((str(leaf.below), leaf.label) for leaf in tree.leaves())
    if not seen:
        raise InputError(f"{', '.join(map(str, files))}: there are no trees to read a grammar from")
    words = Counter[str]()
    for (word, _), count in seen.items():
        words[word] += count
    vocabulary, grammar = vocabulary_of(words, reading.min_count), builder.finish()
    features = {word: k for k, word in enumerate(vocabulary)}
    found = {(feature_of(word, features), grammar.number_of["tag", tag]) for word, tag in seen}
    lexicon = sorted((feature, tag) for feature, tag in found if feature is not None)
    return replace(grammar, lexicon=tuple(lexicon)), vocabulary


def check_symbols(tree: Tree, where: str) -> None:
    if tree.label == UNKNOWN_TAG:
        raise InputError(f"{where}: the label {UNKNOWN_TAG} stands for labels missing from a grammar; rename it")
    for child in tree.children:
        check_symbols(child, where)


# --- words


def vocabulary_of(words: Counter[str], min_count: int) -> list[str]:
    """Words that are frequent enough, then the shapes of the others: with their last letters if these are, too."""
    rare = {word: count for word, count in words.items() if count < min_count}
    shapes, plain = Counter[str](), set()
    for word, count in rare.items():
        shapes[word_shape(word, SUFFIX)] += count
    for word in rare:
        if shapes[word_shape(word, SUFFIX)] < min_count:
            plain.add(word_shape(word))
    frequent = {found for found, count in shapes.items() if count >= min_count}
    return sorted(set(words) - set(rare)) + sorted(frequent | plain)


def word_shape(word: str, suffix: int = 0) -> str:
    """The shape of a word: capitals, small letters, digits, hyphens, other characters; then its suffix.

    A bracket cannot be in a word, so no word is a shape.
    """
    signs = "".join(
        sign
        for sign, there in (
            ("A" if word.isupper() else "Aa" if word[:1].isupper() else "a", any(map(str.isalpha, word))),
            ("0", any(map(str.isdigit, word))),
            ("-", "-" in word),
            (".", any(not c.isalnum() and c != "-" for c in word)),
        )
        if there
    )
    ending = word[-suffix:].lower() if suffix and len(word) > suffix and word[-suffix:].isalpha() else ""
    return f"({signs} {ending})" if ending else f"({signs})"


def feature_of(word: str, features: dict[str, int]) -> int | None:
    """The number of the word, else of its shape with and without its last letters; None if none is known."""
    for name in (word, word_shape(word, SUFFIX), word_shape(word)):
        if name in features:
            return features[name]
    return None


# --- blocks


def blocks_from_trees(trees: Iterator[tuple[str, Tree]], grammar: Grammar, features: dict[str, int]) -> Iterator[Block]:
    while some := [tree for _, tree in islice(trees, BLOCK_TREES)]:
        yield block_of(some, grammar, features)


def blocks_from_sentences(file: Location, texts: Mapping[str, str]) -> Iterator[Block]:
    """Sentences to parse: one a line, with blanks between words; y is 0."""
    features = {word: k for k, word in enumerate(Vocabulary.from_text(texts[VOCABULARY]).names)}
    sentences = sentences_from(file)
    while some := list(islice(sentences, BLOCK_TREES)):
        x, runs = rows_of_words(some, features)
        yield Block(x, np.zeros(x.n_rows, dtype=np.int32), tokens=offsets_of(list(map(len, some))), runs=runs)


def sentences_from(file: Location) -> Iterator[list[str]]:
    for number, line in enumerate(bracket_lines(file, BLOCK_BYTES), start=1):
        words = decoded(line, str(file), number).split()
        if any("(" in word or ")" in word for word in words):
            raise InputError(
                f"{file}, line {number}: a bracket in a sentence; write -LRB- and -RRB-, "
                "and of trees prepare a data set, --like the model"
            )
        if words:
            yield words


def rows_of_words(sentences: Sequence[Sequence[str]], features: dict[str, int]) -> tuple[CsrRows, dict[str, Runs]]:
    """The feature of each word, and the words as text."""
    found = [feature_of(word, features) for words in sentences for word in words]
    indptr = np.concatenate([[0], np.cumsum([number is not None for number in found])])
    indices = np.array([number for number in found if number is not None], dtype=np.int32)
    texts = [np.frombuffer(" ".join(words).encode(), dtype=np.uint8) for words in sentences]
    x = CsrRows(indptr.astype(np.int64), indices, np.ones(len(indices), dtype=np.float32))
    return x, {"text": as_runs(texts)}


def block_of(trees: Sequence[Tree], grammar: Grammar, features: dict[str, int]) -> Block:
    leaves = [list(tree.leaves()) for tree in trees]
    x, runs = rows_of_words([[str(leaf.below) for leaf in words] for words in leaves], features)
    tags = [
        leaf.label if ("tag", leaf.label) in grammar.number_of else UNKNOWN_TAG for words in leaves for leaf in words
    ]
    runs = {"tree": as_runs([grammar.encode(tree) for tree in trees]), **runs}
    return Block(x, np.array(tags), tokens=offsets_of([len(words) for words in leaves]), runs=runs)


def as_runs(parts: Sequence[Any]) -> Runs:
    return Runs(offsets_of([len(part) for part in parts]), np.concatenate(parts))


def offsets_of(lengths: Sequence[int]) -> Any:
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))])


BRACKETED = OwnFormat(
    name="brackets",
    holds="trees",
    options=TreeOptions,
    inherited="grammar",
    open=open_treebank,
    plain=blocks_from_sentences,
    example=SAMPLE_TREES,
)
