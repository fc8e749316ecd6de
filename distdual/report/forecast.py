"""Pace and forecast of the time and the passes left of a run, from its rounds so far."""

import math
from collections.abc import Iterable, Sequence

LEAST_GAPS = 4  # proven gaps needed for a forecast of seconds
LEAST_PASSES = 2  # the same for a forecast of passes, of which a run has only a few
AGREE = 4.0  # largest ratio between two forecasts that agree
STRETCH = 0.1  # share of the run that counts as recent, but at least LEAST_SECONDS
LEAST_SECONDS = 2.0
UNITS = ((1.0, "s"), (60.0, "min"), (3600.0, "h"))


def time_left(
    seconds: Sequence[float], gaps: Sequence[float | None], target: float, least: int = LEAST_GAPS
) -> tuple[float, float] | None:
    """Shortest and longest forecast of the seconds until the gap is at most `target`, or None if they disagree.

    The forecasts assume that the gap shrinks by a constant factor per second, estimated over the last third and over
    the last two thirds of the proven gaps, of which there must be `least`.
    """
    proven = closing_gaps(seconds, gaps)
    if len(proven) < least or proven[-1][1] <= target:
        return None
    last, gap = proven[-1]
    found = []
    for share in (3, 1.5):
        then, before = proven[-1 - max(1, int(len(proven) / share))]
        left = (last - then) * math.log(gap / target) / math.log(before / gap) if last > then else 0.0
        found.append(max(0.0, left - (seconds[-1] - last)))
    low, high = min(found), max(found)
    return (low, high) if 0 < high <= AGREE * low else None


def passes_left(passes: Sequence[int], gaps: Sequence[float | None], target: float) -> tuple[int, int] | None:
    """The same forecast in passes; at least one is left while the gap is above the target."""
    found = time_left(passes, gaps, target, LEAST_PASSES)
    return found and (max(1, math.ceil(found[0])), max(1, math.ceil(found[1])))


def closing_gaps(seconds: Sequence[float], gaps: Sequence[float | None]) -> list[tuple[float, float]]:
    """Times and values of the decreasing proven gaps of the last problem; a larger gap means that bounds restarted."""
    proven: list[tuple[float, float]] = []
    for at, gap in zip(seconds, gaps, strict=True):
        if gap is None or gap <= 0 or (proven and gap > proven[-1][1]):
            proven.clear()
        if gap is not None and gap > 0 and (not proven or gap < proven[-1][1]):
            proven.append((at, gap))
    return proven


def recent_rate(seconds: Sequence[float], counts: Sequence[float]) -> float:
    """Growth of a count per second over the recent part of the run."""
    now, late = seconds[-1], lately(seconds)
    then = next((at for at in reversed(range(len(seconds) - 1)) if seconds[at] <= late), None)
    before, done = (0.0, 0.0) if then is None else (seconds[then], counts[then])
    return max(0.0, (counts[-1] - done) / (now - before)) if now > before else 0.0


def recent_workers(seconds: Sequence[float], workers: Sequence[Iterable[str]]) -> int:
    """Number of workers that reported in the recent part of the run, or in the last round with any."""
    found: set[str] = set()
    for at, names in zip(reversed(seconds), reversed(workers), strict=True):
        if found and at < lately(seconds):
            break
        found.update(names)
    return len(found)


def lately(seconds: Sequence[float]) -> float:
    return seconds[-1] - max(LEAST_SECONDS, STRETCH * seconds[-1])


def left_words(found: tuple[float, float] | None) -> str:
    """The forecast in words, without spurious digits."""
    if found is None:
        return ""
    (low, unit), (high, other) = rounded(found[0]), rounded(found[1])
    begin = "" if (low, unit) == (high, other) else f"{low} to " if unit == other else f"{low} {unit} to "
    return f"about {begin}{high} {other} left"


def passes_words(found: tuple[int, int] | None) -> str:
    if found is None:
        return ""
    low, high = found
    return f"about {'' if low == high else f'{low} to '}{high} {'pass' if high == 1 else 'passes'} left"


def rounded(seconds: float) -> tuple[int, str]:
    length, unit = next((each for each in UNITS if seconds < 90 * each[0]), UNITS[-1])
    amount = seconds / length
    step = 1 if amount < 10 else 5 if amount < 50 else 10
    return max(1, step * round(amount / step)), unit
