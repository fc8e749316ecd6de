"""Feature templates: the TOML file that defines the features of a token.

A template is one term, or several joined by `|`. A term names a column, how to look at it, and where from the token:

    word[0]                   the word itself
    word.lower.suffix:3[-1]   the last three letters of the word before, in lower case
    word[-2..2]               five templates, one for each place; prefix:1..4 likewise stands for four
    pos[-1]|pos[0]            both at once: true of a token only if both are there

Each gives a token one feature at most, of value 1, named after the template and what it found: `pos[-1]|pos[0]=DT|NN`.
Beyond the ends of a sentence a term finds <BOS> or <EOS>.
"""

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from distdual.config import parse, read_table
from distdual.errors import InputError

FARTHEST = 100  # tokens away that a term may look
MAX_AFFIX = 100  # letters of a prefix or suffix
MAX_TEMPLATES = 1000  # templates of a file, once ranges are written out

COLUMN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
TERM = re.compile(
    r"(?P<column>[A-Za-z_]\w*)(?P<views>(\.[a-z]+(:\d+(\.\.\d+)?)?)*)\[(?P<low>[+-]?\d+)(\.\.(?P<high>[+-]?\d+))?\]",
    re.ASCII,
)
VIEW = re.compile(r"\.([a-z]+)(?::(\d+)(?:\.\.(\d+))?)?", re.ASCII)


class TokenView(NamedTuple):
    """One way to look at a text, such as `lower` or `suffix:3`."""

    kind: str
    length: int = 0  # of a prefix or suffix

    def __str__(self) -> str:
        return f"{self.kind}:{self.length}" if self.kind in CUTS else self.kind

    def see(self, text: str) -> str | None:
        """What is seen of `text`; None if there is nothing of that sort."""
        return CUTS[self.kind](text, self.length) if self.kind in CUTS else TEMPLATE_FUNCTIONS[self.kind](text)


class Term(NamedTuple):
    column: str
    views: tuple[TokenView, ...]
    offset: int

    def __str__(self) -> str:
        return f"{'.'.join([self.column, *map(str, self.views)])}[{self.offset}]"


Template = tuple[Term, ...]


def template_name(template: Template) -> str:
    return "|".join(map(str, template))


def shape(text: str) -> str:
    """Capitals as X, other letters as x, digits as 0; of neighbours that look the same only one."""
    looks = ("0" if c.isdigit() else "X" if c.isupper() else "x" if c.isalpha() else c for c in text)
    return "".join(look for look, _ in itertools.groupby(looks))


def yes_if(test: Callable[[str], bool]) -> Callable[[str], str | None]:
    return lambda text: "yes" if test(text) else None


TEMPLATE_FUNCTIONS: dict[str, Callable[[str], str | None]] = {
    "lower": str.lower,
    "shape": shape,
    "digit": yes_if(lambda text: any(c.isdigit() for c in text)),
    "hyphen": yes_if(lambda text: "-" in text),
    "capital": yes_if(lambda text: text[:1].isupper()),
}
CUTS: dict[str, Callable[[str, int], str | None]] = {
    "prefix": lambda text, n: text[:n] if len(text) >= n else None,
    "suffix": lambda text, n: text[-n:] if len(text) >= n else None,
}


