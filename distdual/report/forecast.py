"""Pace of a run, and forecast of the passes left, from its rounds so far."""

import math
from collections.abc import Iterable, Sequence

LEAST_GAPS = 3  # passes with proven gaps that are needed for a forecast
LARGEST_GAP = 0.1  # above it, the pace says nothing about the passes to come
STEADY = (0.33, 2.0)  # recent pace, relative to the mean, of a run that can be forecast
MOST_POWER = 1.5  # of passes, with which −log gap grows in recorded runs; at least 1
STRETCH = 0.1  # share of the run that counts as recent, but at least LEAST_SECONDS
LEAST_SECONDS = 2.0


def passes_left(passes: Sequence[int], gaps: Sequence[float | None], target: float) -> tuple[int, int] | None:
    """Fewest and most passes until the gap is likely to be at most `target`, or None while that cannot be known.

    The forecast assumes that −log gap grows as a power of the number of passes, as it does in recorded runs. The power
    is the pace over the last third of the proven gaps, relative to the mean pace. There is no forecast where these
    differ much, and none after a pass that did not lower the gap.
    """
    begin, proven = closing_gaps(passes, gaps)
    if len(proven) < LEAST_GAPS or not target < proven[-1][1] <= LARGEST_GAP or passes[-1] > proven[-1][0] + 1:
        return None
    last, gap = proven[-1]
    then, before = proven[-1 - round(len(proven) / 3)]
    lately = math.log(before / gap) / (last - then)
    pace = lately * (last - begin) / -math.log(gap)
    if not STEADY[0] <= pace <= STEADY[1]:
        return None
    whole = (last - begin) * (math.log(target) / math.log(gap)) ** (1 / min(MOST_POWER, max(1.0, pace)))
    fewest = max(1, math.ceil(begin + whole - passes[-1]))
    return fewest, fewest + 1


def closing_gaps(passes: Sequence[int], gaps: Sequence[float | None]) -> tuple[int, list[tuple[int, float]]]:
    """The passes before the last problem, and the lowest gap proven in each of its passes that lowered it.

    A larger gap, or none after some, means that bounds restarted.
    """
    begin, proven = 0, dict[int, float]()
    for at, (count, gap) in enumerate(zip(passes, gaps, strict=True)):
        lowest = min(proven.values(), default=math.inf)
        if proven and (gap is None or gap > lowest):
            begin, lowest = passes[at - 1], math.inf
            proven.clear()
        if gap is not None and 0 < gap < lowest:
            proven[count] = gap
    return begin, list(proven.items())


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


def passes_words(found: tuple[int, int] | None) -> str:
    if found is None:
        return ""
    return f"about {found[0]} to {found[1]} passes left"
