"""Short text for counts, times, sizes and powers of ten."""

import math
from typing import Any

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def short(count: int) -> str:
    """A count in at most 7 characters: 12,345 or 12.3 M."""
    if count < 100_000:
        return f"{count:,}"
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if count < 999.5 * size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 1e12:.3g} T"


def counted(n: int, thing: str) -> str:
    """A number of things: 1 shard, 2 shards, 3 passes."""
    plural = f"{thing}{'es' if thing.endswith('s') else 's'}"
    return f"{n:,} {thing if n == 1 else plural}"


def format_number(value: float) -> str:
    return short(round(value)) if value >= 1000 else f"{value:.3g}"


def power(value: float) -> str:
    """A power of ten, such as 0.01 or 10⁻³."""
    exponent = round(math.log10(value))
    return f"{value:g}" if abs(exponent) <= 2 else f"10{str(exponent).translate(RAISED)}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def clock(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def duration(value: float) -> str:
    return f"{1000 * value:.3g} ms" if value < 0.9995 else clock(value)


def size(n_bytes: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def shown(value: Any) -> str:
    """Any value of a certificate as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}" if math.isfinite(value) else "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
