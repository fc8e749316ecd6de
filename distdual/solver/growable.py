"""Arrays and rows that grow in place, constraint by constraint."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.kernels.jit import bare_kernel
from distdual.kernels.row_copies import copied, copy_csr, copy_dense, copy_filled, lengths_summed
from distdual.kernels.rows import CsrRows, DenseRows, Features, Ints, OuterRows, ReferredRows, as_dense, bits_of

AHEAD = 4  # factor by which buffers exceed the current need
ASIDE = 2**30  # most bytes reserved for expected entries


class Room(NamedTuple):
    """How much memory to reserve in advance; the system backs it with pages only when it is filled."""

    tight: bool = False  # reserve none, and grow more often
    expected: int = 0  # entries, not a limit


ROOM = Room()


class Growing:
    """A NumPy array that grows in place at its end. A view of it is valid until the next `extend`."""

    def __init__(self, dtype: Any, width: int = 0, room: Room = ROOM) -> None:
        self.width = width
        self.room = room
        self.size = 0
        self.buffer: NDArray[Any] = np.empty((0, width) if width else 0, dtype=dtype)

    @property
    def view(self) -> NDArray[Any]:
        return self.buffer[: self.size]

    @property
    def nbytes(self) -> int:
        return self.size * max(1, self.width) * self.buffer.itemsize

    def extend(self, part: NDArray[Any]) -> None:
        self.more(len(part))[:] = part

    def extend_taken(self, values: NDArray[Any], which: Ints) -> None:
        """Add values[which]."""
        np.take(values, which, axis=0, out=self.more(len(which)), mode="clip")  # "raise" would copy first

    def more(self, n: int) -> NDArray[Any]:
        """Return a view of n new entries for the caller to fill, valid until the next call."""
        need = self.size + n
        if need > len(self.buffer):
            if self.room.tight:
                self._resize(need)
            else:
                most = ASIDE // (self.buffer.itemsize * max(1, self.width))
                self._move(max(AHEAD * need, min(self.room.expected, most)))
        self.size = need
        return self.buffer[need - n : need]

    def widen(self, dtype: Any) -> None:
        """Store entries with the precision of this type from now on, if it is the higher one."""
        if np.can_cast(dtype, self.buffer.dtype):
            return
        wider = np.empty_like(self.buffer, dtype=dtype)
        wider[: self.size] = self.view
        self.buffer = wider

    def fill(self, whole: NDArray[Any]) -> None:
        """Replace all entries by these."""
        self.size = 0
        self.extend(whole)

    def keep(self, which: NDArray[Any]) -> None:
        """Drop all entries but these, given in ascending order."""
        if self.width:
            close_up(self.buffer.reshape(-1), which * self.width, (which + 1) * self.width)
        else:
            self.buffer[: len(which)] = self.buffer[which]
        self._shrink(len(which))

    def keep_runs(self, begin: Ints, end: Ints) -> None:
        """Drop all entries but begin … end − 1 of each of these runs, given in ascending order."""
        self._shrink(close_up(self.buffer, begin, end))

    def _shrink(self, size: int) -> None:
        self.size = size
        if self.room.tight:
            self._resize(size)

    def _move(self, room: int) -> None:
        """Move to a larger buffer, without writing zeros to its unused part as resize does."""
        larger = np.empty((room, self.width) if self.width else room, dtype=self.buffer.dtype)
        larger[: self.size] = self.view
        self.buffer = larger

    def _resize(self, room: int) -> None:
        self.buffer.resize((room, self.width) if self.width else room, refcheck=False)  # realloc: no second copy


class GrowingFeatures:
    """Dense or CSR rows, growing in place; with `sparse`, CSR whatever the format of new rows."""

    def __init__(self, like: Features | ReferredRows, room: Room = ROOM, *, sparse: bool = False) -> None:
        width = like.width if isinstance(like, ReferredRows) else 0
        like = like.x if isinstance(like, ReferredRows) else like
        self.dense = isinstance(like, DenseRows) and not sparse
        if isinstance(like, DenseRows) and not sparse:
            self.values = Growing(like.values.dtype, width or like.values.shape[1], room=room)
        else:
            self.indptr = Growing(np.int64, room=room)
            self.indptr.extend(np.zeros(1, dtype=np.int64))
            self.indices = Growing(np.int32 if isinstance(like, DenseRows) else like.indices.dtype, room=room)
            self.values = Growing(like.values.dtype, room=room)

    def __len__(self) -> int:
        return self.values.size if self.dense else self.indptr.size - 1

    @property
    def view(self) -> Features:
        if self.dense:
            return DenseRows(self.values.view)
        return CsrRows(self.indptr.view, self.indices.view, self.values.view)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes if self.dense else self.values.nbytes + self.indices.nbytes + self.indptr.nbytes

    def extend(self, rows: Features | ReferredRows) -> None:
        """Add rows; those in the other format are converted."""
        if isinstance(rows, ReferredRows):
            self._copy(rows)
            return
        self.values.widen(rows.values.dtype)
        if self.dense:
            self.values.extend(as_dense(rows, self.values.width).values)
        elif isinstance(rows, DenseRows):
            self.extend_taken(rows, np.arange(len(rows.values)))
        else:
            at = slice(rows.indptr[0], rows.indptr[-1])
            place = self._more_sparse(rows.indptr - at.start)
            place.indices[:], place.values[:] = rows.indices[at], rows.values[at]

    def _more_sparse(self, indptr: Ints, beyond: int = 0) -> CsrRows:
        """Return views of new sparse rows of these lengths, whose columns and values the caller fills.

        So many places `beyond` the end may be written to; what is there does not matter.
        """
        n, n_values = len(indptr) - 1, int(indptr[-1])
        self.indptr.extend(indptr[1:] + self.indptr.view[-1])
        for column in (self.indices, self.values):
            column.room = column.room._replace(expected=n_values // max(1, n) * self.indptr.room.expected)
        place = CsrRows(indptr, self.indices.more(n_values + beyond), self.values.more(n_values + beyond))
        for column in (self.indices, self.values):
            column.size -= beyond
        return place

    def _copy(self, rows: ReferredRows) -> None:
        """Add rows of a shard in memory, copying them once."""
        x, bias = rows.x, np.float32(rows.bias)
        if self.dense and isinstance(x, DenseRows):
            copy_dense(x, rows.at, rows.scale, bias, DenseRows(self.values.more(len(rows.at))))
        elif not self.dense and isinstance(x, CsrRows):
            copy_csr(x, rows.at, rows.scale, bias, rows.width - 1, self._more_sparse(lengths_summed(rows)))
        elif isinstance(x, DenseRows):
            copy_filled(x, rows.at, rows.scale, bias, rows.width - 1, self._more_sparse(lengths_summed(rows), 1))
        else:
            self.extend(copied(rows))

    def extend_taken(self, rows: Features | ReferredRows, which: Ints) -> None:
        """Add the chosen rows; dense ones are copied only once."""
        if isinstance(rows, ReferredRows):
            self._copy(rows._replace(at=rows.at[which], scale=rows.scale[which]))
        elif self.dense and isinstance(rows, DenseRows):
            self.values.widen(rows.values.dtype)
            self.values.extend_taken(rows.values, which)
        elif isinstance(rows, DenseRows):
            self._copy(ReferredRows(rows, which, np.ones(len(which)), 0.0, rows.values.shape[1]))
        else:
            self.extend(rows.take(which))

    def keep(self, which: Ints) -> None:
        if self.dense:
            self.values.keep(which)
            return
        keep_ragged(self.indptr, which, self.indices, self.values)


class GrowingOuter:
    """Outer rows, growing in place; the features of each example are stored once."""

    def __init__(self, like: OuterRows, room: Room = ROOM, *, sparse: bool = False) -> None:
        self.x = GrowingFeatures(like.x, room=room, sparse=sparse)
        self.at = Growing(np.int64, room=room)
        self.plus = Growing(np.int32, room=room)
        self.minus = Growing(np.int32, room=room)
        self.scale = Growing(np.float64, room=room)
        self.width = like.width

    @property
    def view(self) -> OuterRows:
        return OuterRows(self.x.view, self.at.view, self.plus.view, self.minus.view, self.scale.view, self.width)

    @property
    def nbytes(self) -> int:
        return self.x.nbytes + sum(part.nbytes for part in (self.at, self.plus, self.minus, self.scale))

    def extend(self, rows: OuterRows, stored: Ints) -> None:
        """Add rows; `stored` is the slot of another constraint of the same example, or −1."""
        new = np.flatnonzero(stored < 0)
        place = np.where(stored < 0, 0, self.at.view[stored] if self.at.size else 0)
        place[new] = len(self.x) + np.arange(len(new))
        self.x.extend_taken(rows.x, rows.at[new])
        self.at.extend(place)
        self.plus.extend(rows.plus)
        self.minus.extend(rows.minus)
        self.scale.extend(rows.scale)

    def fill(self, rows: OuterRows) -> None:
        """Replace all rows by these, whose features are already stored once."""
        self.x.extend(rows.x)
        for name in ("at", "plus", "minus", "scale"):
            getattr(self, name).fill(getattr(rows, name))

    def keep(self, which: Ints) -> None:
        for part in (self.at, self.plus, self.minus, self.scale):
            part.keep(which)
        used, place = np.unique(self.at.view, return_inverse=True)
        self.x.keep(used)
        self.at.size = 0
        self.at.extend(place)


def keep_ragged(indptr: Growing, which: Ints, *columns: Growing) -> None:
    """Drop all but these entries, whose values `indptr` delimits."""
    begin, end = indptr.view[which], indptr.view[which + 1]
    for column in columns:
        column.keep_runs(begin, end)
    indptr.fill(np.concatenate([[0], np.cumsum(end - begin)]))


def close_up(values: NDArray[Any], begin: Ints, end: Ints) -> int:
    """Move these runs, given in ascending order, to the front, one after the other; return where they end."""
    return move_up(bits_of(values), begin, end)


@bare_kernel
def move_up(values: NDArray[Any], begin: Ints, end: Ints) -> int:
    """The same for whole numbers.

    In place: a copy of all rows of a large cache takes longer than to compute on them, as its memory is new.
    """
    to = 0
    for r in range(len(begin)):
        if begin[r] == to:  # already in position, like all before it
            to = end[r]
        else:
            for k in range(begin[r], end[r]):
                values[to] = values[k]
                to += 1
    return to
