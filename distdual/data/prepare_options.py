"""Options of `prepare` that hold for every source, and the split into training and test examples."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distdual.config import KernelConfig, check_choice, read_kernel
from distdual.errors import InputError
from distdual.kernels.rows import Bools

SCALES = ("none", "unit-variance", "unit-rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of `prepare` that do not depend on the source."""

    kind: str
    """The problem: the name of a built-in one, or "package.module:Class"."""

    shard_bytes: int | None = None
    """Approximate size of a shard's features; 16 MiB by default."""

    shuffle: int | None = None
    """A seed: the examples are written in random order. It also decides which go to the test part."""

    test_fraction: float = 0.0
    """Above 0, each example goes to DEST/test with this probability and to DEST/train otherwise."""

    scale: str = "none"
    """"unit-rows" divides each row by its Euclidean norm; a row of zeros stays as it is.

    "unit-variance" divides each column by its standard deviation over the training part, found in a pass of its own.
    Nothing is centred, so sparse rows stay sparse; a constant column stays as it is.
    """

    map: Mapping[str, Any] | str | Path | None = None
    """Keys of [kernel], or a TOML file with that section: features are mapped once and stored as such.

    Landmarks are drawn from the training part by the seed `shuffle`, in a pass of its own.
    """

    n_features: int | None = None
    """Width of sparse rows, if it exceeds the largest column of the sources."""

    compress: bool | None = None
    """Compress features; by default only sparse ones."""

    overwrite: bool = False
    """Replace a data set that is already there."""

    unlabelled: bool = False
    """Rows to predict: labels and costs, if there are any, are left out."""

    append: bool = False
    """Add shards to a data set that is already there, whose features, labels and scale are kept."""

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, SCALES)
        if self.shard_bytes is not None and self.shard_bytes < 1:
            raise InputError(f"shard_bytes must be positive, got {self.shard_bytes}")
        if self.shuffle is not None and self.shuffle < 0:
            raise InputError(f"shuffle takes a seed of 0 or more, got {self.shuffle}")
        if not 0 <= self.test_fraction < 1:
            raise InputError(f"test_fraction must be at least 0 and below 1, got {self.test_fraction}")
        if self.n_features is not None and self.n_features < 1:
            raise InputError(f"n_features must be positive, got {self.n_features}")
        self.kernel  # noqa: B018 - refuses a wrong one
        if self.unlabelled and self.map is not None:
            raise InputError("unlabelled rows are mapped as those of a model; name it with like, and leave map out")
        if self.unlabelled and (self.append or self.test_fraction):
            raise InputError("unlabelled rows are only predicted; leave append and test_fraction out")
        if self.append:
            self._check_append()

    @property
    def kernel(self) -> KernelConfig | None:
        """The kernel of `map`."""
        if self.map is None:
            return None
        found = read_kernel(self.map)
        if not isinstance(found.basis, int):
            raise InputError(f"map needs kernel.basis, the number of mapped features; got {found.basis!r}")
        return found

    def _check_append(self) -> None:
        if self.map is not None:
            raise InputError("append takes the map of the data set itself; leave map out")
        for name, default in (("overwrite", False), ("shard_bytes", None), ("compress", None)):
            if getattr(self, name) != default:
                raise InputError(f"append and {name} exclude each other: new shards are stored like the existing ones")
        if self.test_fraction:
            raise InputError("append adds to one data set; name DEST/train or DEST/test, and leave test_fraction out")


class TestMask:
    """Which examples are for testing; by their number, so the same in every pass."""

    __test__ = False  # not a test class, for pytest

    def __init__(self, options: Options) -> None:
        self.fraction = options.test_fraction
        self.random = np.random.default_rng([options.shuffle or 0, 1])

    def next(self, n: int) -> Bools:
        return self.random.random(n) < self.fraction
