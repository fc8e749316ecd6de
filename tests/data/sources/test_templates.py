"""Templates are parsed exactly, or refused in one sentence."""

from pathlib import Path
from typing import Any

import pytest

from distdual.data.sources.templates import Templates, TokenView, expand_ranges, shape, template_name, templates_from
from distdual.errors import InputError

ROOT = Path(__file__).parents[3]


def names(text: str) -> list[str]:
    return [template_name(template) for template in expand_ranges(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("word[0]", ["word[0]"]),
        ("word[+1]", ["word[1]"]),
        ("word[-1..1]", ["word[-1]", "word[0]", "word[1]"]),
        ("word.suffix:2..3[0]", ["word.suffix:2[0]", "word.suffix:3[0]"]),
        ("word.lower.prefix:1[-2]", ["word.lower.prefix:1[-2]"]),
        ("pos[-1] | word.shape[0]", ["pos[-1]|word.shape[0]"]),
        ("pos[0..1]|word[0..1]", ["pos[0]|word[0]", "pos[0]|word[1]", "pos[1]|word[0]", "pos[1]|word[1]"]),
    ],
)
def test_a_range_stands_for_several_templates(text: str, expected: list[str]) -> None:
    assert names(text) == expected
    assert [name for each in expected for name in names(each)] == expected


@pytest.mark.parametrize(
    ("view", "text", "seen"),
    [
        (TokenView("lower"), "ÉTÉ", "été"),
        (TokenView("prefix", 2), "abc", "ab"),
        (TokenView("prefix", 3), "abc", "abc"),
        (TokenView("prefix", 4), "abc", None),
        (TokenView("suffix", 2), "abc", "bc"),
        (TokenView("suffix", 4), "abc", None),
        (TokenView("shape"), "McDonald-1990s", "XxXx-0x"),
        (TokenView("digit"), "a1", "yes"),
        (TokenView("digit"), "a", None),
        (TokenView("hyphen"), "a-b", "yes"),
        (TokenView("hyphen"), "ab", None),
        (TokenView("capital"), "Ab", "yes"),
        (TokenView("capital"), "aB", None),
    ],
)
def test_a_view_shows_one_thing_of_a_text_or_nothing(view: TokenView, text: str, seen: str | None) -> None:
    assert view.see(text) == seen


def test_letters_without_case_are_letters() -> None:
    assert shape("東京2020") == "x0"


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({}, "templates: templates is missing"),
        ({"templates": []}, "templates is empty; name at least one"),
        ({"templates": ["word"]}, "'word' is not a term; expected one like word[0]"),
        ({"templates": ["word[0]|"]}, "template 'word[0]|': '' is not a term"),
        ({"templates": [3]}, "a template is a string such as 'word[0]', got 3"),
        ({"templates": ["word.upper[0]"]}, "unknown view 'upper'; there are lower, shape"),
        ({"templates": ["word.suffix[0]"]}, "suffix needs a length, such as suffix:3"),
        ({"templates": ["word.lower:3[0]"]}, "lower takes no length"),
        ({"templates": ["word.suffix:0[0]"]}, "a length lies between 1 and 100"),
        ({"templates": ["word[2..-2]"]}, "2..-2 must rise"),
        ({"templates": ["word[101]"]}, "looks further than 100 tokens away"),
        ({"templates": ["word[-20..20]|word[-20..20]"]}, "1681 templates once ranges are written out"),
        ({"templates": ["word[0]", "word[-1..1]"]}, "the template word[0] is given twice"),
        ({"templates": ["pos[0]"]}, "pos[0] looks at the column 'pos'; columns names only word"),
        ({"templates": ["word[0]"], "tag": 1}, "word[0] looks at the column of the tag"),
        ({"templates": ["word[0]"], "tag": 0}, "tag is the number of a column, counted from 1, got 0"),
        ({"templates": ["word[0]"], "columns": {"word": "2"}}, "columns.word is the number of a column"),
        ({"templates": ["word[0]"], "columns": {"a b": 2}}, "columns names 'a b'"),
        ({"templates": ["word[0]"], "min_count": 0}, "min_count must be at least 1, got 0"),
        ({"templates": ["word[0]"], "hash_bits": 31}, "hash_bits lies between 1 and 30, got 31"),
        ({"templates": ["word[0]"], "hash_bits": 9, "min_count": 2}, "min_count needs a vocabulary"),
        ({"templates": ["word[0]"], "mincount": 2}, "unknown key mincount; did you mean min_count?"),
    ],
)
def test_what_cannot_be_meant_is_refused(table: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        templates_from(table)
    assert sentence in str(refused.value)


def test_a_file_is_named_in_messages(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('templates = ["word[0"]')
    with pytest.raises(InputError, match=r"mine\.toml: template 'word\[0'"):
        templates_from(file)


@pytest.mark.parametrize("name", ["chunking_templates.toml", "tagging_templates.toml"])
def test_what_is_written_down_reads_back_as_the_same(name: str) -> None:
    made = templates_from(ROOT / "configs" / name)
    assert templates_from(made.describe()) == made
    assert isinstance(made, Templates)
