"""Charts as PNG files by matplotlib, which is optional: pip install matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distdual.errors import InputError
from distdual.report.log_reader import (
    Curve,
    Line,
    beginnings,
    closing,
    gaps,
    passes,
    seconds,
    staleness,
    timeline,
    workers,
)

UPPER, LOWER, SOFT, TARGET = "#c2410c", "#0b62c4", "#60646c", "#18794e"
NO_MATPLOTLIB = "a PNG needs matplotlib, which is not installed: pip install matplotlib"


def has_matplotlib() -> bool:
    try:
        new_figure(1, 1)
    except InputError:
        return False
    return True


def new_figure(width: float, height: float) -> Any:
    """A figure outside pyplot, which opens no window."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(NO_MATPLOTLIB) from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plot_run(lines: Sequence[Line], name: str, path: Path, target: float | None = None) -> None:
    """Plot the charts of the report."""
    drawings = [draw_over_time, draw_over_passes, draw_cache, draw_timeline, draw_throughput]
    drawings += [draw_workers] if any(each.busy > 0 for each in workers(lines)) else []
    drawings += [draw_staleness] if sum(staleness(lines)) else []
    rows = -(-len(drawings) // 3)
    figure = new_figure(15, 4 * rows)
    figure.suptitle(name, fontsize="medium", color=SOFT)
    every = list(figure.subplots(rows, 3).flat)
    for axes, draw in zip(every, drawings, strict=False):
        draw(axes, lines)
    for axes in every[:2] if target else []:
        axes.axhline(target, color=TARGET, linestyle=":", linewidth=1.2, label="target")
    for axes in every[len(drawings) :]:
        axes.remove()
    finish(figure, every[: len(drawings)], path)


def draw_over_time(axes: Any, lines: Sequence[Line]) -> None:
    axes.set_title("Bounds closing over time")
    draw_bounds(axes, lines, seconds(lines), "seconds")


def draw_over_passes(axes: Any, lines: Sequence[Line]) -> None:
    axes.set_title("Bounds closing over passes")
    draw_bounds(axes, lines, passes(lines), "passes")


def draw_bounds(axes: Any, lines: Sequence[Line], x: Sequence[float], label: str) -> None:
    bounds = closing(lines)
    for y, called, colour, style in (
        (gaps(lines), "gap", SOFT, ":"),
        (bounds.upper, "upper", UPPER, "-"),
        (bounds.lower, "lower", LOWER, "--"),
    ):
        axes.plot(*with_breaks(x, y, beginnings(lines)), style, color=colour, marker=".", label=called)
        if any(y):
            axes.set_yscale("log")
    axes.set_ylabel("largest distance to the optimum / P")
    axes.set_xlabel(label)


def draw_cache(axes: Any, lines: Sequence[Line]) -> None:
    axes.set_title("Cache and support")
    axes.plot(seconds(lines), [line["cache_rows"] for line in lines], color=UPPER, label="cached")
    axes.plot(seconds(lines), [line["support"] for line in lines], "--", color=LOWER, label="support, α > 0")
    axes.set_xlabel("seconds")
    axes.set_ylabel("constraints")
    axes.set_ylim(bottom=0)


def draw_timeline(axes: Any, lines: Sequence[Line]) -> None:
    found = timeline(lines)
    width = found.edges[1]
    axes.set_title("Exploring and optimising")
    axes.bar(found.edges[:-1], found.ascent, width, align="edge", color=LOWER, label="optimising")
    axes.bar(
        found.edges[:-1], found.scan, width, bottom=found.ascent, align="edge", color=UPPER, label="waiting for scans"
    )
    axes.set_xlabel("seconds")
    axes.set_ylabel("share of the coordinator's time")
    axes.set_ylim(0, 1)


def draw_throughput(axes: Any, lines: Sequence[Line]) -> None:
    found = timeline(lines)
    axes.set_title("Throughput")
    axes.plot(np.array(found.edges[:-1]) + found.edges[1] / 2, found.examples, color=UPPER, label="all workers")
    axes.set_xlabel("seconds")
    axes.set_ylabel("examples per second")
    axes.set_ylim(bottom=0)


def draw_workers(axes: Any, lines: Sequence[Line]) -> None:
    rates = sorted(each.examples / each.busy for each in workers(lines) if each.busy > 0)
    axes.set_title("Workers")
    axes.bar(range(1, 1 + len(rates)), rates, color=UPPER, label="examples per second of work")
    axes.set_xlabel("worker, slowest first")


def draw_staleness(axes: Any, lines: Sequence[Line]) -> None:
    counts = staleness(lines)
    axes.set_title("Staleness")
    axes.bar(range(len(counts)), counts, color=LOWER, label="reports")
    axes.set_xlabel("weight versions that reports were behind on arrival")


def with_breaks(x: Sequence[float], y: Curve, cuts: Sequence[int]) -> tuple[Any, Any]:
    """The points of a line with breaks before the indices `cuts`."""
    values = np.array([value or np.nan for value in y], dtype=np.float64)
    return np.insert(np.array(x), cuts, np.nan), np.insert(values, cuts, np.nan)


def plot_sweep(table: Mapping[str, Any], path: Path) -> None:
    """Plot held-out score and proven gap over C, from the table of a sweep."""
    figure = new_figure(8, 7 if table["scores"] else 4)
    values = [point["C"] for point in table["points"]]
    if table["scores"]:
        above, below = figure.subplots(2, 1, sharex=True)
        by_fold = np.array(table["scores"][table["score"]])
        for fold in by_fold:
            above.plot(values, fold, color=LOWER, alpha=0.25, linewidth=1)
        above.plot(values, by_fold.mean(axis=0), color=LOWER, marker="o", label=f"mean of {len(by_fold)} folds")
        above.axvline(table["chosen"], color=UPPER, linestyle="--", label=f"chosen: C = {table['chosen']:g}")
        above.set_ylabel(f"{table['score']}, held out")
    else:
        above, below = None, figure.subplots()
    gaps = [np.nan if point["gap"] is None else point["gap"] for point in table["points"]]
    below.plot(values, gaps, color=UPPER, marker="o", label="proven gap, all data")
    below.set_ylim(bottom=0)
    below.set_ylabel("gap")
    below.set_xlabel("C")
    below.set_xscale("log")
    finish(figure, [axes for axes in (above, below) if axes is not None], path)


def finish(figure: Any, every: Sequence[Any], path: Path) -> None:
    for axes in every:
        axes.grid(alpha=0.3)
        axes.legend()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110, format="png")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
