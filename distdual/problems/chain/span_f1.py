"""Labelled spans in tags such as B-NP, I-NP and O, and the counts for precision and recall.

As in the evaluation of the CoNLL shared tasks: a span begins at a B-, and also at an I- after O, after another type or
at the start of a sequence; it goes on through I- of the same type. Both IOB2 and IOB1 tags are read in this way. A
span is right if its first token, its last token and its type are.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from distdual.kernels.jit import inner_kernel, kernel
from distdual.kernels.rows import Int32s, Ints

TAG = re.compile(r"O|[BI]-.+", re.DOTALL)
OUTSIDE, BEGIN, INSIDE = range(3)


class SpanTags(NamedTuple):
    """What each tag says, by its code."""

    place: Ints  # OUTSIDE, BEGIN or INSIDE
    type: Ints  # −1 for O


class SpanCounts(NamedTuple):
    right: int
    there: int  # spans of the truth
    found: int  # spans of the prediction


def span_tags(tags: Sequence[str]) -> SpanTags | None:
    """None where tags do not mark spans: each must be O, B-type or I-type, and one at least no O."""
    if not all(TAG.fullmatch(tag) for tag in tags) or set(tags) <= {"O"}:
        return None
    types = sorted({tag[2:] for tag in tags})
    place = [{"O": OUTSIDE, "B": BEGIN, "I": INSIDE}[tag[0]] for tag in tags]
    return SpanTags(np.array(place), np.array([types.index(tag[2:]) if tag != "O" else -1 for tag in tags]))


def span_counts(tags: SpanTags, tokens: Ints, y: Int32s, predicted: Int32s) -> SpanCounts:
    return SpanCounts(*count_spans(tags.place, tags.type, tokens, y, predicted))


@kernel
def count_spans(place: Ints, types: Ints, tokens: Ints, y: Int32s, predicted: Int32s) -> tuple[int, int, int]:
    """(right, there, found) over all sequences. `same` is true within a span that both have begun together."""
    right = there = found = 0
    for i in range(len(tokens) - 1):
        same = False
        for t in range(tokens[i], tokens[i + 1] + 1):
            over = t == tokens[i + 1]
            ends, begins = step_span(place, types, y, t, t == tokens[i], over)
            ends_too, begins_too = step_span(place, types, predicted, t, t == tokens[i], over)
            if same and ends and ends_too:
                right += 1
            if ends or ends_too:
                same = False
            there += begins
            found += begins_too
            if begins and begins_too:
                same = types[y[t]] == types[predicted[t]]
    return right, there, found


@inner_kernel
def step_span(place: Ints, types: Ints, tags: Int32s, t: int, first: bool, over: bool) -> tuple[bool, bool]:
    """Whether a span ends just before token t, and whether one begins at it; `over` is true past the last token."""
    within = not first and place[tags[t - 1]] != OUTSIDE
    if over or place[tags[t]] == OUTSIDE:
        return within, False
    goes_on = within and place[tags[t]] == INSIDE and types[tags[t]] == types[tags[t - 1]]
    return within and not goes_on, not goes_on
