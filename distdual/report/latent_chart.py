"""The chart of a latent problem's objective over turns, from the trace in its certificate."""

from collections.abc import Mapping
from typing import Any

from distdual.report.svg_charts import Series, line_chart


def turns(certificate: Mapping[str, Any]) -> str:
    """The chart of the best restart, or an empty string if the problem is not latent."""
    trace = certificate.get("latent", {}).get("trace", [])
    if not trace:
        return ""
    found = [
        Series("objective", "upper", [turn["objective"] for turn in trace]),
        Series("upper bound of the convex problem", "lower", [turn["upper"] for turn in trace]),
    ]
    kept = f"restart {trace[-1]['restart'] + 1} of {len(certificate['latent']['restarts'])}, the lowest"
    numbers = [float(number) for number in range(1, len(trace) + 1)]
    return line_chart("Objective over turns", "turn", numbers, found, note=f"P(w) with the best latent values; {kept}")
