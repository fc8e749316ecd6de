"""Trees from bracketed text.

    (S (NP (DT the) (NN dog)) (VP (VBZ barks)))

A tree may stand on a line or take several, as in the Penn Treebank's .mrg files, where one more bracket without a
label is around each. A pre-terminal is `(tag word)`; every other node holds nodes.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, Union

from distdual.data.sources.open_file import BLOCK_BYTES, read_pieces
from distdual.data.storage.location import Location
from distdual.errors import InputError

TRACE = "-NONE-"
DEEPEST = 200  # nodes from the root to a word; trees are walked by functions that call themselves
TOKEN = re.compile(r"[()]|[^\s()]+")


class Tree(NamedTuple):
    label: str
    below: Union[str, tuple["Tree", ...]]  # the word of a pre-terminal, or its children  # noqa: UP007

    @property
    def children(self) -> tuple["Tree", ...]:
        """None for a pre-terminal."""
        return () if isinstance(self.below, str) else self.below

    def leaves(self) -> Iterator["Tree"]:
        """The pre-terminals, from left to right."""
        if isinstance(self.below, str):
            yield self
        for child in self.children:
            yield from child.leaves()

    def __str__(self) -> str:
        return f"({self.label} {self.below if isinstance(self.below, str) else ' '.join(map(str, self.below))})"


class Node(NamedTuple):
    """A bracket that is still open."""

    label: str | None  # None until it is read
    words: list[str]
    children: list[Tree]
    line: int


def trees_of(source: Location, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, Tree]]:
    """Every tree of a file, plain or compressed, local or remote, and the line it begins on."""
    name, stack = str(source), list[Node]()
    number = 0
    for number, line in enumerate(bracket_lines(source, block_bytes), start=1):
        for match in TOKEN.finditer(decoded(line, name, number)):
            token = match[0]
            if token == "(":
                if len(stack) >= DEEPEST:
                    raise InputError(f"{name}, line {number}: brackets are nested deeper than {DEEPEST}")
                if stack and stack[-1].label is None:
                    stack[-1] = stack[-1]._replace(label="")
                stack.append(Node(None, [], [], number))
            elif not stack:
                raise InputError(f"{name}, line {number}: {token!r} outside of a tree; expected '('")
            elif token != ")":
                read_word(stack, token, name, number)
            else:
                tree = closed(stack.pop(), outermost=not stack, name=name, line=number)
                if stack:
                    stack[-1].children.append(tree)
                else:
                    yield number, tree
    if stack:
        raise InputError(f"{name}, line {number}: the file ends inside the tree that begins on line {stack[0].line}")


def bracket_lines(source: Location, block_bytes: int) -> Iterator[bytes]:
    held = b""
    for piece in read_pieces(source, block_bytes):
        *lines, held = (held + piece).split(b"\n")
        yield from lines
    if held:
        yield held


def decoded(line: bytes, name: str, number: int) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise InputError(f"{name}, line {number}: the text is not UTF-8") from None


def read_word(stack: list[Node], token: str, name: str, line: int) -> None:
    """A label, if the bracket has none yet, else a word."""
    node = stack[-1]
    if node.label is None:
        stack[-1] = node._replace(label=token)
    elif node.words or node.children:
        raise InputError(f"{name}, line {line}: {token!r} beside other words or brackets; expected (tag word)")
    else:
        node.words.append(token)


def closed(node: Node, *, outermost: bool, name: str, line: int) -> Tree:
    """The tree of a bracket that ends here; the outermost one may be without a label, around one tree."""
    where = f"{name}, line {line}"
    if node.words and node.children:
        raise InputError(f"{where}: {node.words[0]!r} beside brackets; expected (tag word)")
    if not node.words and not node.children:
        raise InputError(f"{where}: the bracket ({node.label or ''}) is empty; expected (tag word) or (label …)")
    if not node.label:
        if not outermost or node.words or len(node.children) != 1:
            raise InputError(f"{where}: a bracket without a label; only the outermost may have none, around one tree")
        return node.children[0]
    return Tree(node.label, node.words[0] if node.words else tuple(node.children))


# --- clean-up


def cleaned(tree: Tree, *, function_tags: bool = False, traces: bool = False) -> Tree | None:
    """The tree as a parser should learn it; None if it holds nothing but traces.

    Unless they are to be kept, function tags and indices go (NP-SBJ-1 and NP=2 become NP; -LRB- stays), and so do
    traces (-NONE-) with every phrase that holds nothing else. A phrase whose only child is a phrase of the same label
    is merged with it, as that tells nothing more.
    """
    if isinstance(tree.below, str):
        if tree.label == TRACE and not traces:
            return None
        return tree if function_tags else Tree(bare_label(tree.label), tree.below)
    found = (cleaned(child, function_tags=function_tags, traces=traces) for child in tree.below)
    children = tuple(child for child in found if child is not None)
    if not children:
        return None
    label = tree.label if function_tags else bare_label(tree.label)
    if len(children) == 1 and children[0].children and children[0].label == label:
        return children[0]
    return Tree(label, children)


def bare_label(label: str) -> str:
    """A label without function tags and indices; one that begins with - or = is a name as a whole."""
    return re.split(r"[-=]", label, maxsplit=1)[0] or label
