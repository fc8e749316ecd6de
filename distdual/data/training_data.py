"""The contract of data sets that training reads, stored or in memory."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from distdual.data.shard import Read
from distdual.kernels.rows import Ints


class TrainingData(Protocol):
    """What training needs of a data set, stored or in memory."""

    @property
    def location(self) -> object:
        """For messages."""

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def n_features(self) -> int: ...

    @property
    def ragged(self) -> bool:
        """True if an example has several rows of features."""

    @property
    def structured(self) -> bool:
        """True if an example has arrays of its own instead of features."""

    @property
    def n_shards(self) -> int: ...

    @property
    def n_examples(self) -> int: ...

    @property
    def n_rows(self) -> int:
        """Rows of features: tokens where examples are sequences."""

    @property
    def rows_of_shards(self) -> Ints:
        """(n_shards,) the same of each shard."""

    @property
    def first(self) -> Ints:
        """(n_shards + 1,) number of the first example of each shard, and the number of all examples."""

    @property
    def nbytes(self) -> int:
        """Bytes of all shards in memory."""

    @property
    def shard_bytes(self) -> int:
        """Bytes that reading a shard takes, on average; 0 if it is in memory already."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def checksum(self) -> NDArray[np.uint32]:
        """(n_shards,)"""

    def open(self) -> "TrainingData": ...

    def read(self, number: int, *, check: bool = True) -> Read: ...
