"""Sample lines of run logs: an old format, and an asynchronous run on a cluster."""

import math
from typing import Any

from distdual.report.round_log import Round


def line(lower: float, upper: float | None, **more: Any) -> dict[str, Any]:
    """A line of an old log without workers; `more` goes into its totals."""
    totals = {"passes": 1, "rounds": 1, "oracle_calls": 10, "wait_seconds": 0.5, "ascent_seconds": 1.0}
    fields = {"seconds": 1.0, "cache_rows": 5, "support": 4, "certify": False, "totals": {**totals, **more}}
    return {**fields, "lower": lower, "upper": upper, "gap": None, "events": []}


def asynchronous(n: int = 30) -> list[dict[str, Any]]:
    """A run on three workers, one of them slow and lost halfway."""
    lines = []
    for at in range(1, n + 1):
        names = ["tcp://10.0.0.1:4001", "tcp://10.0.0.2:4001", "tcp://10.0.0.3:4001"][: 3 if at < n / 2 else 2]
        upper = None if at < 3 else 100 + 60 * math.exp(-at / 4)
        lower = 100 - 50 * math.exp(-at / 5)
        totals = {"passes": at // 3, "oracle_calls": 1000 * at, "wait_seconds": 0.2 * at, "ascent_seconds": 0.6 * at}
        made = line(lower, upper, rounds=at, **totals)
        made["gap"] = None if upper is None else (upper - lower) / upper
        made |= {"seconds": float(at), "certify": at % 3 == 0, "cache_rows": 100 * at, "support": 80 * at}
        made["staleness"] = [5, 3, 1] if at % 2 else [4, 2]
        made["workers"] = {name: [400 - 150 * number, 0.7] for number, name in enumerate(names)}
        lost = "worker tcp://10.0.0.3:4001 is gone; its 2 scans run elsewhere"
        made["events"] = [lost] if at == n // 2 else []
        lines.append(made)
    return lines


def round_of(made: dict[str, Any]) -> Round:
    """The Round that such a line records."""
    inf = math.inf
    upper, gap = (inf if made[name] is None else made[name] for name in ("upper", "gap"))
    bounds = (made["certify"], made["lower"], upper, gap, inf)
    sizes = (made["cache_rows"], 8, made["support"], made["totals"])
    lists = {name: made.get(name, empty) for name, empty in (("staleness", []), ("workers", {}))}
    return Round(made["seconds"], 1, 3, *bounds, *sizes, events=made["events"], **lists)
