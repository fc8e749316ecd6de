"""JSON of files that others may have written, and floats that it cannot hold.

These are null in logs and certificates, and "inf" in snapshots, which must read back exactly.
"""

import json
import math
from collections.abc import Mapping
from typing import Any


def parsed_json(content: str | bytes) -> Any:
    """The value of a JSON text; a ValueError also where it is nested too deeply for Python's reader."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def finite_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace floats that are not finite by None; nested values stay as they are."""
    return {name: finite_or_none(value) if isinstance(value, float) else value for name, value in values.items()}


def infinite_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace None by infinity, which `finite_values` turned it into."""
    return {name: math.inf if value is None else value for name, value in values.items()}


def without_infinity(value: Any) -> Any:
    """Replace infinity by "inf" and tuples by lists, at any depth."""
    if isinstance(value, Mapping):
        return {name: without_infinity(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_infinity(each) for each in value]
    return "inf" if isinstance(value, float) and value == math.inf else value


def with_infinity(value: Any) -> Any:
    """Replace "inf" by infinity, at any depth."""
    if isinstance(value, dict):
        return {name: with_infinity(each) for name, each in value.items()}
    if isinstance(value, list):
        return [with_infinity(each) for each in value]
    return math.inf if isinstance(value, str) and value == "inf" else value
