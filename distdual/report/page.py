"""The page of a run: charts, costs and certificate in one HTML file that needs no network.

live.py serves the same content during a run, and write_report.py saves it afterwards. Without scripts, the page lacks
only its tooltips.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from distdual.report.evaluation_chart import evaluations
from distdual.report.forecast import passes_left, passes_words, recent_rate, recent_workers
from distdual.report.latent_chart import turns
from distdual.report.log_reader import (
    Line,
    beginnings,
    closing,
    events,
    gaps,
    passes,
    seconds,
    staleness,
    timeline,
    workers,
)
from distdual.report.number_format import clock, duration, format_number, percent, short, shown, size
from distdual.report.price import Price, reading_text
from distdual.report.svg_charts import Series, TargetLine, bar_chart, line_chart
from distdual.report.weights import Weight, weights_chart

# The browser may fetch nothing but updates from the page's own server.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
MOST_EVENTS = 200
MOST_WORKERS = 24
NO_ROUND = '<p class="soft">No round has ended yet.</p>'

LEDGER = {
    "passes": "passes over the data set",
    "filled": "of these, to keep workers busy",
    "rounds": "rounds",
    "oracle_calls": "oracle calls",
    "calls_saved": "oracle calls saved",
    "offenders": "offenders sent",
    "kept": "of these, kept",
    "stale": "of these, no longer violated",
    "pruned": "constraints dropped",
    "coalesced": "constraints coalesced",
    "wire_bytes": "rows sent to the coordinator",
    "published_bytes": "weights published",
    "bytes_read": "read from storage",
    "gets": "objects read from storage",
    "read_seconds": "workers reading",
    "scan_seconds": "workers scanning",
    "idle_seconds": "workers idle",
    "wait_seconds": "coordinator waiting for scans",
    "ascent_seconds": "coordinator ascending",
}


class RunView(NamedTuple):
    """The known state of a run."""

    lines: Sequence[Line]
    name: str
    certificate: Mapping[str, Any] | None = None
    target: float | None = None  # the gap to prove
    running: bool = False
    failure: str = ""  # reason for an end without a certificate
    dask: str | None = None  # URL of Dask's dashboard
    price: Price | None = None  # of reading
    weights: Sequence[Weight] = ()  # the largest, of a linear model
    weights_of: str = ""  # what their features are
    trained: str = ""  # what is trained: problem, C, data set and its size
    doing: str = ""  # what keeps a running run from its rounds


def page(run: RunView) -> str:
    """The whole file, with the script that updates it if the run is running."""
    scripts = "".join(f"<script>{asset(name)}</script>" for name in ("page.js", *(["live.js"] if run.running else [])))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title(run))}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{asset('page.css')}</style></head>"
        f'<body><div id="content">{content(run)}</div>{scripts}</body></html>\n'
    )


def asset(name: str) -> str:
    return files("distdual.report").joinpath(name).read_text(encoding="utf-8")


def title(run: RunView) -> str:
    gap = run.lines[-1].get("gap") if run.lines else None
    return f"{run.name} · distdual" if gap is None else f"gap {gap:.1e} · {run.name} · distdual"


def content(run: RunView) -> str:
    """The part of the page that changes during a run."""
    weights = weights_chart(run.weights, run.weights_of)
    if not run.lines:
        return headline(run) + (without_log(weights, run) if run.certificate else NO_ROUND)
    charts = pictures(run) + weights + turns(run.certificate or {}) + what_happened(run.lines)
    tables = ledger(run) + proof(run.certificate)
    return (
        f'{headline(run)}<dl class="tiles">{tiles(run)}</dl><main class="charts">{charts}</main>'
        f'<div class="tables">{tables}</div>'
    )


def without_log(weights: str, run: RunView) -> str:
    note = '<p class="soft">The run wrote no log; with output.log, its bounds over time are drawn here, too.</p>'
    return f'{note}<main class="charts">{weights}{turns(run.certificate or {})}{proof(run.certificate)}</main>'


def headline(run: RunView) -> str:
    style, word = state(run)
    pill = f'<p class="state {style}">{escape(word)}</p>' if word else ""
    link = f'<p><a href="{escape(run.dask)}" target="_blank" rel="noopener">Dask dashboard</a></p>' if run.dask else ""
    quiet = "last round # s ago" if run.lines else "no update for # s"
    news = f'<p class="soft" id="news" data-quiet="{quiet}"></p>' if run.running else ""
    trained = f'<p class="soft">{escape(run.trained)}</p>' if run.trained else ""
    return f'<header><h1>Training run</h1>{pill}{link}<p class="soft">{escape(run.name)}</p>{trained}{news}</header>'


def state(run: RunView) -> tuple[str, str]:
    """Style and text of the state; empty for a log alone, which does not record it."""
    if run.certificate is not None:
        if run.certificate["certified"]:
            return "good", "certified"
        reason = run.certificate.get("reason")
        return "bad", f"not certified: {reason}" if reason else "not certified"
    if run.failure:
        return "bad", f"ended without a certificate: {run.failure}"
    return ("now", run.doing or "running") if run.running else ("", "")


def tiles(run: RunView) -> str:
    last, at = run.lines[-1], seconds(run.lines)
    totals, proven = last["totals"], run.certificate or last
    upper, gap = proven.get("upper"), proven.get("gap")
    target = run.target
    bounds = f"{proven['lower']:.8g} ≤ P(w*)" + ("" if upper is None else f" ≤ {upper:.8g}")
    calls = [float(line["totals"]["oracle_calls"]) for line in run.lines]
    rate = recent_rate(at, calls) if run.running else calls[-1] / max(at[-1], 1e-9)
    found = [
        tile("proven bounds", bounds, "" if upper is not None else "no proven upper bound", "wide"),
        tile("proven gap", "none" if gap is None else f"{gap:.2e}", f"target {target:.1e}" if target else ""),
        tile("passes", f"{totals['passes']:,}", forecast(run) or f"{totals['rounds']:,} rounds"),
        tile("time", clock(at[-1]), ""),
        tile("examples / s", short(round(rate)), f"{short(totals['oracle_calls'])} in total"),
        tile("cache", short(last["cache_rows"]), f"{short(last['support'])} support"),
    ]
    if n_workers := recent_workers(at, [line.get("workers", {}) for line in run.lines]):
        found.append(tile("workers", str(n_workers), "active"))
    return "".join(found)


def forecast(run: RunView) -> str:
    """The passes left, in words; empty if unknown."""
    done = [int(line["totals"]["passes"]) for line in run.lines]
    return passes_words(passes_left(done, gaps(run.lines), run.target)) if run.running and run.target else ""


def tile(name: str, value: str, below: str, style: str = "") -> str:
    small = f'<dd class="below">{escape(below)}</dd>' if below else ""
    return f'<div class="tile {style}"><dt>{escape(name)}</dt><dd class="value">{escape(value)}</dd>{small}</div>'


def pictures(run: RunView) -> str:
    lines = run.lines
    bounds, at = closing(lines), seconds(lines)
    three = [Series("gap", "gap", gaps(lines)), Series("upper", "upper", bounds.upper)]
    three.append(Series("lower", "lower", bounds.lower))
    cache = Series("cached", "upper", [line["cache_rows"] for line in lines])
    support = Series("support, α > 0", "lower", [line["support"] for line in lines])
    chart = partial(
        line_chart,
        series=three,
        log=True,
        cuts=beginnings(lines),
        note="largest possible distance to the optimum, relative to P",
        rule=TargetLine("target", run.target) if run.target else None,
        value_format="{:.2e}".format,
    )
    when = sorted({second for second, _ in events(lines)})
    drawn = [
        chart("Bounds closing over time", "seconds", at, marks=when),
        chart("Bounds closing over passes", "passes", passes(lines), whole=True),
        line_chart("Cache and support", "seconds", at, [cache, support], note="constraints", marks=when),
        evaluations(lines),
        *over_time(lines),
    ]
    return "".join([*drawn, *by_worker(lines), *by_age(lines)])


def over_time(lines: Sequence[Line]) -> list[str]:
    """Charts of coordinator activity and throughput over time."""
    found = timeline(lines)
    intervals = list(zip(found.edges, found.edges[1:], strict=False))
    heads = [f"{begin:.3g} to {end:.3g} seconds" for begin, end in intervals]
    middle = [(begin + end) / 2 for begin, end in intervals]
    ends = [(0.0, "0"), (0.5, format_number(found.edges[-1] / 2)), (1.0, format_number(found.edges[-1]))]
    ascent, scan = ([100 * share for share in shares] for shares in (found.ascent, found.scan))
    both = [Series("optimising", "lower", ascent), Series("waiting for scans", "upper", scan)]
    return [
        bar_chart(
            "Exploring and optimising",
            "seconds",
            both,
            heads,
            ends=ends,
            note="activity of the coordinator, % of its time",
            whole=100.0,
            value_format="{:.0f} %".format,
        ),
        line_chart(
            "Throughput",
            "seconds",
            middle,
            [Series("examples per second", "upper", found.examples)],
            note="oracle calls of all workers",
        ),
    ]


def by_worker(lines: Sequence[Line]) -> list[str]:
    """A chart of examples per busy second of each worker, or of the slowest ones."""
    found = [each for each in workers(lines) if each.busy > 0]
    if not found:
        return []
    slowest = sorted(found, key=lambda each: each.examples / each.busy)[:MOST_WORKERS]
    few = f"the slowest {MOST_WORKERS} of {len(found)} workers; " if len(found) > MOST_WORKERS else ""
    took = max(float(lines[-1]["seconds"]), 1e-9)
    rates = [each.examples / each.busy for each in slowest]
    heads = [f"{each.name}\n{each.examples:,} examples\nbusy {percent(each.busy / took)}" for each in slowest]
    ends = [((bar + 0.5) / len(slowest), str(bar + 1)) for bar in range(0, len(slowest), -(-len(slowest) // 12))]
    note = f"{few}examples per second of work; hover for names"
    series = [Series("examples per second", "upper", rates)]
    return [bar_chart("Workers", "worker", series, heads, ends=ends, note=note)]


def by_age(lines: Sequence[Line]) -> list[str]:
    """A chart of the staleness of reports on arrival."""
    counts = staleness(lines)
    if not sum(counts):
        return []
    heads = [str(age) for age in range(len(counts))]
    note = "weight versions that reports were behind on arrival"
    return [bar_chart("Staleness", "versions", [Series("reports", "lower", counts)], heads, note=note)]


def ledger(run: RunView) -> str:
    totals, last = run.lines[-1]["totals"], run.lines[-1]
    rows = [(words, amount(name, totals[name])) for name, words in LEDGER.items() if name in totals]
    if "gets" in totals:
        rows.append(("reading", reading_text(totals, (run.certificate or {}).get("data_bytes", 0), run.price)))
    rows.append(("constraints in the cache", f"{last['cache_rows']:,}, {size(last.get('cache_bytes', 0))}"))
    rows.append(("whole run", duration(float(last["seconds"]))))
    return html_table("Costs", rows)


def proof(certificate: Mapping[str, Any] | None) -> str:
    """The certificate, except costs, which the ledger shows."""
    if certificate is None:
        return ""
    names = ("lower", "upper", "gap", "estimate", "target", "certified", "reason", "support", "slack", "model")
    rows = [(name, shown(certificate[name])) for name in names if certificate.get(name) is not None]
    return html_table("Certificate", rows)


def what_happened(lines: Sequence[Line]) -> str:
    found = events(lines)[::-1]
    if not found:
        return ""
    few = f", the last {MOST_EVENTS} of {len(found):,}" if len(found) > MOST_EVENTS else ", newest first"
    shown_events = found[:MOST_EVENTS]
    rows = "".join(f"<tr><td>{duration(at)}</td><td>{escape(event)}</td></tr>" for at, event in shown_events)
    return f'<section class="events"><h2>Events{few}</h2><table>{rows}</table></section>'


def html_table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<section><h2>{escape(title)}</h2><table>{cells}</table></section>"


def amount(name: str, value: float) -> str:
    if name.endswith("bytes") or name == "bytes_read":
        return size(value)
    return duration(value) if name.endswith("seconds") else f"{value:,}"
