"""How is a series drawn so that it can be read on paper, on a phone and in the dark? As SVG, colours left to the page.

Everything is drawn in a box of 360 × 250, which the page scales: text stays readable where it is 340 pixels wide. Each
picture carries what a pointer over it is told, so that the page's script has nothing to work out.
"""

import json
import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from distdual.report.number_format import number, power

WIDTH, HEIGHT = 360, 250
LEFT, RIGHT, TOP, BOTTOM = 50, 346, 34, 206
MOST_POINTS = 240  # of a line, more cannot be told apart


class Series(NamedTuple):
    name: str
    style: str  # class of the page's style sheet
    y: Sequence[float | None]


class Axis(NamedTuple):
    """Where a value lies between 0 and 1, and the values to write beside the axis."""

    low: float
    high: float
    log: bool
    ticks: list[float]

    def at(self, value: float) -> float:
        if self.log:
            return (math.log10(max(value, self.low)) - math.log10(self.low)) / math.log10(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


class Rule(NamedTuple):
    """A value to reach, drawn across."""

    name: str
    value: float


def linear_axis(high: float, low: float = 0.0) -> Axis:
    """About four round numbers, from 0 unless all values lie far from it."""
    low = low if low > high / 2 else 0.0
    rough = (high - low if high > low else high or 1.0) / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = max(first + 1, math.ceil(high / step - 1e-9))
    return Axis(first * step, last * step, False, [step * i for i in range(first, last + 1)])


def log_axis(values: Sequence[float]) -> Axis:
    """Whole decades around the values that are above 0; of many, not each has its number."""
    above = [value for value in values if value > 0] or [1.0]
    first, last = math.floor(math.log10(min(above))), math.ceil(math.log10(max(above)))
    last = max(last, first + 1)
    step = -(-(last - first) // 6)
    return Axis(10.0**first, 10.0**last, True, [10.0**p for p in range(first, last + 1, step)])


def line_chart(
    title: str,
    x_label: str,
    x: Sequence[float],
    series: Sequence[Series],
    *,
    log: bool = False,
    cuts: Sequence[int] = (),
    note: str = "",
    rule: Rule | None = None,
    marks: Sequence[float] = (),
    told: Callable[[float], str] = number,
) -> str:
    """Lines over x, one for each series, cut before the points `cuts` and where a value is None.

    `marks` are places on the x axis at which something happened; `told` writes a value for the pointer.
    """
    known = [value for each in series for value in each.y if value is not None]
    if not known:
        return empty(title, "nothing is proven yet that could be drawn")
    values = [*known, rule.value] if rule else known
    across = fitted(linear_axis(max(x), min(x)), max(x))
    up = log_axis(values) if log else linear_axis(max(values))
    drawn = [axes(across, up), *(mark(across, at) for at in marks), ruled(rule, up)]
    drawn += [line(each, x, cuts, across, up) for each in series]
    points = thinned(len(x))
    tips = [tip(f"{number(x[at])} {x_label}", series, at, told) for at in points]
    here = pointed([place(across.at(x[at]), LEFT, RIGHT) for at in points], tips)
    return frame(title, note, x_label, legend(series, "line"), "".join(drawn), here)


def fitted(axis: Axis, high: float) -> Axis:
    """The axis up to the last value, so that a line that grows fills its box; its numbers stay round."""
    if not axis.low < high < axis.high:
        return axis
    return axis._replace(high=high, ticks=[tick for tick in axis.ticks if tick <= high * (1 + 1e-9)])


def line(series: Series, x: Sequence[float], cuts: Sequence[int], across: Axis, up: Axis) -> str:
    """One path for each stretch, with a dot at its end."""
    stretches: list[list[tuple[float, float]]] = [[]]
    before = 0
    for at in thinned(len(x)):
        value = series.y[at]
        if value is None or any(before < cut <= at for cut in cuts):
            stretches.append([])
        if value is not None:
            stretches[-1].append((place(across.at(x[at]), LEFT, RIGHT), place(up.at(value), BOTTOM, TOP)))
        before = at
    drawn = []
    for points in filter(None, stretches):
        path = " L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        drawn.append(f'<path class="line {series.style}" d="M{path}"/>')
        px, py = points[-1]
        drawn.append(f'<circle class="dot {series.style}" cx="{px:.1f}" cy="{py:.1f}" r="2.6"/>')
    return "".join(drawn)


def thinned(n: int) -> list[int]:
    """All of n points, or evenly chosen ones and the last where there are too many."""
    return sorted({*range(0, n, -(-n // MOST_POINTS)), n - 1})


def bar_chart(
    title: str,
    x_label: str,
    series: Sequence[Series],
    heads: Sequence[str],
    *,
    ends: Sequence[tuple[float, str]] | None = None,
    note: str = "",
    whole: float | None = None,
    told: Callable[[float], str] = number,
) -> str:
    """Stacked bars, the first series at the bottom; `heads` tell the pointer what each bar is.

    `ends` are places from 0 to 1 along the x axis, and what is written there; without, each bar has its head below,
    or as many as there is room for. `whole` is the height of the axis where that is known.
    """
    n = len(heads)
    up = linear_axis(whole or max(sum(each.y[bar] or 0.0 for each in series) for bar in range(n)))
    width = (RIGHT - LEFT) / n
    drawn = []
    for bar in range(n):
        top = float(BOTTOM)
        for each in series:
            height = (BOTTOM - TOP) * up.at(each.y[bar] or 0.0)
            top -= height
            box = f'x="{LEFT + (bar + 0.08) * width:.2f}" width="{0.84 * width:.2f}" y="{top:.2f}"'
            if height > 0:
                drawn.append(f'<rect class="bar {each.style}" {box} height="{height:.2f}"/>')
    if ends is None:
        ends = [((bar + 0.5) / n, heads[bar]) for bar in range(0, n, -(-n // 12))]
    below = "".join(text(place(share, LEFT, RIGHT), BOTTOM + 17, words) for share, words in ends)
    tips = [tip(heads[bar], series, bar, told) for bar in range(n)]
    here = pointed([LEFT + (bar + 0.5) * width for bar in range(n)], tips)
    keys = legend(series, "bar") if len(series) > 1 else ""
    return frame(title, note, x_label, keys, vertical(up) + below + "".join(drawn), here)


def tip(head: str, series: Sequence[Series], at: int, told: Callable[[float], str]) -> str:
    """What the pointer is told: lines of a head and of each value."""
    known = [f"{each.name} {told(value)}" for each in series if (value := each.y[at]) is not None]
    return "\n".join([head, *known])


def pointed(places: Sequence[float], tips: Sequence[str]) -> str:
    """Attributes of a picture: where there is something to tell, and what."""
    at = json.dumps([round(place, 1) for place in places], separators=(",", ":"))
    return f'data-at="{at}" data-tips="{escape(json.dumps(tips, separators=(",", ":"), ensure_ascii=False))}"'


def axes(across: Axis, up: Axis) -> str:
    marks = "".join(text(place(across.at(tick), LEFT, RIGHT), BOTTOM + 17, number(tick)) for tick in across.ticks)
    return vertical(up) + marks


def vertical(up: Axis) -> str:
    drawn = []
    for tick in up.ticks:
        y = place(up.at(tick), BOTTOM, TOP)
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(text(LEFT - 5, y + 3.5, power(tick) if up.log else number(tick), "end"))
    return "".join(drawn)


def ruled(rule: Rule | None, up: Axis) -> str:
    if rule is None:
        return ""
    y = place(up.at(rule.value), BOTTOM, TOP)
    across = f'<line class="rule" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return across + text(LEFT + 4, y - 4, rule.name, "start")


def mark(across: Axis, at: float) -> str:
    x = place(across.at(at), LEFT, RIGHT)
    return f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{BOTTOM - 7}" y2="{BOTTOM}"/>'


def legend(series: Sequence[Series], kind: str) -> str:
    at, keys = LEFT, []
    for each in series:
        look = f'class="{kind} {each.style}"'
        sample = f'<path {look} d="M{at} 14h18"/>' if kind == "line" else f'<path {look} d="M{at} 9h12v10h-12z"/>'
        keys.append(sample + text(at + 23, 18, each.name, "start"))
        at += 40 + round(6.6 * len(each.name))
    return f'<g class="legend">{"".join(keys)}</g>'


def frame(title: str, note: str, x_label: str, keys: str, content: str, here: str) -> str:
    """A figure with its title, its legend and what is in it."""
    below = text((LEFT + RIGHT) / 2, HEIGHT - 6, x_label)
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" {here}'
    hair = f'<line class="hair" x1="0" x2="0" y1="{TOP}" y2="{BOTTOM}"/>'
    small = f'<p class="soft">{escape(note)}</p>' if note else ""
    picture = f"<svg {box}>{keys}{content}{below}{hair}</svg>"
    return f"<figure><figcaption>{escape(title)}</figcaption>{small}{picture}</figure>"


def empty(title: str, why: str) -> str:
    return f'<figure><figcaption>{escape(title)}</figcaption><p class="soft">{escape(why)}</p></figure>'


def text(x: float, y: float, content: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def place(share: float, begin: float, end: float) -> float:
    return begin + min(1.0, max(0.0, share)) * (end - begin)
