"""Convergence plots, one per case: distdual's proven gap by round, peers' distance to the optimum by effort."""

from pathlib import Path
from typing import Any


def draw(record: dict[str, Any], folder: Path) -> None:
    """Write FOLDER/CASE.png for every race that has something to show."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    for race in record["races"]:
        figure, axes = plt.subplots(figsize=(7, 4.5))
        for line in race["solvers"]:
            points = curve_of(line)
            if points:
                style = {"linewidth": 2.2, "color": "black"} if "curve" in line else {"marker": "o", "linewidth": 1}
                axes.plot(*zip(*points, strict=True), label=line["solver"], **style)
        axes.axhline(race["goal"], color="grey", linewidth=0.8, linestyle=":")
        axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="(P − best lower bound) / P", title=race["title"])
        axes.legend(fontsize=8)
        figure.tight_layout()
        figure.savefig(folder / f"{race['case']}.png", dpi=120)
        plt.close(figure)


def curve_of(line: dict[str, Any]) -> list[tuple[float, float]]:
    """Seconds and gap; the gap that distdual has proven, the true one of peers, in the order of time."""
    if line.get("curve"):
        return [(seconds, gap) for seconds, gap in line["curve"] if gap > 0]
    found = [(seconds, gap) for _, seconds, gap in line.get("points", []) if gap is not None and gap > 0]
    return sorted(found)
