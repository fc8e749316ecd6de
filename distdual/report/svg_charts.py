"""Line and bar charts as SVG, with colours from the page's style sheet.

Charts are 360 × 250 units large and scaled by the page; text stays readable at a width of 340 pixels. Each chart
carries its tooltips as attributes.
"""

import json
import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from distdual.report.number_format import format_number, power, short

WIDTH, HEIGHT = 360, 250
LEFT, RIGHT, TOP, BOTTOM = 50, 346, 34, 206
MOST_POINTS = 240  # per line; more are indistinguishable


class Series(NamedTuple):
    name: str
    style: str  # class of the page's style sheet
    y: Sequence[float | None]


class Scale(NamedTuple):
    """A scale from values to [0, 1], with the ticks to label."""

    low: float
    high: float
    log: bool
    ticks: list[float]

    def at(self, value: float) -> float:
        if self.log:
            return (math.log10(max(value, self.low)) - math.log10(self.low)) / math.log10(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


class TargetLine(NamedTuple):
    """A horizontal line at a target value."""

    name: str
    value: float


def linear_axis(high: float, low: float = 0.0, least_step: float = 0.0) -> Scale:
    """An axis with about four round ticks, from 0 unless all values are far from it."""
    low = low if low > high / 2 else 0.0
    rough = max(least_step, (high - low if high > low else high or 1.0) / 4)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = max(first + 1, math.ceil(high / step - 1e-9))
    return Scale(first * step, last * step, False, [step * i for i in range(first, last + 1)])


def log_axis(values: Sequence[float]) -> Scale:
    """An axis of whole decades around the positive values, with at most seven ticks."""
    above = [value for value in values if value > 0] or [1.0]
    first, last = math.floor(math.log10(min(above))), math.ceil(math.log10(max(above)))
    last = max(last, first + 1)
    step = -(-(last - first) // 6)
    return Scale(10.0**first, 10.0**last, True, [10.0**p for p in range(first, last + 1, step)])


def line_chart(
    title: str,
    x_label: str,
    x: Sequence[float],
    series: Sequence[Series],
    *,
    log: bool = False,
    cuts: Sequence[int] = (),
    note: str = "",
    rule: TargetLine | None = None,
    marks: Sequence[float] = (),
    zoom: bool = False,
    whole: bool = False,
    value_format: Callable[[float], str] = format_number,
) -> str:
    """Lines over x, one per series, with breaks before the indices `cuts` and at None.

    `zoom` lets the vertical axis begin near the smallest value, and `whole` labels only whole numbers of x. `marks` are
    the x values of events; `value_format` formats values in tooltips.
    """
    known = [value for each in series for value in each.y if value is not None]
    if not known:
        return empty(title, "no proven values to draw yet")
    values = [*known, rule.value] if rule else known
    across = fitted(linear_axis(max(x), min(x), 1.0 if whole else 0.0), max(x))
    up = log_axis(values) if log else linear_axis(max(values), min(values) if zoom else 0.0)
    drawn = [axes(across, up), *(mark(across, at) for at in marks), ruled(rule, up)]
    drawn += [line(each, x, cuts, across, up) for each in series]
    points = thinned(len(x))
    tips = [tip(f"{format_number(x[at])} {x_label}", series, at, value_format) for at in points]
    here = tooltip_attributes([position(across.at(x[at]), LEFT, RIGHT) for at in points], tips)
    return frame(title, note, x_label, legend(series, "line"), "".join(drawn), here)


def fitted(axis: Scale, high: float) -> Scale:
    """The axis cut off at the last value, so that a growing line fills the chart."""
    if not axis.low < high < axis.high:
        return axis
    return axis._replace(high=high, ticks=[tick for tick in axis.ticks if tick <= high * (1 + 1e-9)])


def line(series: Series, x: Sequence[float], cuts: Sequence[int], across: Scale, up: Scale) -> str:
    """One path per unbroken stretch, with a dot at its end."""
    stretches: list[list[tuple[float, float]]] = [[]]
    before = 0
    for at in thinned(len(x)):
        value = series.y[at]
        if value is None or any(before < cut <= at for cut in cuts):
            stretches.append([])
        if value is not None:
            stretches[-1].append((position(across.at(x[at]), LEFT, RIGHT), position(up.at(value), BOTTOM, TOP)))
        before = at
    drawn = []
    for points in filter(None, stretches):
        path = " L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        drawn.append(f'<path class="line {series.style}" d="M{path}"/>')
        px, py = points[-1]
        drawn.append(f'<circle class="dot {series.style}" cx="{px:.1f}" cy="{py:.1f}" r="2.6"/>')
    return "".join(drawn)


def thinned(n: int) -> list[int]:
    """The indices of n points, or of MOST_POINTS evenly spaced ones and the last."""
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
    value_format: Callable[[float], str] = format_number,
) -> str:
    """Stacked bars, the first series at the bottom; `heads` are the titles of the bars' tooltips.

    `ends` are labels of the x axis with positions from 0 to 1; by default, at most twelve of the heads. `whole` is the
    height of the axis, if fixed.
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
    below = "".join(svg_text(position(share, LEFT, RIGHT), BOTTOM + 17, words) for share, words in ends)
    tips = [tip(heads[bar], series, bar, value_format) for bar in range(n)]
    here = tooltip_attributes([LEFT + (bar + 0.5) * width for bar in range(n)], tips)
    keys = legend(series, "bar") if len(series) > 1 else ""
    return frame(title, note, x_label, keys, vertical(up) + below + "".join(drawn), here)


def tip(head: str, series: Sequence[Series], at: int, value_format: Callable[[float], str]) -> str:
    """The text of a tooltip: a title and one line per value."""
    known = [f"{each.name} {value_format(value)}" for each in series if (value := each.y[at]) is not None]
    return "\n".join([head, *known])


def tooltip_attributes(positions: Sequence[float], tips: Sequence[str]) -> str:
    """SVG attributes with the positions and texts of tooltips."""
    at = json.dumps([round(x, 1) for x in positions], separators=(",", ":"))
    return f'data-at="{at}" data-tips="{escape(json.dumps(tips, separators=(",", ":"), ensure_ascii=False))}"'


def axes(across: Scale, up: Scale) -> str:
    marks = "".join(
        svg_text(position(across.at(tick), LEFT, RIGHT), BOTTOM + 17, tick_text(tick)) for tick in across.ticks
    )
    return vertical(up) + marks


def vertical(up: Scale) -> str:
    drawn = []
    for tick in up.ticks:
        y = position(up.at(tick), BOTTOM, TOP)
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(svg_text(LEFT - 5, y + 3.5, power(tick) if up.log else tick_text(tick), "end"))
    return "".join(drawn)


def tick_text(tick: float) -> str:
    """All digits of a tick, since rounded ticks look uneven."""
    return short(round(tick)) if tick >= 1000 else f"{tick:.6g}"


def ruled(rule: TargetLine | None, up: Scale) -> str:
    if rule is None:
        return ""
    y = position(up.at(rule.value), BOTTOM, TOP)
    across = f'<line class="rule" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return across + svg_text(LEFT + 4, y - 4, rule.name, "start")


def mark(across: Scale, at: float) -> str:
    x = position(across.at(at), LEFT, RIGHT)
    return f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{BOTTOM - 7}" y2="{BOTTOM}"/>'


def legend(series: Sequence[Series], kind: str) -> str:
    at, keys = LEFT, []
    for each in series:
        look = f'class="{kind} {each.style}"'
        sample = f'<path {look} d="M{at} 14h18"/>' if kind == "line" else f'<path {look} d="M{at} 9h12v10h-12z"/>'
        keys.append(sample + svg_text(at + 23, 18, each.name, "start"))
        at += 40 + round(6.6 * len(each.name))
    return f'<g class="legend">{"".join(keys)}</g>'


def frame(title: str, note: str, x_label: str, keys: str, content: str, here: str) -> str:
    """A figure with title, legend and content."""
    below = svg_text((LEFT + RIGHT) / 2, HEIGHT - 6, x_label)
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" {here}'
    hair = f'<line class="hair" x1="0" x2="0" y1="{TOP}" y2="{BOTTOM}"/>'
    small = f'<p class="soft">{escape(note)}</p>' if note else ""
    picture = f"<svg {box}>{keys}{content}{below}{hair}</svg>"
    return f"<figure><figcaption>{escape(title)}</figcaption>{small}{picture}</figure>"


def empty(title: str, why: str) -> str:
    return f'<figure><figcaption>{escape(title)}</figcaption><p class="soft">{escape(why)}</p></figure>'


def svg_text(x: float, y: float, content: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def position(share: float, begin: float, end: float) -> float:
    return begin + min(1.0, max(0.0, share)) * (end - begin)
