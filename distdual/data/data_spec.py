"""The declaration of what a problem's data sets are made of.

Each problem class declares one as `Problem.data_spec`; `prepare` reads, checks and writes examples accordingly.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from distdual.data.shard import Block
from distdual.data.sources.base import Opened
from distdual.data.storage.location import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFormat:
    """A file format that only one problem reads, with the options of `prepare` that come with it."""

    name: str
    holds: str
    """The examples in such a file, as a plural noun for messages."""

    options: type[Any]
    """A dataclass of further keyword arguments of `prepare`, all optional."""

    inherited: str
    """The option that names a data set to reuse; `append` sets it to the data set that grows."""

    open: Callable[..., Opened]
    """Takes the files, an instance of `options`, and the general `Options` of `prepare`."""

    plain: Callable[[Location, Mapping[str, str]], Iterator[Block]]
    """Takes a file of plain text to predict and the texts of a model's preprocessing."""

    example: str
    """A few examples as such a file has them; `warm-up` trains on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSpec:
    """The examples, labels and file formats of a problem's data sets."""

    examples: Literal["rows", "sequences", "bags", "trees", "queries", "structures"] = "rows"
    """One feature vector each; or several: tokens with a label each, candidates with one label, words with a tree.

    Queries have documents, each with a target, which is its relevance. Structures have arrays of their own instead of
    features and labels, see data/structures.py.
    """

    also_structures: bool = False
    """True if the problem also takes structures where its examples are something else."""

    labels: Literal["classes", "targets"] = "classes"
    """Names of classes, or real numbers to predict."""

    n_classes: int | None = None
    """How many classes there may be; None for any number from two on."""

    own_format: OwnFormat | None = None
    """The only file format, for problems that read none of the common ones."""

    @property
    def ragged(self) -> bool:
        """True if an example has several rows of features."""
        return self.examples not in ("rows", "structures")

    @property
    def form(self) -> str:
        """What examples are, in words for messages."""
        return "single rows" if self.examples == "rows" else self.examples

    def takes(self, *, ragged: bool, structured: bool) -> bool:
        """Whether the problem can work on a data set of such examples."""
        if structured:
            return self.also_structures or self.examples == "structures"
        return self.examples != "structures" and ragged == self.ragged


def form_name(*, ragged: bool, structured: bool) -> str:
    """What the examples of some data are, whatever they stand for, in words for messages."""
    return "structures" if structured else "sequences" if ragged else "single rows"
