"""Certificates, verifications and tables as the command line prints them."""

from typing import Any

from distdual.cli.options import (
    advice,
    stdout,
)
from distdual.report.number_format import counted

MOST_LISTED = 50


def show_certificate(certificate: dict[str, Any]) -> None:
    word = "certified" if certificate["certified"] else "NOT certified"
    stdout.print(f"{word}: {bounds(certificate)}")
    why = "" if certificate["certified"] else f"; stopped: {certificate['reason']}"
    gap = "none proven" if certificate["gap"] is None else f"{certificate['gap']:.2e}"
    stdout.print(f"gap        {gap}, target {certificate['target']:.2e}{why}")
    if certificate.get("relaxed"):
        stdout.print(f"relaxed    {certificate['relaxed']:.2e} of the gap is what the oracle's bounds leave open")
    if latent := certificate.get("latent"):
        stdout.print(
            f"latent     objective {latent['objective']:.8g} after {len(latent['trace'])} turns; "
            "the bounds belong to the last convex problem"
        )
    stdout.print(
        f"cost       {counted(certificate['passes'], 'pass')}, {counted(certificate['oracle_calls'], 'oracle call')}, "
        f"{counted(certificate['support'], 'support constraint')}, {certificate['seconds']:.1f} s"
    )
    if not certificate["certified"]:
        stdout.print(f"next       {advice(certificate)}")


def bounds(found: dict[str, Any]) -> str:
    """The proven bounds; with inexact inference, the lower bound alone."""
    if found["estimate"] is not None:
        return f"{found['lower']:.8g} ≤ P(w*); P(w) is about {found['estimate']:.8g} or more, by inexact inference"
    return f"{found['lower']:.8g} ≤ P(w*) ≤ {found['upper']:.8g}"


def show_verification(checked: dict[str, Any]) -> None:
    word = "verified" if checked["certified"] else "NOT verified"
    whose = "as given" if checked["target_given"] else "the model's own"
    gap = f", gap {checked['gap']:.2e}, target {checked['target']:.2e} ({whose})"
    stdout.print(f"{word}: {bounds(checked)}{gap if checked['estimate'] is None else ''}")
    if checked["relaxed"]:
        stdout.print(f"relaxed    {checked['relaxed']:.2e} of the gap is what the oracle's bounds leave open")
    if checked["objective"] is not None:
        stdout.print(f"latent     objective {checked['objective']:.8g}; the bounds belong to the last convex problem")
    if checked["appended"]:
        stdout.print(
            f"  of the first {counted(checked['n_shards'], 'shard')}; {checked['appended']} were appended later"
        )
    for finding in checked["findings"]:
        stdout.print(f"  - {finding}")
    if not checked["certified"] and not checked["findings"]:
        stdout.print(f"  - everything checks out, but the gap exceeds the target {checked['target']:.2e}: train longer")


def show_table(table: dict[str, Any], indent: str = "") -> None:
    for name, value in table.items():
        if isinstance(value, dict):
            stdout.print(f"{indent}{name}")
            show_table(value, indent + "  ")
        else:
            text = comma_list(value) if isinstance(value, list) else value
            stdout.print(f"{indent}{name:<14} {text}")


def comma_list(values: list[Any]) -> str:
    """The first values of a list."""
    more = f" and {len(values) - MOST_LISTED:,} more" if len(values) > MOST_LISTED else ""
    return ", ".join(map(str, values[:MOST_LISTED])) + more
