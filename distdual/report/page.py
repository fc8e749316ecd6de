"""What stays of a run? One HTML file with pictures, costs and the certificate; it needs no network and no script."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

from distdual.report.charts import Series, bar_chart, line_chart
from distdual.report.history import Line, beginnings, closing, events, passes, seconds, work
from distdual.report.latent import turns
from distdual.report.progress import clock

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2024; --soft: #60646c; --grid: #e2e4e8; --card: #f7f8fa;
  --upper: #c2410c; --lower: #0b62c4; --second: #0b62c4; --first: #c2410c; --good: #18794e; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --paper: #111317; --ink: #e8eaed; --soft: #a3a8b0; --grid: #30343b;
  --card: #1a1d22; --upper: #ff9d66; --lower: #6cb2ff; --second: #6cb2ff; --first: #ff9d66; --good: #5fd39b;
  --bad: #ff8a7d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 20px 16px 40px; max-width: 1260px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.45rem; margin: 0 0 4px; } h2 { font-size: 1.1rem; margin: 0 0 6px; }
p { margin: 4px 0; } .soft { color: var(--soft); overflow-wrap: anywhere; }
.certificate { font-size: 1.15rem; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.charts, .tables { display: grid; gap: 16px; margin-top: 16px; align-items: start; }
.charts { grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); align-items: stretch; }
.tables { grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); }
figure, section { margin: 0; padding: 12px; background: var(--card); border: 1px solid var(--grid); border-radius: 8px;
  min-width: 0; }
figcaption { font-weight: 600; }
svg { display: block; width: 100%; max-width: 500px; height: auto; margin: 0 auto; }
svg text { fill: var(--soft); font-size: 12px; }
figure .soft { font-size: 0.85rem; margin: 0 0 4px; }
.grid { stroke: var(--grid); stroke-width: 1; } .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.upper { stroke: var(--upper); } .line.lower { stroke: var(--lower); stroke-dasharray: 6 3; }
.line.first { stroke: var(--first); } .line.second { stroke: var(--second); stroke-dasharray: 6 3; }
.dot.upper { fill: var(--upper); } .dot.lower { fill: var(--lower); } .dot.first { fill: var(--first); }
.dot.second { fill: var(--second); } .bar.first { fill: var(--first); } .bar.second { fill: var(--second); }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
th { font-weight: 400; text-align: left; color: var(--soft); padding-right: 12px; }
td { text-align: right; overflow-wrap: anywhere; }
td:first-child { text-align: left; white-space: nowrap; padding-right: 12px; }
th + td:last-child { text-align: right; } .events td:last-child { text-align: left; }
"""

LEDGER = {
    "passes": "passes over the data set",
    "rounds": "rounds",
    "oracle_calls": "oracle calls",
    "calls_saved": "oracle calls saved",
    "offenders": "offenders sent",
    "pruned": "constraints dropped",
    "coalesced": "constraints coalesced",
    "wire_bytes": "rows sent to the coordinator",
    "bytes_read": "read from storage",
    "gets": "objects read from storage",
    "read_seconds": "workers reading",
    "scan_seconds": "workers scanning",
    "wait_seconds": "coordinator waiting for scans",
    "ascent_seconds": "coordinator ascending",
}


def page(lines: Sequence[Line], name: str, certificate: Mapping[str, Any] | None = None) -> str:
    """The report of a run; `certificate` is that of its model, if it is known."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(name)} · distdual</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body>"
        f'{headline(lines, name, certificate)}<main class="charts">{pictures(lines)}</main>'
        f'<div class="tables">{ledger(lines)}{proof(certificate)}{what_happened(lines)}</div></body></html>\n'
    )


def headline(lines: Sequence[Line], name: str, certificate: Mapping[str, Any] | None) -> str:
    last = certificate or lines[-1]
    upper, gap = last.get("upper"), last.get("gap")
    bounds = f"{last['lower']:.8g} ≤ P(w*)" + ("" if upper is None else f" ≤ {upper:.8g}")
    proven = "no upper bound is proven" if gap is None else f"proven gap {gap:.2e}"
    if certificate is not None:
        style, word = ("good", "certified") if certificate["certified"] else ("bad", "not certified")
        proven = f'<span class="{style}">{word}</span>, {proven}, target {certificate["target"]:.2e}'
    took = f"{lines[-1]['totals']['passes']} passes in {duration(float(lines[-1]['seconds']))}"
    return (
        f'<h1>Training run</h1><p class="soft">{escape(name)}</p><p class="certificate">{escape(bounds)}</p>'
        f"<p>{proven} · {escape(took)}</p>"
    )


def pictures(lines: Sequence[Line]) -> str:
    bounds, at, done, cuts = closing(lines), seconds(lines), work(lines), beginnings(lines)
    both = [Series("upper", "upper", bounds.upper), Series("lower", "lower", bounds.lower)]
    cache = Series("cached", "first", [line["cache_rows"] for line in lines])
    support = Series("support, α > 0", "second", [line["support"] for line in lines])
    bars = [Series("scan", "first", done.scan), Series("ascent", "second", done.ascent)]
    note = "how far each bound may be from the optimum, relative to P"
    spent = "seconds in which the coordinator waited for scans and ascended"
    chart = partial(line_chart, series=both, log=True, cuts=cuts, note=note)
    return "".join(
        [
            chart("Bounds closing over time", "seconds", at),
            chart("Bounds closing over passes", "passes over the data set", passes(lines)),
            line_chart("Cache and support", "seconds", at, [cache, support], note="constraints"),
            bar_chart("Exploring and optimising", "round", done.rounds, bars, spent),
        ]
    )


def ledger(lines: Sequence[Line]) -> str:
    totals, last = lines[-1]["totals"], lines[-1]
    rows = [(words, amount(name, totals[name])) for name, words in LEDGER.items() if name in totals]
    rows.append(("constraints in the cache", f"{last['cache_rows']:,}, {size(last.get('cache_bytes', 0))}"))
    rows.append(("whole run", duration(float(last["seconds"]))))
    return table("What it cost", rows)


def proof(certificate: Mapping[str, Any] | None) -> str:
    """The certificate word for word, costs left to the ledger."""
    if certificate is None:
        return ""
    names = ("lower", "upper", "gap", "estimate", "target", "certified", "reason", "support", "slack", "model")
    rows = [(name, shown(certificate[name])) for name in names if certificate.get(name) is not None]
    return table("Certificate", rows) + turns(certificate)


def what_happened(lines: Sequence[Line]) -> str:
    found = events(lines)
    if not found:
        return ""
    rows = "".join(f"<tr><td>{duration(at)}</td><td>{escape(event)}</td></tr>" for at, event in found)
    return f'<section class="events"><h2>Events</h2><table>{rows}</table></section>'


def table(title: str, rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<section><h2>{escape(title)}</h2><table>{cells}</table></section>"


def amount(name: str, value: float) -> str:
    if name.endswith("bytes") or name == "bytes_read":
        return size(value)
    return duration(value) if name.endswith("seconds") else f"{value:,}"


def duration(value: float) -> str:
    return f"{1000 * value:.3g} ms" if value < 0.9995 else clock(value)


def size(n_bytes: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}" if math.isfinite(value) else "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
