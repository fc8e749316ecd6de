"""Shell completion of files, problems, and the keys and values of --set."""

import dataclasses
import typing
from collections.abc import Iterator, Sequence
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, get_completion_class

from distdual.config import DUALS, MODES, PRUNES, SCHEDULES, SLACKS, Config
from distdual.field_docs import fields_of

SHELLS = ("bash", "zsh", "fish")
CHOICES: dict[str, Sequence[str]] = {
    "solver.schedule": SCHEDULES,
    "solver.slack": SLACKS,
    "solver.prune": PRUNES,
    "solver.mode": MODES,
    "output.dual": DUALS,
}


class BashWithEquals(BashComplete):
    """Bash completion for --set: bash splits words at =, and no space may follow an incomplete key."""

    source_template = BashComplete.source_template.replace(
        "    return 0\n", "    [[ ${COMPREPLY[0]} == *[=:] ]] && compopt -o nospace\n\n    return 0\n"
    )
    name_before = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = super().get_completion_args()
        if incomplete == "=":
            words, incomplete = [*words, "="], ""
        if len(words) > 1 and words[-1] == "=":
            self.name_before = f"{words[-2]}="
            return words[:-2], self.name_before + incomplete
        return words, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{str(item.value).removeprefix(self.name_before)}"


add_completion_class(BashWithEquals)


def script(command: click.Command, shell: str) -> str:
    """The script that registers the completion with `shell`."""
    cls = get_completion_class(shell)
    assert cls is not None
    return cls(command, {}, "distdual", "_DISTDUAL_COMPLETE").source()


def complete_path(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete files and folders, for arguments that may also be URLs."""
    return [CompletionItem(incomplete, type="file")]


def complete_kind(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(kind) for kind in kinds() if kind.startswith(incomplete)]


def complete_setting(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete config keys with the = that follows, then values of keys with a fixed set of them."""
    name, equals, value = incomplete.partition("=")
    if equals:
        every = [f"{name}={choice}" for choice in choices(name)]
        return [CompletionItem(each) for each in every if each.startswith(f"{name}={value}")]
    found = [*config_keys(Config), *(problem_keys() if name.startswith("problem.") else ())]
    return [CompletionItem(f"{key}=", help=meaning) for key, meaning in found if key.startswith(name)]


def choices(name: str) -> Sequence[str]:
    section, _, key = name.partition(".")
    owner = typing.get_type_hints(Config).get(section)
    if name == "problem.kind":
        return kinds()
    if name in CHOICES:
        return [f"{word}{colon}" for word, colon, _ in (choice.partition(":") for choice in CHOICES[name])]
    switches = [field.name for field in fields_of(owner) if field.hint is bool] if owner else []
    return ("true", "false") if key in switches else ()


def kinds() -> Sequence[str]:
    """Names of the built-in problems, imported lazily since loading their kernels takes a second."""
    from distdual.problems.registry import KINDS

    return list(KINDS)


def config_keys(cls: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    for field in fields_of(cls):
        nested = [hint for hint in (field.hint, *typing.get_args(field.hint)) if dataclasses.is_dataclass(hint)]
        if nested:
            yield from config_keys(nested[0], f"{prefix}{field.name}.")
        elif (prefix, field.name) != ("problem.", "options"):
            yield prefix + field.name, " ".join(field.meaning.split())


def problem_keys() -> Iterator[tuple[str, str]]:
    """The keys of [problem] that are specific to some problems."""
    from distdual.problems.registry import BUILT_IN, own_fields

    found = {field.name: field.meaning for cls in BUILT_IN for field in own_fields(cls)}
    yield from ((f"problem.{name}", " ".join(meaning.split())) for name, meaning in found.items())
