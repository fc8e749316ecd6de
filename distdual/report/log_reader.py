"""The lines of a run log, checked, and the series that charts draw."""

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distdual.errors import InputError
from distdual.json_floats import parsed_json
from distdual.kernels.rows import Floats
from distdual.solver.gap import relative_gap

Line = dict[str, Any]
Curve = list[float | None]  # None leaves a gap in the line

NUMBERS = ("seconds", "lower", "cache_rows", "support")
COUNTS = ("passes", "rounds", "oracle_calls", "wait_seconds", "ascent_seconds")


class Closing(NamedTuple):
    """The largest possible distance of each bound to the optimum, relative to P; both end at the proven gap."""

    upper: Curve  # (upper − best lower) / best upper
    lower: Curve  # (best upper − lower) / best upper


class Timeline(NamedTuple):
    """Coordinator activity and throughput in time intervals of equal length."""

    edges: list[float]  # seconds; one more than there are intervals
    scan: list[float]  # share of the interval in which the coordinator waited for scans
    ascent: list[float]  # share of the interval in which it ascended
    examples: list[float]  # oracle calls per second


class Worker(NamedTuple):
    name: str
    examples: int
    busy: float  # seconds


def read_log(path: Path) -> list[Line]:
    """Read the lines of a run log, except an incomplete last one."""
    try:
        texts = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; expected a run log, see output.log") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a run log: expected a text file of JSON lines") from None
    lines = [checked_line(text, path, number) for number, text in enumerate(texts[:-1], start=1) if text.strip()]
    if not lines:
        raise InputError(f"{path}: the run log has no rounds; expected a run that completed at least one")
    return lines


def checked_line(text: str, path: Path, number: int) -> Line:
    try:
        line = parsed_json(text)
    except ValueError:
        line = None
    if not isinstance(line, dict):
        raise InputError(f"{path}, line {number}: not a JSON object; expected a line of a run log")
    totals = line.get("totals")
    found = {**totals, **line} if isinstance(totals, dict) else line
    for name in (*NUMBERS, *COUNTS):
        if isinstance(found.get(name), bool) or not isinstance(found.get(name), int | float):
            raise InputError(f"{path}, line {number}: {name} is missing or not a number; expected a line of a run log")
    if not isinstance(line.get("upper"), int | float | None) or not isinstance(line.get("events", []), list):
        raise InputError(f"{path}, line {number}: upper must be a number and events a list, as in a run log")
    if not (are_counts(line.get("staleness", [])) and are_workers(line.get("workers", {}))):
        raise InputError(
            f"{path}, line {number}: staleness must be a list of counts and workers a table of examples and seconds, "
            "as in a run log"
        )
    if not are_numbers(line.get("scores", {})):
        raise InputError(f"{path}, line {number}: scores must be a table of numbers, as in a run log")
    return line


def are_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(type(each) in (int, float) for each in value.values())


def are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(count) is int and count >= 0 for count in value)


def are_workers(value: Any) -> bool:
    def is_pair(pair: Any) -> bool:
        return isinstance(pair, list) and len(pair) == 2 and all(type(each) in (int, float) for each in pair)

    return isinstance(value, dict) and all(map(is_pair, value.values()))


def seconds(lines: Sequence[Line]) -> list[float]:
    return [float(line["seconds"]) for line in lines]


def passes(lines: Sequence[Line]) -> list[float]:
    """Fractional passes done at each line: oracle calls divided by those of one pass.

    The calls at the end of a pass are those of all complete passes and of scans already begun for the next.
    """
    done = [int(line["totals"]["passes"]) for line in lines]
    calls = [int(line["totals"]["oracle_calls"]) for line in lines]
    ended = zip(done, [0, *done], calls, strict=False)
    whole = min((call / now for now, before, call in ended if now > before), default=0.0)
    return [call / whole for call in calls] if whole else [float(count) for count in done]


def problems(lines: Sequence[Line]) -> list[list[Line]]:
    """Lines grouped by problem: along a path of C, bounds restart at each C."""
    parts: list[list[Line]] = []
    for line in lines:
        if not parts or is_another(parts[-1][-1], line):
            parts.append([])
        parts[-1].append(line)
    return parts


