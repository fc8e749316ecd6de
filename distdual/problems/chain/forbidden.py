"""Pairs of tags that no tagging may have, and the check of the truth.

A pair is written as two tags, from and to, with a blank between; <BOS> and <EOS> stand for the ends of a sequence.
"iob2" stands for all pairs of that scheme: an I- goes on a span of its own type, and begins none.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.data.sources.token_features import BOS, EOS
from distdual.errors import InputError
from distdual.kernels.rows import Bools, Floats, Int32s, Ints
from distdual.problems.chain.span_f1 import INSIDE, OUTSIDE, span_tags

IOB2 = "iob2"


class Allowed(NamedTuple):
    pairs: Bools  # (K, K) from × to
    start: Bools  # (K,)
    end: Bools

    def penalty(self) -> tuple[Floats, Floats, Floats]:
        """0 for what is allowed, −∞ for what is forbidden."""
        first, second, third = (np.where(each, 0.0, -np.inf) for each in self)
        return first, second, third


def allowed_by(forbidden: Sequence[str], classes: tuple[str, ...]) -> Allowed:
    """What `forbidden` leaves, after a check that there is a tagging of any length."""
    n = len(classes)
    allowed = Allowed(np.ones((n, n), dtype=bool), np.ones(n, dtype=bool), np.ones(n, dtype=bool))
    for entry in forbidden:
        if entry == IOB2:
            forbid_iob2(allowed, classes)
        else:
            forbid_pair(allowed, entry, classes)
    if not goes_on(allowed):
        raise InputError("problem.forbidden leaves no tagging for sequences of some length")
    return allowed


def goes_on(allowed: Allowed) -> bool:
    """Whether there is a tagging of every length: the set of tags that can be last soon repeats."""
    now: Bools = allowed.start
    seen = set()
    while now.tobytes() not in seen:
        if not (now & allowed.end).any():
            return False
        seen.add(now.tobytes())
        now = np.logical_or.reduce(allowed.pairs[now], axis=0)
    return True


def forbid_iob2(allowed: Allowed, classes: tuple[str, ...]) -> None:
    spans = span_tags(classes)
    if spans is None:
        raise InputError("problem.forbidden = 'iob2' needs tags such as B-NP, I-NP and O")
    inside = spans.place == INSIDE
    same = (spans.place != OUTSIDE)[:, np.newaxis] & (spans.type[:, np.newaxis] == spans.type)
    allowed.pairs[:] &= ~inside | same
    allowed.start[:] &= ~inside


def forbid_pair(allowed: Allowed, entry: str, classes: tuple[str, ...]) -> None:
    parts = entry.split() if isinstance(entry, str) else []
    if len(parts) != 2 or parts[0] == EOS or parts[1] == BOS or parts == [BOS, EOS]:
        raise InputError(f"problem.forbidden: {entry!r} is no pair of tags such as 'O I-NP', nor 'iob2'")
    for tag in parts:
        if tag not in (*classes, BOS, EOS):
            raise InputError(f"problem.forbidden names {tag!r}, which is no tag of the data set")
    first, second = (classes.index(tag) if tag in classes else -1 for tag in parts)
    if first < 0:
        allowed.start[second] = False
    elif second < 0:
        allowed.end[first] = False
    else:
        allowed.pairs[first, second] = False


def first_forbidden(allowed: Allowed, starts: Ints, ends: Ints, tags: Int32s) -> tuple[int, int, int] | None:
    """The first run of tags that is forbidden: its number, and from which tag to which; −1 for its ends.

    Runs are tags[starts_i : ends_i], one after the other without gaps, and none is empty.
    """
    wrong: NDArray[np.bool_] = np.zeros(len(tags) + 1, dtype=bool)
    wrong[1:-1] = ~allowed.pairs[tags[:-1], tags[1:]]
    wrong[starts] = ~allowed.start[tags[starts]]
    bad_end = ~allowed.end[tags[ends - 1]]
    if not wrong.any() and not bad_end.any():
        return None
    if bad_end.any():
        run = int(np.argmax(bad_end))
        return run, int(tags[ends[run] - 1]), -1
    at = int(np.argmax(wrong))
    run = int(np.searchsorted(starts, at, side="right")) - 1
    return run, -1 if at == starts[run] else int(tags[at - 1]), int(tags[at])


def forbidden_text(classes: tuple[str, ...], first: int, second: int) -> str:
    before = classes[first] if first >= 0 else BOS
    return f"{before} {classes[second] if second >= 0 else EOS}"
