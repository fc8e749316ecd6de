"""Options about sources of rows: the columns of tables, the arrays of files."""

from collections.abc import Callable
from typing import Any

import click


def names(_: click.Context, __: click.Parameter, told: tuple[str, ...]) -> tuple[str, ...]:
    """Columns, given one by one or separated by commas."""
    return tuple(name for each in told for name in each.split(",") if name or not each)


def columns(option: str, field: str, help_: str) -> Callable[..., Any]:
    return click.option(option, field, multiple=True, metavar="COLUMN,…", callback=names, help=help_)


TABLE_OPTIONS = (
    click.option("--label", metavar="COLUMN", help="Tables: the column of labels."),
    columns("--features", "features", "Tables: the columns of features; default: all others."),
    columns("--drop", "drop", "Tables: columns to leave out."),
    click.option("--weight", metavar="COLUMN", help="Tables: the column of costs, before C."),
    click.option("--group", metavar="COLUMN", help="Tables: the column that names a row's sequence or bag."),
    click.option("--missing", metavar="WHAT", help="Tables: refuse (the default), mean, zero or indicator."),
    columns("--categorical", "categorical", "Tables: columns of numbers to treat as categories."),
    columns("--hash", "hashed", "Tables: columns of texts to number by a hash."),
    click.option("--hash-bits", type=int, metavar="N", help="Tables: 2^N features for a hashed column; default 12."),
    click.option("--max-levels", type=int, metavar="N", help="Tables: most categories of a column; default 1000."),
)
ARRAY_OPTIONS = (
    click.option("--x", metavar="NAME", help="Npz, Zarr: the array of features."),
    click.option("--y", metavar="NAME", help="Npz, Zarr: the array of labels."),
)


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    return with_options(TABLE_OPTIONS, command)


def array_options(command: Callable[..., Any]) -> Callable[..., Any]:
    return with_options(ARRAY_OPTIONS, command)


def with_options(options: tuple[Any, ...], command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(options):  # click lists the last one first
        command = option(command)
    return command