def beginnings(lines: Sequence[Line]) -> list[int]:
    """The index of the first line of each problem."""
    sizes = [len(part) for part in problems(lines)]
    return [sum(sizes[:at]) for at in range(len(sizes))]


def is_another(before: Line, line: Line) -> bool:
    """Whether a bound got worse, which never happens within one problem."""
    upper, earlier = line.get("upper"), before.get("upper")
    opened = earlier is not None and (upper is None or upper > earlier)
    return bool(opened or line["lower"] < before["lower"] - 1e-9 * abs(before["lower"]))


def closing(lines: Sequence[Line]) -> Closing:
    """Distances relative to the best bounds of each problem; None without a proven upper bound."""
    upper: Curve = []
    lower: Curve = []
    for part in problems(lines):
        best_upper, best_lower = part[-1].get("upper"), max(line["lower"] for line in part)
        if not best_upper:
            upper += [None] * len(part)
            lower += [None] * len(part)
            continue
        seen = [line.get("upper") for line in part]
        upper += [None if u is None else max(0.0, (u - best_lower) / best_upper) for u in seen]
        lower += [max(0.0, relative_gap(best_upper, line["lower"])) for line in part]
    return Closing(upper, lower)


def gaps(lines: Sequence[Line]) -> Curve:
    """The proven gap at each line; None before the first certificate."""
    return [line.get("gap") for line in lines]


def timeline(lines: Sequence[Line], most: int = 48) -> Timeline:
    """Spread the work of each round evenly over its time, in at most `most` intervals."""
    ends = np.array([0.0, *seconds(lines)])
    edges = np.linspace(0.0, max(ends[-1], 1e-9), 1 + min(most, 2 * len(lines)))

    def rate(name: str) -> Floats:
        done = np.cumsum([0.0, *differences(lines, name)])
        grown: Floats = np.diff(np.interp(edges, ends, done)) / edges[1]
        return grown

    ascent = np.clip(rate("ascent_seconds"), 0.0, 1.0)
    scan = np.clip(rate("wait_seconds"), 0.0, 1.0 - ascent)
    return Timeline(edges.tolist(), scan.tolist(), ascent.tolist(), rate("oracle_calls").tolist())


def differences(lines: Sequence[Line], name: str) -> list[float]:
    """The increase of a total in each round; the total itself where totals restart."""
    totals = [float(line["totals"][name]) for line in lines]
    return [total - before if total >= before else total for total, before in zip(totals, [0.0, *totals], strict=False)]


def staleness(lines: Sequence[Line]) -> list[int]:
    """Counts of reports that were 0, 1, 2, … versions old on arrival; empty if not in the log."""
    counts = [line.get("staleness", []) for line in lines]
    return [sum(column) for column in itertools.zip_longest(*counts, fillvalue=0)]


def workers(lines: Sequence[Line]) -> list[Worker]:
    """The work of each worker, sorted by name; empty if not in the log."""
    examples, busy = Counter[str](), Counter[str]()
    for line in lines:
        for name, (n, seconds_of_work) in line.get("workers", {}).items():
            examples[name] += n
            busy[name] += seconds_of_work
    return [Worker(name, int(examples[name]), busy[name]) for name in sorted(examples)]


def condensed(lines: Sequence[Line], most: int) -> list[Line]:
    """Merge lines into at most `most`, keeping all events and sums."""
    size = -(-len(lines) // most)
    return [joined_lines(lines[at : at + size]) for at in range(0, len(lines), size)]


def joined_lines(part: Sequence[Line]) -> Line:
    """The last of several lines, with the events, staleness and work of all of them."""
    return {
        **part[-1],
        "events": [event for line in part for event in line.get("events", [])],
        "staleness": staleness(part),
        "workers": {each.name: [each.examples, each.busy] for each in workers(part)},
    }


def events(lines: Sequence[Line]) -> list[tuple[float, str]]:
    """Events with their times in seconds."""
    return [(float(line["seconds"]), str(event)) for line in lines for event in line.get("events", [])]
