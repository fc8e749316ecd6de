"""How is a series drawn so that it can be read on paper, on a phone and in the dark? As SVG, colours left to the page.

Everything is drawn in a box of 360 × 250, which the page scales: text stays readable where it is 340 pixels wide.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from distdual.report.progress import short

WIDTH, HEIGHT = 360, 250
LEFT, RIGHT, TOP, BOTTOM = 50, 346, 30, 206
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MOST_POINTS = 400  # of a line, more cannot be told apart


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
) -> str:
    """Lines over x, one for each series, cut before the points `cuts` and where a value is None."""
    known = [value for each in series for value in each.y if value is not None]
    if not known:
        return empty(title, "nothing was proven that could be drawn")
    across = linear_axis(max(x), min(x))
    up = log_axis(known) if log else linear_axis(max(known))
    drawn = "".join(line(each, x, cuts, across, up) for each in series)
    return frame(title, note, x_label, legend(series, "line"), axes(across, up) + drawn)


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


def bar_chart(title: str, x_label: str, labels: Sequence[int], series: Sequence[Series], note: str = "") -> str:
    """Stacked bars, the first series at the bottom; `labels` are written below the first and the last bar."""
    sums = [sum(values) for values in zip(*([v or 0.0 for v in each.y] for each in series), strict=True)]
    up = linear_axis(max(sums))
    width = (RIGHT - LEFT) / len(sums)
    drawn = []
    for bar in range(len(sums)):
        bottom = 0.0
        for each in series:
            top = bottom + (each.y[bar] or 0.0)
            y0, y1 = (place(up.at(value), BOTTOM, TOP) for value in (bottom, top))
            box = f'x="{LEFT + bar * width + 0.1 * width:.2f}" width="{0.8 * width:.2f}" y="{y1:.2f}"'
            tip = f"<title>{escape(each.name)}, to round {labels[bar]}: {top - bottom:.3g} s</title>"
            drawn.append(f'<rect class="bar {each.style}" {box} height="{max(0.0, y0 - y1):.2f}">{tip}</rect>')
            bottom = top
    ends = text(LEFT, BOTTOM + 17, "1") + (text(RIGHT, BOTTOM + 17, str(labels[-1])) if labels[-1] > 1 else "")
    return frame(title, note, x_label, legend(series, "bar"), vertical(up) + ends + "".join(drawn))


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


def legend(series: Sequence[Series], kind: str) -> str:
    at, keys = LEFT, []
    for each in series:
        look = f'class="{kind} {each.style}"'
        sample = f'<path {look} d="M{at} 14h18"/>' if kind == "line" else f'<path {look} d="M{at} 9h12v10h-12z"/>'
        keys.append(sample + text(at + 23, 18, each.name, "start"))
        at += 40 + round(6.6 * len(each.name))
    return "".join(keys)


def frame(title: str, note: str, x_label: str, keys: str, content: str) -> str:
    """A figure with its title, its legend and what is in it."""
    below = text((LEFT + RIGHT) / 2, HEIGHT - 6, x_label)
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}"'
    small = f'<p class="soft">{escape(note)}</p>' if note else ""
    return f"<figure><figcaption>{escape(title)}</figcaption>{small}<svg {box}>{keys}{content}{below}</svg></figure>"


def empty(title: str, why: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption><p>{escape(why)}</p></figure>"


def text(x: float, y: float, content: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def place(share: float, begin: float, end: float) -> float:
    return begin + min(1.0, max(0.0, share)) * (end - begin)


def number(value: float) -> str:
    return short(round(value)) if value >= 1000 else f"{value:.3g}"


def power(value: float) -> str:
    """A power of ten as a person writes it."""
    exponent = round(math.log10(value))
    return f"{value:g}" if abs(exponent) <= 2 else f"10{str(exponent).translate(RAISED)}"
