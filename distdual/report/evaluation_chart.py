"""The chart of scores on another data set over passes, from the lines of a run that evaluates while it trains."""

from collections.abc import Sequence

from distdual.report.log_reader import Line, passes
from distdual.report.svg_charts import Series, line_chart

STYLES = ("upper", "lower", "gap")  # as many scores as are drawn
DRAWN_AS = {"accuracy": "error, %"}  # of a fraction near 1, what is missing says more


def evaluations(lines: Sequence[Line]) -> str:
    """The chart, or an empty string for a run without evaluations."""
    scored = [(at, line["scores"]) for at, line in zip(passes(lines), lines, strict=True) if line.get("scores")]
    if not scored:
        return ""
    names = list(scored[0][1])[: len(STYLES)]
    series = [
        Series(DRAWN_AS.get(name, name), style, [value_drawn(name, scores.get(name)) for _, scores in scored])
        for name, style in zip(names, STYLES, strict=False)
    ]
    note = "scores of certified weights on the data set of eval.url; error is 100 % − accuracy"
    return line_chart(
        "Validation over passes", "passes", [at for at, _ in scored], series, note=note, zoom=True, whole=True
    )


def value_drawn(name: str, value: float | None) -> float | None:
    return 100 * (1.0 - value) if name == "accuracy" and value is not None else value