@dataclass(frozen=True, kw_only=True)
class Templates:
    """A templates file: which column is which, and what is a feature."""

    templates: list[str]
    """The templates, as above."""

    columns: dict[str, Any] = field(default_factory=lambda: {"word": 1})
    """Names for the columns that templates look at, with their numbers, counted from 1."""

    tag: int | None = None
    """The column of the tag, counted from 1; without it the last."""

    conllu: bool = False
    """CoNLL-U: comments (#), words of several tokens (1-2) and empty tokens (1.1) are left out."""

    min_count: int = 1
    """Features that the training text shows less often are left out."""

    hash_bits: int | None = None
    """Number features by a hash of so many bits instead of keeping a vocabulary; some then share a number."""

    def __post_init__(self) -> None:
        for name, number in self.columns.items():
            if not COLUMN_NAME.fullmatch(name):
                raise InputError(f"columns names {name!r}; expected a letter, then letters, digits and _")
            check_column(f"columns.{name}", number)
        check_column("tag", self.tag)
        if self.min_count < 1:
            raise InputError(f"min_count must be at least 1, got {self.min_count}")
        if self.hash_bits is not None and not 1 <= self.hash_bits <= 30:
            raise InputError(f"hash_bits lies between 1 and 30, got {self.hash_bits}")
        if self.hash_bits is not None and self.min_count > 1:
            raise InputError("min_count needs a vocabulary; leave it out, or hash_bits")
        self._check_templates()

    def _check_templates(self) -> None:
        if not self.expanded:
            raise InputError("templates is empty; name at least one, such as 'word[0]'")
        if len(self.expanded) > MAX_TEMPLATES:
            raise InputError(
                f"{len(self.expanded)} templates once ranges are written out; at most {MAX_TEMPLATES} may be given"
            )
        seen: set[str] = set()
        for template in self.expanded:
            if template_name(template) in seen:
                raise InputError(f"the template {template_name(template)} is given twice")
            seen.add(template_name(template))
            for term in template:
                if term.column not in self.columns:
                    known = ", ".join(self.columns)
                    raise InputError(f"{term} looks at the column {term.column!r}; columns names only {known}")
                if self.columns[term.column] == self.tag:
                    raise InputError(f"{term} looks at the column of the tag, which is what is to be found")

    @cached_property
    def expanded(self) -> tuple[Template, ...]:
        """All templates, with ranges written out."""
        return tuple(template for text in self.templates for template in expand_ranges(text))

    def describe(self) -> dict[str, Any]:
        """As a table, for the data set; `templates_from` turns it back."""
        table = {
            "templates": self.templates,
            "columns": self.columns,
            "tag": self.tag,
            "conllu": self.conllu,
            "min_count": self.min_count,
            "hash_bits": self.hash_bits,
        }
        return {name: value for name, value in table.items() if value is not None}


def templates_from(given: Mapping[str, Any] | str | Path) -> Templates:
    """Templates from a TOML file, or from a table of the same keys."""
    if isinstance(given, Mapping):
        return parse(Templates, given, "templates")
    return parse(Templates, read_table(given), str(given))


def check_column(name: str, number: Any) -> None:
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
        raise InputError(f"{name} is the number of a column, counted from 1, got {number!r}")


def expand_ranges(text: Any) -> list[Template]:
    """The templates that one line stands for: a term with a range stands for several."""
    if not isinstance(text, str):
        raise InputError(f"a template is a string such as 'word[0]', got {text!r}")
    return list(itertools.product(*(terms_of(part.strip(), text) for part in text.split("|"))))


def terms_of(part: str, text: str) -> list[Term]:
    match = TERM.fullmatch(part)
    if match is None:
        raise InputError(f"template {text!r}: {part!r} is not a term; expected one like word[0] or word.suffix:3[-1]")
    low = int(match["low"])
    offsets = span(low, low if match["high"] is None else int(match["high"]), text)
    if max(abs(offsets[0]), abs(offsets[-1])) > FARTHEST:
        raise InputError(f"template {text!r} looks further than {FARTHEST} tokens away")
    views = [views_of(kind, first, last, text) for kind, first, last in VIEW.findall(match["views"])]
    return [Term(match["column"], chosen, offset) for chosen in itertools.product(*views) for offset in offsets]


def views_of(kind: str, first: str, last: str, text: str) -> list[TokenView]:
    if kind not in TEMPLATE_FUNCTIONS and kind not in CUTS:
        raise InputError(
            f"template {text!r}: unknown view {kind!r}; there are {', '.join([*TEMPLATE_FUNCTIONS, *CUTS])}"
        )
    if (kind in CUTS) != bool(first):
        needed = "needs a length, such as suffix:3" if kind in CUTS else "takes no length"
        raise InputError(f"template {text!r}: {kind} {needed}")
    if not first:
        return [TokenView(kind)]
    lengths = span(int(first), int(last or first), text)
    if not 1 <= lengths[0] <= lengths[-1] <= MAX_AFFIX:
        raise InputError(f"template {text!r}: a length lies between 1 and {MAX_AFFIX}")
    return [TokenView(kind, n) for n in lengths]


def span(low: int, high: int, text: str) -> range:
    if high < low or high - low > 2 * FARTHEST:
        raise InputError(f"template {text!r}: {low}..{high} must rise, by {2 * FARTHEST} at most")
    return range(low, high + 1)
