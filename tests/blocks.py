"""The code blocks of a Markdown file, run or checked by language.

bash, python   run in order, in one folder
text           compared with the output of the previous block: same words, close numbers; a line "…" matches any lines
toml           checked as part of a config
yaml           parsed
formula, picture, html    not checked

A block with title="NAME" is a file of that name and checked by its language. A comment before it, such as
<!-- needs: slurm -->, names software that the caller replaces by a stand-in.
"""

import ast
import os
import re
import signal
import subprocess
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from distdual.config import from_table
from distdual.problems.registry import class_of, is_own, own_fields

FENCE = re.compile(
    r'^(?:<!-- needs: (?P<needs>\w+) -->\n)?```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<code>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
HOME = "/home/you"  # the folder in outputs
SECTIONS = {"data", "problem", "solver", "kernel", "prior", "cluster", "eval", "output"}
NUMBER = re.compile(r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
COST = re.compile(r" ?(s|ms|seconds?|examples (?:a|per) second|passes|oracle calls|support constraints)\b")  # vary


class Block(NamedTuple):
    line: int
    language: str
    code: str
    title: str | None = None
    needs: str | None = None


def blocks_of(text: str) -> list[Block]:
    return [
        Block(text[: each.start("code")].count("\n"), each["language"], each["code"], each["title"], each["needs"])
        for each in FENCE.finditer(text)
    ]


class Folder(NamedTuple):
    """The folder, environment and programs for the blocks of one text."""

    path: Path
    env: dict[str, str]
    programs: Mapping[str, Sequence[str]]  # command for scripts of each language
    replace: Mapping[str, str]  # the reader's addresses and keys → those of the test
    sessions: list[int]  # one per block; later blocks may use background processes of earlier ones

    def ours(self, code: str) -> str:
        for theirs, mine in self.replace.items():
            code = code.replace(theirs, mine)
        return code

    def run(self, block: Block, where: str, seconds: float = 240) -> str:
        """The block's stdout; it runs in its own session, so that its background processes can be ended."""
        script = self.path / f"block-{block.line}"
        script.write_text(self.ours(block.code), encoding="utf-8")
        with (self.path / "stdout").open("w+b") as out, (self.path / "stderr").open("w+b") as err:
            process = subprocess.Popen(
                [*self.programs[block.language], script],
                cwd=self.path,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            self.sessions.append(process.pid)
            code = process.wait(seconds)
            printed, complaints = (file.seek(0) or file.read().decode() for file in (out, err))
        assert code == 0, f"{where}, line {block.line}: {block.code}\n{printed}\n{complaints}"
        return str(printed).replace(str(self.path), HOME)


def end_session(leader: int) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for _ in range(10):
            try:
                os.killpg(leader, number)
            except ProcessLookupError:
                return
            time.sleep(0.05)


def run_all(text: str, folder: Folder, where: str) -> None:
    """Run and check all blocks of a text, in order."""
    printed = ""
    try:
        for block in blocks_of(text):
            place = f"{where}, line {block.line}"
            check_language(block, place)
            if block.title:
                file = folder.path / block.title
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(folder.ours(block.code), encoding="utf-8")
            elif block.language in folder.programs:
                printed = folder.run(block, where)
            elif block.language == "text":
                check_output(block.code, printed, place)
    finally:
        for leader in folder.sessions:
            end_session(leader)


def check_language(block: Block, place: str) -> None:
    """Check a block without running it."""
    if block.language == "python":
        ast.parse(block.code, place)
    elif block.language == "bash":
        done = subprocess.run(["bash", "-n"], input=block.code, capture_output=True, text=True)
        assert done.returncode == 0, f"{place}: {done.stderr}"
    elif block.language == "yaml":
        list(yaml.safe_load_all(block.code))
    elif block.language == "toml":
        check_toml(tomllib.loads(block.code), place)
    else:
        assert block.language in ("text", "formula", "picture", "html"), f"{place}: which language is this?"


def check_toml(table: dict[str, Any], place: str) -> None:
    """Check a config or part of one; other tables are left to the commands that read them."""
    if not SECTIONS & set(table):
        return
    whole: dict[str, Any] = {"data": {"url": "a"}, "problem": {"kind": "binary"}, "output": {"url": "b"}}
    for section, values in table.items():
        whole[section] = {**whole.get(section, {}), **values}
    kind, options = from_table(whole, place).problem.kind, from_table(whole, place).problem.options
    if not is_own(kind):
        known = {field.name for field in own_fields(class_of(kind))}
        assert set(options) <= known, f"{place}: {set(options) - known} are no keys of {kind}"


def check_output(expected: str, found: str, place: str) -> None:
    """Compare lines, up to small differences of numbers and any of costs; "…" matches any number of lines."""
    left = found.splitlines()
    anywhere = False
    for line in expected.splitlines():
        if line.strip() == "…":
            anywhere = True
            continue
        at = next((i for i, each in enumerate(left) if alike(line, each)), None)
        assert at is not None, f"{place}: {line!r} is not printed, but:\n{found}"
        assert anywhere or at == 0, f"{place}: before {line!r} there is\n{chr(10).join(left[:at])}"
        left, anywhere = left[at + 1 :], False
    assert anywhere or not any(line.strip() for line in left), f"{place}: more is printed: {left}"


def alike(expected: str, found: str) -> bool:
    words, others = (NUMBER.sub("#", text).split() for text in (expected, found))
    if words != others:
        return False
    pairs = zip(NUMBER.finditer(expected), NUMBER.finditer(found), strict=True)
    return all(COST.match(expected, one.end()) or near(one[0], other[0]) for one, other in pairs)


def near(one: str, other: str) -> bool:
    a, b = (float(text.replace(",", "").replace("−", "-")) for text in (one, other))
    return abs(a - b) <= 0.1 * max(abs(a), abs(b)) or max(abs(a), abs(b)) < 0.02  # gaps vary
