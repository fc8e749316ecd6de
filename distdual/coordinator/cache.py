"""Which constraints does the coordinator hold, and which of them share a slack?

Constraints live in slots that never move between prunings. Arrays grow in place. `members` lists the slots group by
group, so that a kernel meets the constraints of one slack together wherever their rows lie.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.kernel import kernel
from distdual.problems.base import Constraints, Keys
from distdual.rows import CsrRows, DenseRows, Floats, Ints, Rows, norm2
from distdual.workers.scan import Identities, identities


class Growing:
    """A NumPy array that grows in place at its end. A view of it dies with the next `extend`."""

    def __init__(self, dtype: Any, width: int = 0) -> None:
        self.width = width
        self.size = 0
        self.buffer: NDArray[Any] = np.empty((0, width) if width else 0, dtype=dtype)

    @property
    def view(self) -> NDArray[Any]:
        return self.buffer[: self.size]

    @property
    def nbytes(self) -> int:
        return int(self.buffer.nbytes)

    def extend(self, part: NDArray[Any]) -> None:
        need = self.size + len(part)
        if need > len(self.buffer):
            room = max(need, len(self.buffer) + len(self.buffer) // 2)
            self.buffer.resize((room, self.width) if self.width else room, refcheck=False)  # realloc: no second copy
        self.buffer[self.size : need] = part
        self.size = need

    def keep(self, which: NDArray[Any]) -> None:
        """Drop all entries but these, given in ascending order."""
        self.buffer[: len(which)] = self.buffer[which]
        self.size = len(which)


class GrowingRows:
    """Rows of either format, growing in place."""

    def __init__(self, like: Rows) -> None:
        self.dense = isinstance(like, DenseRows)
        if isinstance(like, DenseRows):
            self.values = Growing(np.float32, like.values.shape[1])
        else:
            self.indptr = Growing(np.int64)
            self.indptr.extend(np.zeros(1, dtype=np.int64))
            self.indices = Growing(like.indices.dtype)
            self.values = Growing(np.float32)

    @property
    def view(self) -> Rows:
        if self.dense:
            return DenseRows(self.values.view)
        return CsrRows(self.indptr.view, self.indices.view, self.values.view)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes if self.dense else self.values.nbytes + self.indices.nbytes + self.indptr.nbytes

    def extend(self, rows: Rows) -> None:
        if isinstance(rows, DenseRows):
            self.values.extend(rows.values)
            return
        at = slice(rows.indptr[0], rows.indptr[-1])
        self.indptr.extend(rows.indptr[1:] - rows.indptr[0] + self.indptr.view[-1])
        self.indices.extend(rows.indices[at])
        self.values.extend(rows.values[at])

    def keep(self, which: Ints) -> None:
        if self.dense:
            self.values.keep(which)
            return
        indptr = self.indptr.view
        at, new = ragged_take(indptr, which)
        self.indices.keep(at)
        self.values.keep(at)
        self.indptr.size = 0
        self.indptr.extend(new)


def ragged_take(indptr: Ints, which: Ints) -> tuple[Ints, Ints]:
    """Positions of the values of the chosen entries, and the indptr of what is taken."""
    lengths = np.diff(indptr)[which]
    new = np.concatenate([[0], np.cumsum(lengths)])
    return np.repeat(indptr[which] - new[:-1], lengths) + np.arange(new[-1]), new


class View(NamedTuple):
    """The arrays of a cache as kernels take them; valid until the cache changes."""

    rows: Rows
    margin: Floats
    alpha: Floats  # changed in place by the ascent
    norm2: Floats
    members: Ints  # slots, group by group
    group_indptr: Ints  # (n_groups + 1,) into members
    capacity: Floats  # (n_groups,) C_i


class ConstraintCache:
    """The constraints met so far, their α, and the groups that share a slack."""

    def __init__(self, C: float) -> None:
        self.C = C
        self.rows: GrowingRows | None = None
        self.example = Growing(np.int64)
        self.cost = Growing(np.float64)
        self.margin = Growing(np.float64)
        self.alpha = Growing(np.float64)
        self.norm2 = Growing(np.float64)
        self.identity = Growing(np.uint64)
        self.key_indptr = Growing(np.int64)
        self.key_indptr.extend(np.zeros(1, dtype=np.int64))
        self.key_values = Growing(np.int32)
        self.members: Ints = np.empty(0, dtype=np.int64)
        self.group_indptr: Ints = np.zeros(1, dtype=np.int64)
        self.group_example: Ints = np.empty(0, dtype=np.int64)  # ascending

    def __len__(self) -> int:
        return self.example.size

    @property
    def n_groups(self) -> int:
        return len(self.group_example)

    @property
    def nbytes(self) -> int:
        columns = (self.example, self.cost, self.margin, self.alpha, self.norm2, self.identity)
        flat = sum(column.nbytes for column in (*columns, self.key_indptr, self.key_values))
        return flat + self.members.nbytes + (self.rows.nbytes if self.rows else 0)

    def view(self) -> View:
        assert self.rows is not None
        capacity = self.C * self.cost.view[self.members[self.group_indptr[:-1]]]
        return View(
            self.rows.view,
            self.margin.view,
            self.alpha.view,
            self.norm2.view,
            self.members,
            self.group_indptr,
            capacity,
        )

    def keys(self) -> Keys:
        return Keys(self.key_indptr.view, self.key_values.view)

    def known(self, first: int, last: int) -> Identities:
        """What the cache holds of examples first … last − 1."""
        begin, end = np.searchsorted(self.group_example, [first, last])
        slots = self.members[self.group_indptr[begin] : self.group_indptr[end]]
        known: Identities = self.identity.view[slots]
        return known

    def insert(self, new: Constraints) -> Ints:
        """Add the constraints that are not here yet, with α = 0, and return their slots."""
        identity = identities(new.example, new.keys)
        _, once = np.unique(identity, return_index=True)
        fresh = np.sort(once[~np.isin(identity[once], self._near(new.example))])
        if len(fresh) < len(identity):
            new, identity = new.take(fresh), identity[fresh]
        if self.rows is None:
            self.rows = GrowingRows(new.rows)
        slots = np.arange(len(self), len(self) + len(identity))
        self.rows.extend(new.rows)
        self.example.extend(new.example)
        self.cost.extend(new.cost)
        self.margin.extend(new.margin)
        self.alpha.extend(np.zeros(len(identity)))
        self.norm2.extend(all_norm2(new.rows, np.empty(len(identity))))
        self.identity.extend(identity)
        self.key_indptr.extend(new.keys.indptr[1:] + self.key_values.size)
        self.key_values.extend(new.keys.values)
        self._index(slots)
        return slots

    def keep(self, which: Ints) -> None:
        """Drop all constraints but these slots, given in ascending order; slots are numbered anew."""
        assert self.rows is not None
        self.rows.keep(which)
        for column in (self.example, self.cost, self.margin, self.alpha, self.norm2, self.identity):
            column.keep(which)
        at, indptr = ragged_take(self.key_indptr.view, which)
        self.key_values.keep(at)
        self.key_indptr.size = 0
        self.key_indptr.extend(indptr)
        self.members = np.empty(0, dtype=np.int64)
        self._index(np.arange(len(which)))

    def _near(self, example: Ints) -> Identities:
        return self.known(int(example.min()), int(example.max()) + 1) if len(example) else np.empty(0, dtype=np.uint64)

    def _index(self, slots: Ints) -> None:
        """Merge new slots into `members`, which stay sorted by example and, within one, by age."""
        example = self.example.view
        new = slots[np.argsort(example[slots], kind="stable")]
        at = np.searchsorted(example[self.members], example[new], side="right")
        self.members = np.insert(self.members, at, new)
        by_group = example[self.members]
        starts = np.flatnonzero(np.diff(by_group, prepend=-1))
        self.group_indptr = np.append(starts, len(by_group))
        self.group_example = by_group[starts]


@kernel
def all_norm2(rows: Rows, out: Floats) -> Floats:
    """out_k = ||x_k||²; fills and returns `out`."""
    for k in range(len(out)):
        out[k] = norm2(rows, k)
    return out
