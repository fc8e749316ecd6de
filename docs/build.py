"""Build the documentation: `python docs/build.py` writes it to site/.

Some pages are made of the code, so that they cannot disagree with it: a line <!-- generated: NAME --> in a page is
replaced by what the function of that name returns. Zensical then builds the site from a copy of the pages.
"""

import argparse
import dataclasses
import json
import re
import shutil
import subprocess
import sys
import tempfile
import typing
from pathlib import Path
from typing import Any

import click

from distdual.cli.commands import cli
from distdual.config import Config, LocalCluster
from distdual.field_docs import Field, fields_of
from distdual.problems.registry import BUILT_IN, own_fields

DOCS = Path(__file__).parent
ROOT = DOCS.parent


def build(site: Path) -> int:
    """Write the site to a folder, which is replaced; return Zensical's exit code, which is not 0 for any warning."""
    with tempfile.TemporaryDirectory(prefix="distdual-docs-") as folder:
        work = Path(folder)
        shutil.copytree(DOCS, work / "docs", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        for page in (work / "docs").glob("*.md"):
            page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
        shutil.copy(ROOT / "mkdocs.yml", work)
        program = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(work / "mkdocs.yml")]
        done = subprocess.run(program, cwd=work, check=False)
        if done.returncode == 0:
            shutil.rmtree(site, ignore_errors=True)
            shutil.copytree(work / "site", site)
        return done.returncode


def filled(markdown: str) -> str:
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the documentation.")
    parser.add_argument("--site", type=Path, default=ROOT / "site", help="folder to write to; default: site")
    sys.exit(build(parser.parse_args().site))
