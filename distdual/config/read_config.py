"""Read a configuration: a TOML file, with settings from the command line on top."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distdual.config.sections import Config
from distdual.config.typed_table import parse, read_table, toml_value
from distdual.errors import InputError


def load(path: str | Path, settings: Sequence[str] = (), cluster: Mapping[str, Any] | None = None) -> Config:
    """Read a TOML file and apply settings such as "solver.C=0.1"; keys of `cluster` take precedence over both."""
    table = read_table(path)
    written = dict(output) if isinstance(output := table.get("output"), dict) else {}
    for setting in settings:
        apply(table, setting)
    if isinstance(output := table.get("output"), dict):
        move_log(output, written)
    if cluster and isinstance(section := table.setdefault("cluster", {}), dict):
        if "scheduler" in cluster:
            section.pop("local", None)
        section.update(cluster)
    return from_table(table, str(path))


def move_log(output: dict[str, Any], written: Mapping[str, Any]) -> None:
    """Where settings move output.url but not output.log, name the log after the new model: a run, a log.

    The log stays a local file: next to the model, or in its old folder if the model is remote.
    """
    url, log = output.get("url"), output.get("log")
    if not (isinstance(url, str) and isinstance(log, str)) or url == written.get("url") or log != written.get("log"):
        return
    model = Path(url.rstrip("/"))
    folder = Path(log).parent if "://" in url else model.parent
    output["log"] = (folder / f"{model.name}.jsonl").as_posix()


def from_table(table: Mapping[str, Any], source: str = "config") -> Config:
    """Check a table of sections and turn it into a Config; error messages name it `source`."""
    sections = dict(table)
    problem = sections.get("problem")
    if isinstance(problem, Mapping):
        options = {key: value for key, value in problem.items() if key != "kind"}
        kind = {"kind": problem["kind"]} if "kind" in problem else {}
        sections["problem"] = {**kind, "options": options}
    try:
        return parse(Config, sections, source)
    except InputError as error:
        text = str(error) if str(error).startswith(source) else f"{source}: {error}"
        needs = "; a run needs data.url, problem.kind and output.url" if text.endswith(" is missing") else ""
        raise InputError(text + needs) from None


def apply(table: dict[str, Any], setting: str) -> None:
    """Set one "section.key=value" in `table`; a value that is not valid TOML is taken as a string."""
    name, equals, text = setting.partition("=")
    keys = [key.strip() for key in name.split(".")]
    if not equals or len(keys) < 2 or not all(keys):
        raise InputError(f"--set {name}: expected section.key=value, for example solver.C=0.1")
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise InputError(f"--set {name}: {key} is a value, not a section")
    table[keys[-1]] = toml_value(text)
