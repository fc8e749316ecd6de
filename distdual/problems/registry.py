"""The registry of problems: classes by name, and instances made from options or descriptions."""

import dataclasses
import importlib
import re
import sys
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distdual.config import check_choice, convert, nearest
from distdual.data.data_spec import DataSpec
from distdual.data.layout import STRUCTURES
from distdual.errors import InputError
from distdual.field_docs import Field, fields_of
from distdual.problems.base import Problem
from distdual.problems.binary import Binary
from distdual.problems.chain.problem import Chain
from distdual.problems.graph.problem import PairwiseGraph
from distdual.problems.latent.bags import Latent
from distdual.problems.latent.chain import LatentChain
from distdual.problems.latent.multiclass import LatentMulticlass
from distdual.problems.multiclass import Multiclass
from distdual.problems.multivariate.problem import Multivariate
from distdual.problems.ordinal import Ordinal
from distdual.problems.parsing.problem import Cfg
from distdual.problems.ranking.problem import Ranking
from distdual.problems.regression import Regression

BUILT_IN = (
    Binary,
    Multivariate,
    Multiclass,
    Regression,
    Ordinal,
    Ranking,
    Chain,
    Cfg,
    Latent,
    LatentMulticlass,
    LatentChain,
    PairwiseGraph,
)
KINDS: dict[str, type[Any]] = {cls.kind: cls for cls in BUILT_IN}

WITH_BIAS = (Binary, Multiclass, Regression)  # whose scores mean little without one, unless the data are centred

OWN_NAME = re.compile(r"([^\W\d]\w*)(\.[^\W\d]\w*)*:([^\W\d]\w*)(\.[^\W\d]\w*)*")

STRUCTURED = DataSpec(examples="structures", labels="targets")

FROM_DATA = ("n_features", "classes")

KindOrClass = str | type[Problem]


def is_own(kind: Any) -> bool:
    return isinstance(kind, str) and ":" in kind


def class_of(kind: str) -> type[Any]:
    """The class that the user names."""
    if is_own(kind):
        return own_class(kind)
    check_choice("problem.kind", kind, [*KINDS, "package.module:Class"])
    return KINDS[kind]


def lacks_bias(kind: str, options: Mapping[str, Any]) -> bool:
    """Whether [problem] asks for no bias where most expect one, as estimators have it by default."""
    return any(cls.kind == kind and options.get("bias", cls.bias) == 0 for cls in WITH_BIAS)


def spec_of(kind: str) -> DataSpec:
    """What data sets of this kind are made of: those of a problem, or structures for any problem of a user's own."""
    if kind == STRUCTURES:
        return STRUCTURED
    if not is_own(kind):
        check_choice("problem", kind, [*KINDS, STRUCTURES, "package.module:Class"])
    spec: DataSpec = class_of(kind).data_spec
    return spec


def trusted_class(kind: str, named: KindOrClass | None) -> type[Any]:
    """The class that a model names; code outside the package must also be named by the user."""
    cls = own_class(named) if isinstance(named, str) and is_own(named) else named
    if is_own(kind) and cls is None:
        raise InputError(
            f"the model's problem is {kind}, which is code that would be run; "
            f"if you know and trust it, name it: --problem {kind}, or problem={kind!r}"
        )
    found = cls.kind if isinstance(cls, type) else cls
    if found not in (None, kind):
        raise InputError(f"the model's problem is {kind}, not {found}")
    return cls if isinstance(cls, type) else class_of(kind)


def own_class(name: str, base: type[Any] = Problem) -> type[Any]:
    """Import "package.module:Class", a subclass of `base` and a dataclass with the fields FROM_DATA."""
    if not OWN_NAME.fullmatch(name):
        raise InputError(f"{name!r} names no problem; expected package.module:Class")
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(f"{name}: no module {error.name} on the path or in the current folder") from None
    except Exception as error:
        raise InputError(f"{name}: importing {module} failed: {type(error).__name__}: {error}") from error
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not issubclass(found, base):
        needed = "distdual.UserProblem" + (" or distdual.problems.base.Problem" if base is Problem else "")
        raise InputError(f"{name}: module {module} has no class {path} that is a subclass of {needed}")
    cls: Any = found
    known = [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []
    missing = sorted(cls.__abstractmethods__) or [each for each in FROM_DATA if each not in known]
    if missing:
        raise InputError(f"{name}: {', '.join(missing)} must be defined")
    if not is_own(cls.kind):
        raise InputError(f"{name}: its kind is {cls.kind!r}; only built-in problems define one, leave it out")
    return found


def search_also(*folders: Path) -> None:
    """Append these folders to the module search path, so that nothing in them can shadow another module."""
    for folder in folders:
        if (place := str(folder.resolve())) not in sys.path:
            sys.path.append(place)


def make_problem(
    kind: str,
    options: Mapping[str, Any],
    *,
    n_features: int,
    classes: tuple[str, ...],
    texts: Mapping[str, str] | None = None,
) -> Problem:
    """The problem that [problem] of a config describes, for data of this shape and with these texts."""
    return build_problem(class_of(kind), options, n_features=n_features, classes=classes, texts=texts)


def problem_from(
    description: Mapping[str, Any], named: KindOrClass | None = None, texts: Mapping[str, str] | None = None
) -> Problem:
    """The problem that `describe` recorded; the caller must name a user's own problem in `named`."""
    cls = trusted_class(description["kind"], named)
    excluded = ("kind", *FROM_DATA, *cls.texts)
    made = build_problem(
        cls,
        {key: value for key, value in description.items() if key not in excluded},
        n_features=description["n_features"],
        classes=tuple(description["classes"]),
        texts=texts,
    )
    check_described_texts(made, description)
    return made


def texts_of(description: Mapping[str, Any], named: KindOrClass | None = None) -> tuple[str, ...]:
    """The texts that `problem_from` needs."""
    names: tuple[str, ...] = trusted_class(description["kind"], named).texts
    return names


def check_described_texts(problem: Problem, description: Mapping[str, Any]) -> None:
    """Raise an InputError if the texts differ from those of the description."""
    for name in problem.texts:
        if problem.describe()[name] != description.get(name):
            raise InputError(f"the {name} is not the one that the model was trained with")


def own_fields(cls: type[Any]) -> list[Field]:
    """The keys of [problem] of this class, with their documentation."""
    return [field for field in fields_of(cls) if field.name not in (*FROM_DATA, *cls.texts)]


def build_problem(
    cls: type[Any],
    options: Mapping[str, Any],
    *,
    n_features: int,
    classes: tuple[str, ...],
    texts: Mapping[str, str] | None = None,
) -> Problem:
    excluded = (*FROM_DATA, *cls.texts)
    known = {f.name: f for f in dataclasses.fields(cls) if f.name not in excluded}
    hints = typing.get_type_hints(cls)
    values = {}
    for key, value in options.items():
        if key not in known:
            raise InputError(f"[problem] of kind {cls.kind!r}: unknown key {key}{nearest(key, known, 'problem.')}")
        values[key] = convert(hints[key], value, "[problem]", f"problem.{key}")
    for name in cls.texts:
        if name not in (texts or {}):
            raise InputError(
                f"a {cls.kind} problem needs a data set with a {name}; prepare it with --problem {cls.kind}"
            )
    from_texts = {name: texts[name] for name in cls.texts} if texts else {}
    made: Problem = cls(n_features=n_features, classes=classes, **from_texts, **values)
    return made
