"""What do the commands share? Options, where they print, and how they find what an argument names."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from distdual.cli.completion import complete_setting
from distdual.config import TLS, check_address
from distdual.json_floats import finite_values

NOT_CERTIFIED = 1
BAD_INPUT = 2
INTERRUPTED = 130

# Paths may hold brackets and colons: nothing that is printed is read as markup.
screen = Console(stderr=True, highlight=False, markup=False, emoji=False)
paper = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def check_scheduler(_: click.Context, __: click.Parameter, address: str | None) -> str | None:
    if address is not None:
        check_address("--scheduler", address)
    return address


def scheduler_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds --scheduler and how to encrypt; the command gets them as `scheduler`, keys of [cluster] that were given."""

    @functools.wraps(command)
    def called(*, scheduler: str | None, **others: Any) -> int:
        told = {"scheduler": scheduler, **{name: others.pop(name) for name in TLS}}
        return command(scheduler={name: value for name, value in told.items() if value is not None}, **others)

    texts = ("The scheduler's authority, a PEM file; for tls:// addresses.", "The certificate to show it.", "Its key.")
    made: Callable[..., int] = called
    for name, text in zip(reversed(TLS), reversed(texts), strict=True):  # click lists the last one first
        made = click.option(f"--{name.replace('_', '-')}", name, metavar="FILE", help=text)(made)
    return click.option(
        "--scheduler", metavar="ADDR", callback=check_scheduler, help="A running Dask scheduler, e.g. tcp://host:8786."
    )(made)


problem_option = click.option(
    "--problem",
    metavar="MODULE:CLASS",
    callback=lambda _, __, name: look_here(name),
    help="The class of your own problem; a model cannot make it load by itself.",
)
settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_setting,
    help="For example solver.C=0.1; repeatable.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
storage_option = click.option(
    "--storage-options",
    "storage_file",
    metavar="FILE.toml",
    type=click.Path(path_type=Path),
    help="A TOML file of fsspec options for remote URLs; S3 credentials are also taken from the environment.",
)


def look_here(name: str | None, *folders: Path) -> str | None:
    """Let the module of a user's own problem be found beside the config and in the current folder."""
    if name is not None and ":" in name:
        from distdual.problems.registry import search_also

        search_also(*folders, Path())
    return name


def say(sentence: str) -> None:
    screen.print(sentence, soft_wrap=True)


def storage_options(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    from distdual.config import read_table

    return read_table(file)


def emit(value: dict[str, Any]) -> None:
    """One JSON object on stdout, with null where a number is not finite."""
    click.echo(json.dumps(finite_values(value)))


def next_step(certificate: dict[str, Any]) -> str:
    """What to do about a run that did not prove the gap it was asked for."""
    reason, go_on = certificate["reason"], f"solver.start={certificate['model']} goes on from its dual"
    if certificate["estimate"] is not None:
        return "inexact inference proves no upper bound; an exact argmax would (exact = True)"
    if reason == "interrupted":
        return f"the bounds hold; {go_on}"
    if "the one pass" in reason:
        return f"solver.schedule=slope makes more passes; {go_on}"
    limit = "max_seconds" if "seconds" in reason else "max_passes"
    return f"raise solver.{limit} or solver.gap; scaled features and a smaller C need fewer passes; {go_on}"
