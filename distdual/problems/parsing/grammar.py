"""The grammar: its symbols and rules, and trees encoded as a few whole numbers.

A tree is binarised: where a node has more than two children, all but the first (or, to the left, all but the last)
move below an *inner* node, and so on. An inner symbol names the label of the node and the labels of the children that
come next, all of them or, with a Markov order h, the first h of them. It counts nowhere but in the rules: reading a
derivation back leaves it out, so that binarising and reading back is the identity.

A *chain* is a whole run of unary steps, S → VP → VB say, down to a node with several children or to a tag. Each chain
that the training trees show is one rule, and a derivation has at most one chain between two binary rules. So there
are no cycles, and the best derivation is exact.

A derivation is written as numbers in the order in which its nodes are met from the top, left child before right:

    root    which symbol is at the top                first
    chain   its steps                                 where there is one
    binary  which rule, then both children
    tag     of one word

The tags of a word are those that its feature was seen with.

Numbers run through binary rules, chains, roots and tags, in this order; a grammar of the same rules has the same
numbers. A tree that the grammar does not know is written as −1 and then label, begin and end of each of its phrases,
which is what a score needs.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from distdual.data.dataset import natural
from distdual.errors import InputError
from distdual.json_floats import parsed_json
from distdual.kernels.rows import Int32s
from distdual.problems.parsing.brackets import Tree

UNKNOWN_TAG = "-UNKNOWN-"  # the tag, or the label, of what the grammar does not know; no rule names it
OUTSIDE = -1  # the first number of a tree that the grammar does not know
GRAMMAR_FORMAT = 1

SYMBOL_KINDS = ("tag", "phrase", "inner")

Symbol = tuple[str, str]  # one of KINDS, and a name
UnaryChain = tuple[int, ...]  # symbols from the top to the bottom
Span = tuple[int, int, int]  # label, begin, end


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Options for reading trees; training and test data use the same."""

    binarise: str = "right"
    """"right" or "left": which children move below an inner node."""

    markov_order: int | None = 2
    """How many labels an inner symbol remembers; None for all."""

    function_tags: bool = False
    """Keep function tags: NP-SBJ is not NP."""

    traces: bool = False
    """Keep traces: the words of -NONE-."""

    min_count: int = 2
    """Rarer words are known by their shape alone."""

    def __post_init__(self) -> None:
        if self.binarise not in ("right", "left"):
            raise InputError(f"binarise must be one of right, left, got {self.binarise!r}")
        if self.markov_order is not None and self.markov_order < 0:
            raise InputError(f"markov_order must be 0 or more, got {self.markov_order}")
        if self.min_count < 1:
            raise InputError(f"min_count must be 1 or more, got {self.min_count}")


