"""Pictures as PNG files, drawn by matplotlib, which only they need: pip install 'distdual[report]'."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distdual.errors import InputError
from distdual.report.history import Line, Values, beginnings, closing, passes, seconds, work

UPPER, LOWER, SOFT = "#c2410c", "#0b62c4", "#60646c"
MISSING = "a PNG needs matplotlib, which is not installed: pip install 'distdual[report]'"


def new_figure(width: float, height: float) -> Any:
    """A figure of its own, which no window knows."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(MISSING) from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plot_run(lines: Sequence[Line], name: str, path: Path) -> None:
    """The four pictures of the report."""
    figure = new_figure(11, 7.5)
    (over_time, over_passes), (cache, rounds) = figure.subplots(2, 2)
    figure.suptitle(name, fontsize="medium", color=SOFT)
    bounds, at = closing(lines), seconds(lines)
    for axes, x, label in ((over_time, at, "seconds"), (over_passes, passes(lines), "passes over the data set")):
        axes.set_title("Bounds closing over time" if axes is over_time else "Bounds closing over passes")
        axes.set_ylabel("distance to the optimum / P, at most")
        for y, called, colour, style in ((bounds.upper, "upper", UPPER, "-"), (bounds.lower, "lower", LOWER, "--")):
            axes.plot(*apart(x, y, beginnings(lines)), style, color=colour, marker=".", label=called)
        if any(bounds.upper) or any(bounds.lower):
            axes.set_yscale("log")
        axes.set_xlabel(label)
    cache.set_title("Cache and support")
    cache.plot(at, [line["cache_rows"] for line in lines], color=UPPER, label="cached")
    cache.plot(at, [line["support"] for line in lines], "--", color=LOWER, label="support, α > 0")
    cache.set_xlabel("seconds")
    cache.set_ylabel("constraints")
    cache.set_ylim(bottom=0)
    done = work(lines)
    where = range(len(done.rounds))
    rounds.set_title("Exploring and optimising")
    rounds.bar(where, done.scan, color=UPPER, label="scan")
    rounds.bar(where, done.ascent, bottom=done.scan, color=LOWER, label="ascent")
    shown = sorted({*where[:: -(-len(where) // 8)], len(where) - 1})
    rounds.set_xticks(shown, [str(done.rounds[bar]) for bar in shown])
    rounds.set_xlabel("round")
    rounds.set_ylabel("seconds")
    finish(figure, (over_time, over_passes, cache, rounds), path)


def apart(x: Sequence[float], y: Values, cuts: Sequence[int]) -> tuple[Any, Any]:
    """The points of a line that is cut before some of them."""
    values = np.array([value or np.nan for value in y], dtype=np.float64)
    return np.insert(np.array(x), cuts, np.nan), np.insert(values, cuts, np.nan)


def plot_sweep(told: Mapping[str, Any], path: Path) -> None:
    """Held-out score and proven gap over C; `told` is the table of a sweep."""
    figure = new_figure(8, 7 if told["scores"] else 4)
    values = [point["C"] for point in told["points"]]
    if told["scores"]:
        above, below = figure.subplots(2, 1, sharex=True)
        by_fold = np.array(told["scores"][told["score"]])
        for fold in by_fold:
            above.plot(values, fold, color=LOWER, alpha=0.25, linewidth=1)
        above.plot(values, by_fold.mean(axis=0), color=LOWER, marker="o", label=f"mean of {len(by_fold)} folds")
        above.axvline(told["chosen"], color=UPPER, linestyle="--", label=f"chosen: C = {told['chosen']:g}")
        above.set_ylabel(f"{told['score']}, held out")
    else:
        above, below = None, figure.subplots()
    gaps = [np.nan if point["gap"] is None else point["gap"] for point in told["points"]]
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
