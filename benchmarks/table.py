"""Tables of plain values, the results of suites other than races."""

from typing import Any, NamedTuple


class Table(NamedTuple):
    name: str
    title: str
    columns: list[str]
    rows: list[list[Any]]
    note: str = ""


def markdown(columns: list[str], rows: list[list[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *([cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return number(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def number(value: float) -> str:
    """Three digits, without an exponent if possible."""
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.2e}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
