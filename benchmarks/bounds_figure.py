"""The figure of converging bounds in README.md and docs/index.md, drawn from a run log.

    python -m benchmarks.bounds_figure RUN.jsonl [--out docs/bounds.svg]

The log of `distdual train` has a line per round: D(α) is a lower bound at any moment, P(w) an upper bound after a
complete scan. Text is large enough to be read at a width of 400 pixels.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from distdual.report.log_reader import Line, passes, read_log

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 610, 46, 246
UPPER, LOWER, TEXT, SOFT = "#c2410c", "#0b62c4", "#1f2328", "#d0d4da"
PAGE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"
  font-family="sans-serif" font-size="17">
<title>Lower and upper bound on the optimal objective closing over passes</title>
<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>
{parts}
</svg>
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("log", type=Path, metavar="RUN.jsonl")
    arguments.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "bounds.svg")
    told = arguments.parse_args()
    told.out.write_text(figure(read_log(told.log)), encoding="utf-8")


def figure(lines: Sequence[Line]) -> str:
    at = passes(lines)
    lower, upper = (
        [(x, line[name]) for x, line in zip(at, lines, strict=True) if line.get(name) is not None]
        for name in ("lower", "upper")
    )
    lower = [point for point in lower if point[0] >= 1]  # before, few examples have constraints
    end, high, low = at[-1], max(y for _, y in upper), min(y for _, y in lower)
    top, floor = high + 0.15 * (high - low), low - 0.3 * (high - low)

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + (RIGHT - LEFT) * x / end, BOTTOM - (BOTTOM - TOP) * (y - floor) / (top - floor)

    gap = (upper[-1][1] - lower[-1][1]) / upper[-1][1]
    parts = [
        *(tick(*place(x, floor), f"{x}") for x in range(1 + int(end))),
        f'<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="{TEXT}"/>',
        curve([place(*point) for point in lower], LOWER),
        curve([place(*point) for point in upper], UPPER),
        *(dot(*place(*point), LOWER) for point in lower),
        *(dot(*place(*point), UPPER) for point in upper),
        *(text(LEFT - 8, place(0, y)[1] + 6, f"{y:.0f}", TEXT, "end") for y in (low, high)),
        text(place(*upper[0])[0] + 14, place(*upper[0])[1] + 4, "upper bound: P(w) of a complete scan", UPPER, "start"),
        text(place(*lower[0])[0] + 14, place(*lower[0])[1] + 24, "lower bound: D(α), at any moment", LOWER, "start"),
        text(RIGHT, 26, f"{lower[-1][1]:.5g} ≤ P(w*) ≤ {upper[-1][1]:.5g}, proven gap {gap:.1e}", TEXT, "end"),
        text((LEFT + RIGHT) / 2, HEIGHT - 8, "passes over the data", TEXT, "middle"),
    ]
    return PAGE.format(width=WIDTH, height=HEIGHT, parts="\n".join(parts))


def curve(points: Sequence[tuple[float, float]], colour: str) -> str:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>'


def dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'


def tick(x: float, y: float, name: str) -> str:
    return f'<path d="M{x:.1f} {TOP}V{y:.1f}" stroke="{SOFT}"/>{text(x, y + 22, name, TEXT, "middle")}'


def text(x: float, y: float, words: str, colour: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{words}</text>'


if __name__ == "__main__":
    main()
