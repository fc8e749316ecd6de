"""The contract of solvers: prepare, then solve with a given effort."""

import contextlib
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol

from benchmarks.case import Case
from benchmarks.objective import Solution

THREADS = 2  # for everybody who can use them


@contextlib.contextmanager
def stopped_early() -> Iterator[None]:
    """Ignore warnings about a limited effort, which is intended here."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield


class Ladder(Protocol):
    """Efforts from little to much."""

    first: float

    def harder(self, effort: float) -> float | None: ...

    def between(self, too_little: float, enough: float) -> float | None:
        """None once the two are close enough."""
        ...


class Iterations:
    """1, 2, 4, …"""

    def __init__(self, most: int = 4096, first: int = 1) -> None:
        self.first, self.most = float(first), most

    def harder(self, effort: float) -> float | None:
        return 2 * effort if 2 * effort <= self.most else None

    def between(self, too_little: float, enough: float) -> float | None:
        middle = (int(too_little) + int(enough)) // 2
        return float(middle) if int(too_little) < middle and enough > 1.1 * too_little else None


class Tolerance:
    """first, first / 4, …: for solvers that stop by themselves."""

    def __init__(self, first: float = 1.0, least: float = 1e-6) -> None:
        self.first, self.least = first, least

    def harder(self, effort: float) -> float | None:
        return effort / 4 if effort / 4 >= self.least else None

    def between(self, too_little: float, enough: float) -> float | None:
        return math.sqrt(too_little * enough) if too_little > 1.3 * enough else None


class Once:
    """A solver with default settings."""

    first = 1.0

    def harder(self, effort: float) -> float | None:  # noqa: ARG002 - as the others
        return None

    def between(self, too_little: float, enough: float) -> float | None:  # noqa: ARG002
        return None


class Peer(ABC):
    name: ClassVar[str]
    package: ClassVar[str]
    """What pip installs it by."""

    kinds: ClassVar[tuple[str, ...]]
    """The problems it can solve; with `same = False` it has another objective and is judged by its score alone."""

    same: ClassVar[bool] = True
    effort: ClassVar[str] = "iterations"
    apart: ClassVar[bool] = False
    """It needs a process of its own, which ends when its time is up."""

    def ladder(self, case: Case) -> Ladder:  # noqa: ARG002
        return Iterations()

    @abstractmethod
    def ready(self, case: Case) -> Callable[[float], Any]:
        """Everything that is not training, such as copies in its own format; returns what is timed, by effort."""

    @abstractmethod
    def solution(self, case: Case, fitted: Any) -> Solution:
        """What the timed call returned, as the judge takes it."""
