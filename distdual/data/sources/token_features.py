"""The features of the tokens of some sentences, as templates define them.

Texts are numbered once per column and looked at once per distinct text; what templates find is then a matter of
whole arrays of numbers. A feature's name is spelt out once for all tokens of a block that have it.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from distdual.data.sources.templates import Template, TokenView, template_name
from distdual.kernels.rows import Ints

BOS, EOS = "<BOS>", "<EOS>"
NONE = -1


class Sentences(NamedTuple):
    """Whole sentences, column by column."""

    columns: Mapping[str, list[bytes]]  # UTF-8, one entry a token
    tokens: Ints  # (n + 1,) where each sentence begins, and the end of the last


class TokenFeatures(NamedTuple):
    """What one template, or one term, finds at each token."""

    names: list[str]  # different ones; some may be at no token
    at: Ints  # (n_tokens,) place in `names`; NONE where nothing is found


def found_features(sentences: Sentences, templates: tuple[Template, ...]) -> Iterator[TokenFeatures]:
    """What each template finds, in turn."""
    lengths = np.diff(sentences.tokens)
    begin, end = np.repeat(sentences.tokens[:-1], lengths), np.repeat(sentences.tokens[1:], lengths)
    texts = cache(lambda column: number_texts(sentences.columns[column]))
    seen = cache(lambda column, views: apply_views(texts(column), views))
    for template in templates:
        terms = [shift_tokens(seen(term.column, term.views), term.offset, begin, end) for term in template]
        found = join_features(terms)
        name = template_name(template)
        yield TokenFeatures([f"{name}={value}" for value in found.names], found.at)


def number_texts(texts: list[bytes]) -> TokenFeatures:
    numbers: dict[bytes, int] = {}
    at = np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)
    return TokenFeatures([text.decode() for text in numbers], at)


def apply_views(texts: TokenFeatures, views: tuple[TokenView, ...]) -> TokenFeatures:
    """What the views, one after the other, see of each text."""
    values: dict[str, int] = {}
    places = np.full(len(texts.names), NONE, dtype=np.int64)
    for k, text in enumerate(texts.names):
        value: str | None = text
        for view in views:
            value = None if value is None else view.see(value)
        if value is not None:
            places[k] = values.setdefault(value, len(values))
    return TokenFeatures(list(values), places[texts.at])


def shift_tokens(found: TokenFeatures, offset: int, begin: Ints, end: Ints) -> TokenFeatures:
    """What is found `offset` tokens on; `begin` and `end` are the bounds of each token's sentence."""
    there = np.arange(len(begin)) + offset
    at = found.at[np.clip(there, 0, len(begin) - 1)]
    at[there < begin] = len(found.names)
    at[there >= end] = len(found.names) + 1
    return TokenFeatures([*found.names, BOS, EOS], at)


def join_features(terms: list[TokenFeatures]) -> TokenFeatures:
    """What all terms find at once, with `|` between; numbered anew after each term, so that numbers stay small."""
    whole = terms[0]
    for term in terms[1:]:
        here = np.flatnonzero((whole.at != NONE) & (term.at != NONE))
        pairs, numbers = np.unique(whole.at[here] * len(term.names) + term.at[here], return_inverse=True)
        first, second = (part.tolist() for part in np.divmod(pairs, len(term.names)))
        names = [f"{whole.names[a]}|{term.names[b]}" for a, b in zip(first, second, strict=True)]
        at = np.full(len(whole.at), NONE, dtype=np.int64)
        at[here] = numbers
        whole = TokenFeatures(names, at)
    return whole
