"""Options, exit codes and output that the commands share."""

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
EXIT_INTERRUPTED = 130

# Without markup, since paths may contain brackets and colons.
stderr = Console(stderr=True, highlight=False, markup=False, emoji=False)
stdout = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def check_scheduler(_: click.Context, __: click.Parameter, address: str | None) -> str | None:
    if address is not None:
        check_address("--scheduler", address)
    return address


def scheduler_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add --scheduler and the TLS options; `command` gets those given as `scheduler`, a dict of keys of [cluster]."""

    @functools.wraps(command)
    def called(*, scheduler: str | None, **others: Any) -> int:
        given = {"scheduler": scheduler, **{name: others.pop(name) for name in TLS}}
        return command(scheduler={name: value for name, value in given.items() if value is not None}, **others)

    texts = ("PEM file of the certificate authority, for tls:// addresses.", "Client certificate.", "Its private key.")
    made: Callable[..., int] = called
    for name, text in zip(reversed(TLS), reversed(texts), strict=True):  # click lists the last one first
        made = click.option(f"--{name.replace('_', '-')}", name, metavar="FILE", help=text)(made)
    return click.option(
        "--scheduler", metavar="ADDR", callback=check_scheduler, help="The Dask scheduler, e.g. tcp://host:8786."
    )(made)


problem_option = click.option(
    "--problem",
    metavar="MODULE:CLASS",
    callback=lambda _, __, name: find_module(name),
    help="The class of your own problem; a model file alone never loads it.",
)
settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_setting,
    help="Override a config key, e.g. solver.C=0.1; repeatable.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")


def read_price(_: click.Context, __: click.Parameter, text: str | None) -> Any:
    """Read the prices first, since `--price CONFIG.toml` takes the config for them."""
    from distdual.report.price import DEFAULT, parse_price

    return None if text is None else parse_price(DEFAULT if text == "default" else text)


price_option = click.option(
    "--price",
    is_flag=False,
    flag_value="default",
    metavar="[GB,GETS]",
    is_eager=True,
    callback=read_price,
    help="Show what reading costs, by prices per GB and per 1,000 GETs; default: 0,0.0004.",
)
storage_option = click.option(
    "--storage-options",
    "storage_file",
    metavar="FILE.toml",
    type=click.Path(path_type=Path),
    help="TOML file of fsspec options for remote URLs; S3 credentials may also come from the environment.",
)


def find_module(name: str | None, *folders: Path) -> str | None:
    """Search for the module of a user's own problem in `folders` and in the current folder."""
    if name is not None and ":" in name:
        from distdual.problems.registry import search_also

        search_also(*folders, Path())
    return name


def say(sentence: str) -> None:
    stderr.print(sentence, soft_wrap=True)


def storage_options(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    from distdual.config import read_table

    return read_table(file)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on stdout, with null for numbers that are not finite."""
    click.echo(json.dumps(finite_values(value)))


def advice(certificate: dict[str, Any]) -> str:
    """Advice for a run that did not prove its target gap."""
    cause, go_on = certificate["stopped_by"], f"solver.start={certificate['model']} continues from its dual"
    if certificate["estimate"] is not None:
        return "inexact inference proves no upper bound; an exact argmax does (exact = True)"
    if cause == "relaxed":
        return "a tighter bound from argmax: no further pass lowers what it leaves open, see `relaxed`"
    if cause == "contradiction":
        return (
            "correct what the sentence above names; no further pass can help (`distdual check-problem` tests an oracle)"
        )
    if cause == "interrupted":
        return f"the bounds hold; {go_on}"
    if cause == "one-pass":
        return f"solver.schedule=slope makes more passes; {go_on}"
    if cause == "validation":
        return f"the model is the best proven so far; eval.patience=0 trains to the gap; {go_on}"
    return f"raise solver.{cause} or solver.gap; scaled features and a smaller C need fewer passes; {go_on}"
