"""The support constraints of one shard, rebuilt from the data."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from distdual.data.shard import Shard
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.rows import Floats, Ints
from distdual.model.dual import Dual, GroupDual
from distdual.problems.base import Constraints, Keys, Problem
from distdual.scan.group_members_file import Notes
from distdual.scan.slack_groups import CHUNK, Members, build_stored

CONSTRAINTS_AT_ONCE = 512  # constraints at a time, so that copies of their rows stay in the processor's cache


class SingleConstraints(NamedTuple):
    """Some of the constraints of single examples that Σ α x sums."""

    example: Ints  # within the shard
    constraints: Constraints
    alpha: Floats


class Support(NamedTuple):
    """The support constraints of one shard, and the folder of their model."""

    dual: Dual | GroupDual
    folder: Location | None  # None for a dual of single examples

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.dual.arrays().values())

    def pieces(self, shard: Shard, problem: Problem) -> Iterator[SingleConstraints]:
        """Yield a few constraints at a time, after checking their keys, which may be forged."""
        if isinstance(self.dual, Dual):
            for begin in range(0, len(self.dual.alpha), CONSTRAINTS_AT_ONCE):
                at = slice(begin, begin + CONSTRAINTS_AT_ONCE)
                local, keys = self.dual.example[at] - shard.first, self.dual.keys.take(at)
                yield SingleConstraints(local, problem.rebuilt(shard, local, keys), self.dual.alpha[at])
            return
        for members, alpha in self.rows(shard):
            each = np.repeat(alpha, np.diff(members.indptr))
            for begin in range(0, len(each), CHUNK):
                at = slice(begin, begin + CHUNK)
                constraints = build_stored(problem, shard, members, begin, min(begin + CHUNK, len(each)))
                yield SingleConstraints(members.example[at], constraints, each[at] * constraints.cost)

    def rows(self, shard: Shard) -> Iterator[tuple[Members, Floats]]:
        """Yield, file by file, the members of the groups' rows and the α of each row."""
        assert isinstance(self.dual, GroupDual) and self.folder is not None  # noqa: PT018
        for number in np.unique(self.dual.file):
            notes = Notes(self.folder / self.dual.members, int(number))
            members = notes.read()
            mine = self.dual.file == number
            row = self.dual.row[mine]
            if (row >= len(members.indptr) - 1).any():
                raise InputError(f"{notes.folder}/{notes.name}: holds {len(members.indptr) - 1} rows, not {row.max()}")
            chosen = members.take(row)
            if len(chosen.example) and chosen.example.max() >= shard.n_examples:
                raise InputError(f"{notes.folder}/{notes.name}: names example {chosen.example.max()} of the shard")
            yield chosen, self.dual.alpha[mine]


def no_support() -> Support:
    empty = np.empty(0, dtype=np.int64)
    return Support(Dual(empty, Keys.none(0), np.empty(0), np.empty(0)), Location("."))
