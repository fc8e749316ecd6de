"""Sources of examples, and the attachments that a data set keeps of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from distdual.data.shard import Block
from distdual.kernels.rows import Floats


class Source(NamedTuple):
    name: str  # for messages
    blocks: Callable[[], Iterator[Block]]  # each call reads from the start
    n_features: int | None = None  # what the source declares


@dataclass(frozen=True, slots=True)
class Attached:
    """What a data set keeps beside its shards."""

    recipe: Mapping[str, Any] = field(default_factory=dict)  # as Layout.recipe
    texts: dict[str, str] = field(default_factory=dict)  # by name; they may be large
    labels: tuple[str, ...] = ()  # known beforehand; they have the first codes
    scale: str = "none"  # as Layout.scale


class Opened(NamedTuple):
    """What `prepare` writes: the sources, and the attachments that belong to all of them."""

    sources: list[Source]
    attached: Attached
    factors: Floats | None = None  # what to divide features by for unit variance, where this is known already
