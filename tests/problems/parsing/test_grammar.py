"""Grammars: read from trees, written as text, and a tree comes back from its derivation as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.errors import InputError
from distdual.problems.parsing.brackets import Tree
from distdual.problems.parsing.grammar import OUTSIDE, UNKNOWN_TAG, Grammar, GrammarBuilder, Reading, read_grammar
from tests.problems.parsing.trees import brackets

words = st.sampled_from(["a", "b", "c"])
leaves = st.builds(Tree, st.sampled_from(["x", "y", "NP"]), words)
trees = st.recursive(
    leaves,
    lambda below: st.builds(
        Tree, st.sampled_from(["S", "NP", "VP"]), st.lists(below, min_size=1, max_size=5).map(tuple)
    ),
    max_leaves=12,
)
readings = st.builds(
    Reading, binarise=st.sampled_from(["right", "left"]), markov_order=st.sampled_from([0, 1, 2, None])
)


def grammar_of(trees: list[Tree], reading: Reading | None = None) -> Grammar:
    builder = GrammarBuilder(reading or Reading())
    for tree in trees:
        builder.add(tree)
    return builder.finish()


def spelt(tree: Tree) -> list[str]:
    return [str(leaf.below) for leaf in tree.leaves()]


@given(st.lists(trees, min_size=1, max_size=4), readings)
def test_every_tree_comes_back_from_its_derivation(some, reading):
    grammar = grammar_of(some, reading)
    for tree in some:
        codes = grammar.encode(tree)
        assert codes[0] != OUTSIDE
        assert len(codes) < 4 * len(spelt(tree))
        assert grammar.decode(codes.tolist(), spelt(tree)) == tree


@given(st.lists(trees, min_size=1, max_size=4), readings)
def test_a_grammar_comes_back_from_its_text(some, reading):
    grammar = grammar_of(some, reading)
    assert read_grammar(grammar.to_text()) == grammar
    assert grammar_of(some[::-1], reading) == grammar


@given(trees, trees)
def test_a_tree_that_the_grammar_does_not_know_keeps_its_brackets(known, tree):
    grammar = grammar_of([known])
    codes = grammar.encode(tree).tolist()
    if codes[0] != OUTSIDE:
        assert grammar.decode(codes, spelt(tree)) == tree
        return
    spans = [(grammar.names[label], begin, end) for label, begin, end in zip(*[iter(codes[1:])] * 3, strict=True)]
    expected = [
        (label if label in grammar.phrases else UNKNOWN_TAG, begin, end)
        for label, begin, end in brackets(tree).elements()
    ]
    assert sorted(spans) == sorted(expected)


def tree(text: str) -> Tree:
    """A node for every capital letter, a pre-terminal for every small one: S(aNP) is no name, S(aN(bc)) is."""
    stack: list[list[Tree]] = [[]]
    labels = []
    for sign in text:
        if sign.isupper():
            labels.append(sign)
        elif sign == "(":
            stack.append([])
        elif sign == ")":
            below = tuple(stack.pop())
            stack[-1].append(Tree(labels.pop(), below))
        else:
            stack[-1].append(Tree(sign, sign))
    return stack[0][0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"markov_order": None}, ["S('b,'c,'d)", "S('c,'d)"]),
        ({"markov_order": 1}, ["S('b)", "S('c)"]),
        ({"markov_order": 0}, ["S()"]),
        ({"markov_order": None, "binarise": "left"}, ["S('b,'a)", "S('c,'b,'a)"]),
    ],
)
def test_inner_symbols_remember_what_comes_next(options, expected):
    assert list(grammar_of([tree("S(abcd)")], Reading(**options)).inner) == expected


def test_a_whole_chain_is_one_rule():
    grammar = grammar_of([tree("S(V(N(ab)))"), tree("S(N(a))")])
    names = [tuple(grammar.names[symbol] for symbol in chain) for chain in grammar.chains]
    assert sorted(names) == [("S", "N", "a"), ("S", "V", "N")]
    assert grammar.encode(tree("S(N(ab))"))[0] == OUTSIDE  # the chain S → N over a phrase was never seen
    assert grammar.encode(tree("S(V(N(ab)))"))[0] != OUTSIDE


def test_a_wide_tree_is_no_deep_recursion():
    wide = tree(f"S({'ab' * 600})")
    grammar = grammar_of([wide])
    assert grammar.decode(grammar.encode(wide).tolist(), spelt(wide)) == wide


GOOD = grammar_of([tree("S(N(ab)V(a))"), tree("S(N(abc))")]).to_text()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("root 5\n", "root 50\n"),
        ("root 5\n", ""),
        ("root 5\n", "root 5\nroot 5\n"),
        ("binary 1 2 4\n", "binary 1 2 1\n"),
        ("binary 1 2 4\n", "binary 1 2\n"),
        ("binary 1 2 4\n", "binary 1 -2 4\n"),
        ("tag a\n", "tag b\n"),
        ("chain 6 1\n", "chain 1 6\n"),
        ("chain 6 1\n", "chain 6\n"),
        ("phrase V\n", "sentence V\n"),
        ('"format": 1', '"format": 2'),
        ('"binarise": "right"', '"binarise": "up"'),
        ('"traces": false', '"footprints": false'),
        ("tag -UNKNOWN-\n", ""),
    ],
)
def test_a_grammar_that_no_trees_can_have_given_is_refused(old, new):
    assert GOOD.count(old) == 1, GOOD
    with pytest.raises(InputError, match=r"grammar|binarise"):
        read_grammar(GOOD.replace(old, new))