@dataclass(frozen=True)
class Grammar:
    """Symbols are numbered through tags, phrases and inner symbols. Rules are sorted and named once."""

    reading: Reading
    tags: tuple[str, ...]  # in the order of a data set's classes, UNKNOWN among them
    phrases: tuple[str, ...]
    inner: tuple[str, ...]
    binary: tuple[tuple[int, int, int], ...]  # left, right, parent
    chains: tuple[UnaryChain, ...]
    roots: tuple[int, ...]
    lexicon: tuple[
        tuple[int, int], ...
    ] = ()  # feature and tag that were seen together; if none, all tags fit all words

    @property
    def n_labels(self) -> int:
        """The number of symbols that are not inner."""
        return len(self.tags) + len(self.phrases)

    @property
    def n_symbols(self) -> int:
        return self.n_labels + len(self.inner)

    @property
    def n_rules(self) -> int:
        """Without tags: the number of the first tag."""
        return len(self.binary) + len(self.chains) + len(self.roots)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return self.tags + self.phrases + self.inner

    @cached_property
    def number_of(self) -> dict[Symbol, int]:
        kinds = (("tag", self.tags), ("phrase", self.phrases), ("inner", self.inner))
        return {symbol: k for k, symbol in enumerate((kind, name) for kind, names in kinds for name in names)}

    @cached_property
    def code_of(self) -> dict[tuple[Any, ...], int]:
        """The number of each rule, and of each tag."""
        chains, roots = (("chain", *rule) for rule in self.chains), (("root", symbol) for symbol in self.roots)
        rules = [*(("binary", *rule) for rule in self.binary), *chains, *roots]
        return {rule: k for k, rule in enumerate([*rules, *(("tag", k) for k in range(len(self.tags)))])}

    # --- as text

    def to_text(self) -> str:
        """JSON of how trees are read, then a line for each symbol and each rule."""
        lines = [json.dumps({"format": GRAMMAR_FORMAT, **asdict(self.reading)})]
        for kind, names in (("tag", self.tags), ("phrase", self.phrases), ("inner", self.inner)):
            lines += [f"{kind} {name}" for name in names]
        rules_of = {"binary": self.binary, "chain": self.chains, "root": [(r,) for r in self.roots]}
        for kind, rules in {**rules_of, "word": self.lexicon}.items():
            lines += [f"{kind} {' '.join(map(str, rule))}" for rule in rules]
        return "\n".join(lines) + "\n"

    # --- from trees to numbers

    def encode(self, tree: Tree) -> Int32s:
        """The derivation of a tree, or its phrases where the grammar does not know it."""
        try:
            codes = [
                self.code_of[role, *map(self.number_of.__getitem__, symbols)]
                for role, *symbols in steps(tree, self.reading)
            ]
        except KeyError:
            codes = [OUTSIDE, *(number for span in self.spans(tree) for number in span)]
        return np.array(codes, dtype=np.int32)

    def spans(self, tree: Tree) -> Iterator[Span]:
        """Label, begin and end of every phrase; tags are no phrases."""
        unknown, at = self.number_of["tag", UNKNOWN_TAG], 0

        def walk(node: Tree, begin: int) -> Iterator[Span]:
            nonlocal at
            if not node.children:
                at += 1
                return
            inside = [span for child in node.children for span in walk(child, at)]
            yield self.number_of.get(("phrase", node.label), unknown), begin, at
            yield from inside

        yield from walk(tree, 0)

    # --- from numbers to trees

    def decode(self, codes: Sequence[int], words: Sequence[str]) -> Tree:
        """The tree of a derivation; without one (OUTSIDE), all words below one node of no known label."""
        if codes[0] == OUTSIDE:
            return Tree(UNKNOWN_TAG, tuple(Tree(UNKNOWN_TAG, word) for word in words))
        done: list[
            tuple[Tree, ...]
        ] = []  # of what is below, the leftmost last: a node, or what an inner node stands for
        rest = list(words)
        for code in reversed(codes[1:]):
            if code >= self.n_rules:
                done.append((Tree(self.tags[code - self.n_rules], rest.pop()),))
            elif code >= len(self.binary):
                for symbol in reversed(self.chains[code - len(self.binary)][:-1]):
                    done[-1] = (Tree(self.names[symbol], done[-1]),)
            else:
                children, parent = done.pop() + done.pop(), self.binary[code][2]
                done.append((Tree(self.names[parent], children),) if parent < self.n_labels else children)
        ((tree,),) = done
        return tree


# --- binarising


class Cut(NamedTuple):
    """A node, possibly an inner one, and its remaining children."""

    label: str
    symbol: Symbol
    children: tuple[Tree, ...]


def steps(tree: Tree, reading: Reading) -> Iterator[tuple[Any, ...]]:
    """The derivation of a tree: the role of each step, then its symbols; of a binary rule left, right, parent."""
    yield "root", symbol_of(tree)
    pending: list[Tree | Cut] = [tree]
    while pending:
        item = pending.pop()
        if isinstance(item, Tree):
            chain = chain_of(item)
            if len(chain) > 1:
                yield "chain", *map(symbol_of, chain)
            if not chain[-1].children:
                yield "tag", symbol_of(chain[-1])
                continue
            item = Cut(chain[-1].label, symbol_of(chain[-1]), chain[-1].children)
        pair = cut_off(item, reading)
        yield "binary", *(part.symbol if isinstance(part, Cut) else symbol_of(part) for part in pair), item.symbol
        pending += reversed(pair)


def cut_off(item: Cut, reading: Reading) -> list[Tree | Cut]:
    """Both sides of the binary rule at a node: a child, and the other one or an inner node that holds the others."""
    right = reading.binarise == "right"
    alone, rest = (item.children[0], item.children[1:]) if right else (item.children[-1], item.children[:-1])
    inner = Cut(item.label, ("inner", inner_name(item.label, rest, reading)), rest)
    pair: list[Tree | Cut] = [alone, rest[0] if len(rest) == 1 else inner]
    return pair if right else pair[::-1]


def symbol_of(tree: Tree) -> Symbol:
    return "phrase" if tree.children else "tag", tree.label


