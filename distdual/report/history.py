"""What does a run log tell? Its lines, checked, and the series that pictures of a run are drawn from."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from distdual.errors import InputError

Line = dict[str, Any]
Values = list[float | None]  # None where there is nothing to draw

NUMBERS = ("seconds", "lower", "cache_rows", "support")
COUNTS = ("passes", "rounds", "oracle_calls", "wait_seconds", "ascent_seconds")


class Closing(NamedTuple):
    """How far each bound may still be from the optimum, relative to P, at each line; both end at the proven gap."""

    upper: Values  # (upper − best lower) / best upper
    lower: Values  # (best upper − lower) / best upper


class Work(NamedTuple):
    """Seconds of each round, or of several where there are many."""

    rounds: list[int]  # the last of each
    scan: list[float]  # the coordinator waited for scans
    ascent: list[float]


def read_log(path: Path) -> list[Line]:
    """The lines of a run log. One that was cut off while it was written, the last, is left out."""
    try:
        texts = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; expected a run log, see output.log") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a run log: a text of JSON lines is expected") from None
    lines = [checked(text, path, number) for number, text in enumerate(texts[:-1], start=1) if text.strip()]
    if not lines:
        raise InputError(f"{path}: the run log holds no round; was the run ended before its first?")
    return lines


def checked(text: str, path: Path, number: int) -> Line:
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if not isinstance(line, dict):
        raise InputError(f"{path}, line {number}: not a JSON object; expected a line of a run log")
    totals = line.get("totals")
    found = {**totals, **line} if isinstance(totals, dict) else line
    for name in (*NUMBERS, *COUNTS):
        if isinstance(found.get(name), bool) or not isinstance(found.get(name), int | float):
            raise InputError(f"{path}, line {number}: {name} is missing or no number; expected a line of a run log")
    if not isinstance(line.get("upper"), int | float | None) or not isinstance(line.get("events", []), list):
        raise InputError(f"{path}, line {number}: upper is no number, or events no list; expected a line of a run log")
    return line


def seconds(lines: Sequence[Line]) -> list[float]:
    return [float(line["seconds"]) for line in lines]


def passes(lines: Sequence[Line]) -> list[float]:
    """Passes done at each line, fractions included: oracle calls over those of a round that certifies."""
    calls = [int(line["totals"]["oracle_calls"]) for line in lines]
    own = [call - before for call, before in zip(calls, [0, *calls], strict=False)]
    whole = max((n for n, line in zip(own, lines, strict=True) if line.get("certify")), default=0)
    if not whole:
        return [float(line["totals"]["passes"]) for line in lines]
    return [call / whole for call in calls]


def problems(lines: Sequence[Line]) -> list[list[Line]]:
    """The runs of lines that are about one and the same problem: along a path of C, bounds begin anew at each C."""
    parts: list[list[Line]] = []
    for line in lines:
        if not parts or is_another(parts[-1][-1], line):
            parts.append([])
        parts[-1].append(line)
    return parts


def beginnings(lines: Sequence[Line]) -> list[int]:
    """The first line of each problem."""
    sizes = [len(part) for part in problems(lines)]
    return [sum(sizes[:at]) for at in range(len(sizes))]


def is_another(before: Line, line: Line) -> bool:
    """Bounds of one problem only ever close in."""
    upper, earlier = line.get("upper"), before.get("upper")
    opened = earlier is not None and (upper is None or upper > earlier)
    return bool(opened or line["lower"] < before["lower"] - 1e-9 * abs(before["lower"]))


def closing(lines: Sequence[Line]) -> Closing:
    """Of each problem by its own best bounds; nothing where no upper bound was proven."""
    upper: Values = []
    lower: Values = []
    for part in problems(lines):
        best_upper, best_lower = part[-1].get("upper"), max(line["lower"] for line in part)
        if not best_upper:
            upper += [None] * len(part)
            lower += [None] * len(part)
            continue
        seen = [line.get("upper") for line in part]
        upper += [None if u is None else max(0.0, (u - best_lower) / best_upper) for u in seen]
        lower += [max(0.0, (best_upper - line["lower"]) / best_upper) for line in part]
    return Closing(upper, lower)


def work(lines: Sequence[Line], most: int = 60) -> Work:
    """Seconds of scan and ascent, at most `most` entries."""
    size = -(-len(lines) // most)
    last = [*range(size - 1, len(lines) - 1, size), len(lines) - 1]
    scan, ascent = ([float(lines[at]["totals"][name]) for at in last] for name in ("wait_seconds", "ascent_seconds"))
    return Work([at + 1 for at in last], differences(scan), differences(ascent))


def differences(totals: list[float]) -> list[float]:
    return [max(0.0, total - before) for total, before in zip(totals, [0.0, *totals], strict=False)]


def events(lines: Sequence[Line]) -> list[tuple[float, str]]:
    """What happened, and after how many seconds."""
    return [(float(line["seconds"]), str(event)) for line in lines for event in line.get("events", [])]
