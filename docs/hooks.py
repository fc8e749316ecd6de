"""Pages that are made of the code when the documentation is built, so that they cannot disagree with it.

A line <!-- generated: NAME --> in a page is replaced by what the function of that name returns.
"""

import dataclasses
import json
import re
import typing
from pathlib import Path
from typing import Any

import click

from distdual.cli.commands import cli
from distdual.config import Config, LocalCluster
from distdual.field_docs import Field, fields_of
from distdual.problems.registry import BUILT_IN, own_fields


def on_config(config: Any) -> Any:
    """The page of benchmarks is written by those, so it is in the menu once there is one."""
    if Path(config["docs_dir"], "benchmarks.md").exists() and "benchmarks.md" not in config["nav"]:
        config["nav"].append("benchmarks.md")
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    return re.sub(
        r"^<!-- generated: (\w+) -->$", lambda found: str(GENERATED[found[1]]()), markdown, flags=re.MULTILINE
    )


def config_reference() -> str:
    """A table for each section; [problem] has one for each problem, with the keys that it adds."""
    parts = []
    for section, owner in typing.get_type_hints(Config).items():
        parts.append(f"## [{section}]\n")
        keys = [each for each in fields_of(owner) if each.name != "options"]
        parts.append(table(section, keys))
        if section == "problem":
            parts += [f"### {cls.kind}\n\n{table('problem', own_fields(cls))}" for cls in BUILT_IN]
        if section == "cluster":
            parts.append(f"### [cluster.local]\n\n{table('cluster.local', list(fields_of(LocalCluster)))}")
    return "\n".join(parts)


def table(section: str, fields: list[Field]) -> str:
    rows = [f"| `{section}.{each.name}` | {default(each.default)} | {cell(each.meaning)} |" for each in fields]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows, ""])


def default(value: Any) -> str:
    if value is dataclasses.MISSING:
        return "required"
    if value is None:
        return "none"
    return "`inf`" if value == float("inf") else f"`{json.dumps(value)}`"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


def command_reference() -> str:
    """What --help says, command by command."""
    parts = []
    for name in cli.list_commands(click.Context(cli)):
        command = cli.commands[name]
        context = click.Context(command, info_name=f"distdual {name}", max_content_width=100, terminal_width=100)
        parts.append(f"## distdual {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


GENERATED = {"config": config_reference, "commands": command_reference}