def chain_of(tree: Tree) -> list[Tree]:
    """The nodes from this one down to the first that is a tag or has several children."""
    chain = [tree]
    while len(chain[-1].children) == 1:
        chain.append(chain[-1].children[0])
    return chain


def inner_name(label: str, rest: Sequence[Tree], reading: Reading) -> str:
    """An inner symbol: the label it was cut off from, and what comes next below it. A word cannot hold a bracket."""
    # A tag and a phrase of one name are different symbols, so they are spelt differently.
    names = [child.label if child.children else f"'{child.label}" for child in rest]
    names = names if reading.binarise == "right" else names[::-1]
    return f"{label}({','.join(names[: reading.markov_order])})"


class GrammarBuilder:
    """Collects the symbols and the rules of training trees."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.symbols: set[Symbol] = {("tag", UNKNOWN_TAG)}
        self.rules: set[tuple[Any, ...]] = set()

    def add(self, tree: Tree) -> None:
        for step in steps(tree, self.reading):
            self.rules.add(step)
            self.symbols.update(step[1:])

    def finish(self) -> Grammar:
        names = {kind: [name for its, name in self.symbols if its == kind] for kind in SYMBOL_KINDS}
        names = {kind: sorted(found, key=natural if kind == "tag" else None) for kind, found in names.items()}
        number = {symbol: k for k, symbol in enumerate((kind, name) for kind in SYMBOL_KINDS for name in names[kind])}
        rules: dict[str, list[tuple[int, ...]]] = {"binary": [], "chain": [], "root": [], "tag": [], "word": []}
        for role, *symbols in self.rules:
            rules[role].append(tuple(number[symbol] for symbol in symbols))
        return grammar_of(self.reading, names, rules)


def grammar_of(
    reading: Reading, names: Mapping[str, Sequence[str]], rules: Mapping[str, Sequence[tuple[int, ...]]]
) -> Grammar:
    return Grammar(
        reading,
        tuple(names["tag"]),
        tuple(names["phrase"]),
        tuple(names["inner"]),
        tuple(sorted((left, right, parent) for left, right, parent in rules["binary"])),
        tuple(sorted(rules["chain"])),
        tuple(sorted(symbol for (symbol,) in rules["root"])),
        tuple(sorted((feature, tag) for feature, tag in rules["word"])),
    )


@lru_cache(maxsize=4)
def read_grammar(text: str) -> Grammar:
    """The grammar that `to_text` wrote; one that no training trees can have given is refused, as kernels trust it."""
    try:
        first, *lines = text.splitlines()
        told = parsed_json(first)
        if told.pop("format") != GRAMMAR_FORMAT:
            raise InputError(f"the grammar is not of format {GRAMMAR_FORMAT}, the one this version reads")
        names: dict[str, list[str]] = {"tag": [], "phrase": [], "inner": []}
        rules: dict[str, list[tuple[int, ...]]] = {"binary": [], "chain": [], "root": [], "word": []}
        for line in lines:
            kind, _, rest = line.partition(" ")
            if kind in names:
                names[kind].append(rest)
            else:
                rules[kind].append(tuple(map(int, rest.split())))
        grammar = grammar_of(Reading(**told), names, rules)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise error if isinstance(error, InputError) else InputError(f"the grammar is damaged: {error}") from None
    check_grammar(grammar, text)
    return grammar


def check_grammar(grammar: Grammar, text: str) -> None:
    n_tags, n_labels, n_symbols = len(grammar.tags), grammar.n_labels, grammar.n_symbols
    good = (
        grammar.to_text() == text  # sorted, and in its one spelling
        and all(len(set(names)) == len(names) for names in (grammar.tags, grammar.phrases, grammar.inner))
        and all(
            len(set(rules)) == len(rules) for rules in (grammar.binary, grammar.chains, grammar.roots, grammar.lexicon)
        )
        and UNKNOWN_TAG in grammar.tags
        and list(grammar.tags) == sorted(grammar.tags, key=natural)
        and all(0 <= a < n_symbols and 0 <= b < n_symbols and n_tags <= p < n_symbols for a, b, p in grammar.binary)
        and all(len(c) > 1 and min(c) >= 0 and max(c) < n_labels for c in grammar.chains)
        and all(min(c[:-1]) >= n_tags for c in grammar.chains)
        and all(0 <= symbol < n_labels for symbol in grammar.roots)
        and bool(grammar.roots)
        and all(feature >= 0 and 0 <= tag < n_tags for feature, tag in grammar.lexicon)
    )
    if not good:
        raise InputError("the grammar is damaged: its symbols and rules do not fit together")
