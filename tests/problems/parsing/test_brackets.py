"""Bracketed text: read as it stands, cleaned as asked, refused with the line where it is broken."""

import bz2
import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.problems.parsing.brackets import DEEPEST, Tree, cleaned, trees_of

DOG = "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))"


def read(folder: Path, text: str | bytes, name: str = "trees.mrg") -> list[Tree]:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return [tree for _, tree in trees_of(Location(str(folder / name)), block_bytes=7)]


def test_a_tree_a_line(tmp_path):
    dog, cat = read(tmp_path, f"{DOG}\n\n(NP (NN cat))\n")
    assert str(dog) == DOG
    assert cat == Tree("NP", (Tree("NN", "cat"),))
    assert [leaf.below for leaf in dog.leaves()] == ["the", "dog", "barks"]


def test_trees_over_several_lines_in_a_bracket_without_a_label(tmp_path):
    text = "( (S\n    (NP (DT the)\r\n (NN dog))\n  (VP (VBZ barks)) ) )\n((NP(NN cat)))"
    assert [str(tree) for tree in read(tmp_path, text)] == [DOG, "(NP (NN cat))"]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files(tmp_path, compress):
    assert [str(tree) for tree in read(tmp_path, compress(f"{DOG}\n".encode() * 3))] == [DOG] * 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{DOG}\n)", ["line 2", "')'", "outside of a tree"]),
        (f"{DOG}\nhello", ["line 2", "'hello'", "expected '('"]),
        (f"{DOG}\n(S (NP\n\n", ["the file ends", "begins on line 2"]),
        ("(S\n(NP))", ["line 2", "(NP)", "empty"]),
        ("(S (NP the\n(NN dog)))", ["line 2", "'the'", "expected (tag word)"]),
        ("(S (NP the\ndog))", ["line 2", "'dog'", "expected (tag word)"]),
        ("(S (NP (NN dog)\nbarks))", ["line 2", "'barks'", "expected (tag word)"]),
        ("()", ["line 1", "empty"]),
        ("((NN a)\n(NN b))", ["line 2", "without a label"]),
        ("(S\n((NN a)))", ["line 2", "without a label"]),
        ("(X " * (DEEPEST + 1), ["line 1", "deeper than"]),
        (b"(NN \xff)", ["line 1", "UTF-8"]),
    ],
)
def test_broken_text_is_refused_with_its_line(tmp_path, text, words):
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    for word in ["trees.mrg", *words]:
        assert word in str(caught.value)


def tidy(text: str, folder: Path, **options: bool) -> str | None:
    (tree,) = read(folder, text)
    found = cleaned(tree, **options)
    return None if found is None else str(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(S (NP-SBJ-1 (NN a)) (VP=2 (VB b)))", "(S (NP (NN a)) (VP (VB b)))"),
        ("(S (NP (-LRB- -LRB-) (NN a-b)) (VP (VB c)))", "(S (NP (-LRB- -LRB-) (NN a-b)) (VP (VB c)))"),
        ("(S (NP (-NONE- *T*)) (VP (VB b)))", "(S (VP (VB b)))"),
        ("(S (NP (NP (NN a)) (SBAR (-NONE- 0))) (VP (VB b)))", "(S (NP (NN a)) (VP (VB b)))"),
        ("(S (NP (-NONE- *)))", None),
        ("(NP (NP (NP a)))", "(NP (NP a))"),
    ],
    ids=["function tags", "brackets as words", "traces", "merged", "nothing left", "a tag is no phrase"],
)
def test_clean_up(tmp_path, text, expected):
    assert tidy(text, tmp_path) == expected


def test_clean_up_keeps_what_it_is_told_to(tmp_path):
    text = "(S (NP-SBJ (-NONE- *)) (VP (VB b)))"
    assert tidy(text, tmp_path, function_tags=True, traces=True) == text
    assert tidy(text, tmp_path, traces=True) == "(S (NP (-NONE- *)) (VP (VB b)))"


words = st.text(st.characters(exclude_characters="()", exclude_categories=["Z", "C"]), min_size=1, max_size=4)
leaves = st.builds(Tree, words, words)
trees = st.recursive(leaves, lambda below: st.builds(Tree, words, st.lists(below, min_size=1, max_size=4).map(tuple)))


@given(trees)
def test_what_is_written_is_read_back(tmp_path_factory, tree):
    (found,) = read(tmp_path_factory.getbasetemp(), f"{tree}\n")
    assert found == tree
