"""Which class is meant by problem.kind? A built-in one, or a user's own, which is code and is loaded by name only."""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from distdual.config import check_choice
from distdual.errors import InputError
from distdual.problems.binary import Binary
from distdual.problems.cfg import Cfg
from distdual.problems.chain import Chain
from distdual.problems.latent import Latent
from distdual.problems.latent_chain import LatentChain
from distdual.problems.latent_multiclass import LatentMulticlass
from distdual.problems.multiclass import Multiclass
from distdual.problems.own import UserProblem
from distdual.problems.regression import Regression

BUILT_IN = (Binary, Multiclass, Regression, Chain, Cfg, Latent, LatentMulticlass, LatentChain)
KINDS: dict[str, type[Any]] = {cls.kind: cls for cls in BUILT_IN}

NAME = re.compile(r"([^\W\d]\w*)(\.[^\W\d]\w*)*:([^\W\d]\w*)(\.[^\W\d]\w*)*")

Named = str | type[UserProblem]


def is_own(kind: Any) -> bool:
    return isinstance(kind, str) and ":" in kind


def class_of(kind: str) -> type[Any]:
    """The class that the user names."""
    if is_own(kind):
        return own_class(kind)
    check_choice("problem.kind", kind, [*KINDS, "package.module:Class"])
    return KINDS[kind]


def trusted_class(kind: str, named: Named | None) -> type[Any]:
    """The class that a model names; if it is code of somebody's, the user must have named the same."""
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


def own_class(name: str) -> type[UserProblem]:
    """Import "package.module:Class", a subclass of UserProblem."""
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} names no problem; expected package.module:Class")
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(f"{name}: there is no module {error.name} on the path or in the current folder") from None
    except Exception as error:
        raise InputError(f"{name}: importing {module} failed: {type(error).__name__}: {error}") from error
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not issubclass(found, UserProblem):
        raise InputError(f"{name}: module {module} has no class {path} that is a subclass of distdual.UserProblem")
    missing = sorted(found.__abstractmethods__)
    if missing:
        raise InputError(f"{name}: {', '.join(missing)} must be defined")
    return found


def search_also(*folders: Path) -> None:
    """Look for modules in these folders, too, after all other places: nothing there can stand in for another module."""
    for folder in folders:
        if (place := str(folder.resolve())) not in sys.path:
            sys.path.append(place)
