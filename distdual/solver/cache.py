"""The constraint cache: rows, margins and α of the constraints met so far, and the groups that share a slack.

Constraints live in slots that move only when the cache is pruned. Arrays grow in place. `members` lists the slots group
by group, so that a kernel visits the constraints of one slack together wherever their rows are.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distdual.errors import InputError
from distdual.kernels.jit import bare_kernel
from distdual.kernels.row_copies import are_mostly_zeros, packed, widening
from distdual.kernels.rows import (
    CsrRows,
    DenseRows,
    Floats,
    Ints,
    OuterRows,
    ReferredRows,
    Rows,
    add,
)
from distdual.problems.base import Constraints, Keys
from distdual.problems.constraint_hash import Identities, are_new, identities
from distdual.solver.active_set import AnyScratch, scratch_of
from distdual.solver.cache_index import are_absent, group_up, merge
from distdual.solver.gram import count_older, fill_gram, keep_gram
from distdual.solver.growable import ROOM, Growing, GrowingFeatures, GrowingOuter, Room, keep_ragged
from distdual.solver.metric import Plain, Space, curvature, space_of
from distdual.solver.regularizer import Prior

NO_REFERENCE = np.iinfo(np.int64).max
WORTHWHILE = 0.05  # smallest share of constraints worth dropping, as the others must move
NO_REFERENCES: Ints = np.empty(0, dtype=np.int64)
STORED = (
    "example",
    "cost",
    "margin",
    "alpha",
    "curve",
    "identity",
    "idle",
    "reference",
    "images",
    "key_indptr",
    "key_values",
    "gram_indptr",
    "gram",
)  # saved in checkpoints beside the rows; inner products too, as computing them again is slow


class View(NamedTuple):
    """The arrays of a cache for kernels, valid until the cache changes."""

    space: Space
    rows: Rows
    margin: Floats
    alpha: Floats  # changed in place by the ascent
    curve: Floats  # x_kᵀ Λ⁻¹ x_k
    members: Ints  # slots, group by group
    group_indptr: Ints  # (n_groups + 1,) into members
    capacity: Floats  # (n_groups,) C_i
    most: Floats  # (n,) C_i of the group each slot belongs to
    scratch: AnyScratch


class ConstraintCache:
    """The constraints met so far, their α, and the groups that share a slack.

    The group of a constraint is its example, or the first example of several that share a slack; negative groups hold
    the constraints w_k ≥ 0, which belong to no example.
    """

    def __init__(self, C: float, prior: Prior, room: Room = ROOM) -> None:
        self.C = C
        self.prior = prior
        self.room = room
        self.clear()

    def clear(self) -> None:
        def growing(dtype: Any, width: int = 0) -> Growing:
            return Growing(dtype, width, room=self.room)

        self.rows: GrowingFeatures | GrowingOuter | None = None
        self.example = growing(np.int64)
        self.cost = growing(np.float64)
        self.margin = growing(np.float64)
        self.alpha = growing(np.float64)
        self.curve = growing(np.float64)
        self.identity = growing(np.uint64)
        self.idle = growing(np.int32)  # scans since α was last above 0
        self.reference = growing(np.int64)  # see coordinator/provenance.py; only with groups of examples
        self.referenced = False
        self.images = growing(np.float64, self.prior.n_weights if self.prior.full else 0)
        self.key_indptr = growing(np.int64)
        self.key_indptr.extend(np.zeros(1, dtype=np.int64))
        self.key_values = growing(np.int32)
        self.gram_indptr = growing(np.int64)  # see metric.Plain
        self.gram = growing(np.float64)
        self.members: Ints = np.empty(0, dtype=np.int64)
        self.group_indptr: Ints = np.zeros(1, dtype=np.int64)
        self.group_example: Ints = np.empty(0, dtype=np.int64)  # ascending

    def __len__(self) -> int:
        return self.example.size

    @property
    def n_groups(self) -> int:
        return len(self.group_example)

    @property
    def n_weights(self) -> int:
        return self.prior.n_weights

    @property
    def single(self) -> bool:
        """Whether no two constraints share a slack."""
        return self.n_groups == len(self)

    @property
    def nbytes(self) -> int:
        columns = (*self._columns, self.key_indptr, self.key_values, self.gram_indptr, self.gram)
        groups = self.members.nbytes + self.group_indptr.nbytes + self.group_example.nbytes
        return sum(column.nbytes for column in columns) + groups + (self.rows.nbytes if self.rows else 0)

    def nbytes_with(self, parts: list[Constraints]) -> int:
        """Return the size of the cache with these constraints added, all of them new."""
        own = self._columns if self.referenced else [*self._columns, self.reference]
        flat = sum(column.buffer.itemsize * max(1, column.width) for column in own) + 40  # indptr, members, groups
        group = np.searchsorted(self.group_example, np.concatenate([part.example for part in parts]))
        siblings = np.diff(self.group_indptr, append=self.group_indptr[-1])[np.minimum(group, self.n_groups)]
        inner = 8 * int(siblings.sum()) if self.prior.plain else 0
        new = sum(part.rows.nbytes + part.keys.values.nbytes + flat * len(part.margin) for part in parts)
        own_rows = [self.rows.view] if self.rows else []
        return self.nbytes + int(new) + inner + widening([*own_rows, *(part.rows for part in parts)])

    @property
    def _columns(self) -> list[Growing]:
        columns = [self.example, self.cost, self.margin, self.alpha, self.curve, self.identity, self.idle]
        columns = [*columns, self.reference] if self.referenced else columns
        return [*columns, self.images] if self.prior.full else columns

    def view(self) -> View:
        assert self.rows is not None
        most = self.C * self.cost.view
        space = space_of(self.prior, self.images.view)
        return View(
            Plain(self.gram_indptr.view, self.gram.view) if isinstance(space, Plain) else space,
            self.rows.view,
            self.margin.view,
            self.alpha.view,
            self.curve.view,
            self.members,
            self.group_indptr,
            most[self.members[self.group_indptr[:-1]]],
            most,
            scratch_of(self.group_indptr, jointly=not isinstance(self.rows.view, OuterRows)),
        )

    def support(self) -> Ints:
        """Slots of the constraints of examples with α > 0, group by group."""
        slots: Ints = self.members[(self.alpha.view[self.members] > 0) & (self.example.view[self.members] >= 0)]
        return slots

    def keys(self) -> Keys:
        return Keys(self.key_indptr.view, self.key_values.view)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return all columns but the rows, as views that are valid until the next change."""
        return {name: getattr(self, name).view for name in STORED}

    def restore(self, rows: Rows | None, columns: Mapping[str, NDArray[Any]], *, referenced: bool) -> None:
        """Replace the content of the cache by these constraints, in these slots."""
        self.clear()
        self.referenced = referenced
        for name in STORED:
            getattr(self, name).fill(columns[name])
        if isinstance(rows, OuterRows):
            self.rows = GrowingOuter(rows, room=self.room)
            self.rows.fill(rows)
        elif rows is not None:
            self.rows = GrowingFeatures(rows, room=self.room)
            self.rows.extend(rows)
        if len(self):
            self._index(np.arange(len(self)))

    def known(self, first: int, last: int) -> Identities:
        """Return the identities of the cached constraints of examples first … last − 1."""
        begin, end = np.searchsorted(self.group_example, [first, last])
        slots = self.members[self.group_indptr[begin] : self.group_indptr[end]]
        known: Identities = self.identity.view[slots]
        return known

    def holds_any(self, example: Ints) -> bool:
        """Whether the cache holds constraints of any of these examples or groups."""
        if not self.n_groups:
            return False
        group = np.minimum(np.searchsorted(self.group_example, example), self.n_groups - 1)
        return bool((self.group_example[group] == example).any())

    def insert(self, *parts: Constraints, references: Sequence[Ints] = ()) -> Ints:
        """Add the constraints that are not cached yet, with α = 0, and return their slots; parts share no examples.

        `references`, one array per part, identify the members of groups' rows; see coordinator/provenance.py.
        """
        if references and not self.referenced:
            self.referenced = True
            self.reference.extend(np.full(len(self), NO_REFERENCE))
        given = references or [NO_REFERENCES] * len(parts)
        slots = np.concatenate([self._append(part, own) for part, own in zip(parts, given, strict=True)])
        self._index(slots)
        self._extend_gram(slots)
        return slots

    def _extend_gram(self, slots: Ints) -> None:
        """Add the inner products of new constraints with the older ones of their groups; outer rows need none."""
        if not isinstance(self.rows, GrowingFeatures) or not self.prior.plain:
            return
        if not self.gram_indptr.size:
            self.gram_indptr.extend(np.zeros(1, dtype=np.int64))
        if self.single:  # no constraint has an older sibling
            self.gram_indptr.extend(np.zeros(len(slots), dtype=np.int64))
            return
        start = self.group_indptr[np.searchsorted(self.group_example, self.example.view[slots])]
        older = np.empty(len(slots), dtype=np.int64)
        count_older(self.members, slots, start, older)
        self.gram_indptr.extend(self.gram.size + np.cumsum(older))
        values = np.empty(older.sum())
        fill_gram(self.rows.view, self.members, slots, start, older, np.zeros(self.n_weights), values)
        self.gram.extend(values)

    def check_gram(self) -> None:
        """Refuse stored inner products that are not one for each older constraint of the same group."""
        if not self.gram_indptr.size:
            return
        place, start = self._places()
        if (np.diff(self.gram_indptr.view) != place - start).any() or self.gram_indptr.view[-1] != self.gram.size:
            raise InputError("gram_indptr: not one inner product for each older constraint of a group")

    def _places(self) -> tuple[Ints, Ints]:
        """Return the position of each slot in `members`, and of the start of its group."""
        place, start = np.empty(len(self), dtype=np.int64), np.empty(len(self), dtype=np.int64)
        place[self.members] = np.arange(len(self))
        start[self.members] = np.repeat(self.group_indptr[:-1], np.diff(self.group_indptr))
        return place, start

    def _append(self, new: Constraints, references: Ints) -> Ints:
        identity = identities(new.example, new.keys)
        fresh = are_absent(
            new.example, identity, self.group_example, self.group_indptr, self.members, self.identity.view
        )
        if not (np.diff(new.example) > 0).all():  # may hold duplicates
            fresh &= are_new(identity, identity[:0])
        if not fresh.all():
            new, identity = new.take(np.flatnonzero(fresh)), identity[fresh]
            references = references[fresh] if len(references) else references
        n = len(identity)
        if not n:
            return np.empty(0, dtype=np.int64)
        if self.referenced:
            self.reference.extend(references if len(references) else np.full(n, NO_REFERENCE))
        slots = np.arange(len(self), len(self) + n)
        rows = self._extend_rows(new)
        self.example.extend(new.example)
        self.cost.extend(new.cost)
        self.margin.extend(new.margin)
        self.alpha.extend(np.zeros(n))
        self.identity.extend(identity)
        self.idle.extend(np.zeros(n, dtype=np.int32))
        if self.prior.full:
            self.images.extend(self._images(slots))
        all_curvatures(space_of(self.prior, self.images.view), rows.view, slots, self.curve.more(n))
        self.key_indptr.extend(new.keys.indptr[1:] + self.key_values.size)
        self.key_values.extend(new.keys.values)
        return slots

    def _extend_rows(self, new: Constraints) -> GrowingFeatures | GrowingOuter:
        """Copy new rows into the cache and return all rows; the first ones decide whether zeros are stored."""
        if isinstance(new.rows, OuterRows):
            if self.rows is None:
                self.rows = GrowingOuter(new.rows, room=self.room, sparse=are_mostly_zeros(new.rows.x))
            assert isinstance(self.rows, GrowingOuter)
            self.rows.extend(new.rows, self._sibling(new.example))
        else:
            if self.rows is None:
                sparse = not self.prior.full and are_mostly_zeros(new.rows)  # with a full prior, rows e_k come first
                self.rows = GrowingFeatures(new.rows, room=self.room, sparse=sparse)
            assert isinstance(self.rows, GrowingFeatures)
            self.rows.extend(new.rows)
        return self.rows

    def _sibling(self, example: Ints) -> Ints:
        """Return the slot of some constraint of each example, or −1."""
        if not self.n_groups:
            return np.full(len(example), -1)
        group = np.minimum(np.searchsorted(self.group_example, example), self.n_groups - 1)
        here = self.group_example[group] == example
        return np.where(here, self.members[self.group_indptr[group]], -1)

    def insert_nonnegative(self, like: Rows | ReferredRows) -> None:
        """Add w_k ≥ 0 as constraints without slack: row e_k, margin 0, infinite capacity, group −1 − k."""
        at = np.flatnonzero(self.prior.floor == 0.0)
        n = len(at)
        if n:
            self.insert(Constraints(-1 - at, np.full(n, np.inf), np.zeros(n), unit_rows(at, like), Keys.none(n)))

    def prune(self, idle: int) -> int:
        """Drop constraints of examples whose α is 0, as at the last `idle` calls, and return how many.

        If they are few, nothing is dropped, since the remaining constraints must move.
        """
        count = self.idle.view
        count[:] = np.where(self.alpha.view > 0, 0, count + 1)
        stay = (count <= idle) | (self.example.view < 0)
        dropped = int((~stay).sum())
        if idle and dropped < WORTHWHILE * len(stay):
            return 0
        if dropped:
            self.keep(np.flatnonzero(stay))
        return dropped

    def keep(self, which: Ints) -> None:
        """Drop all constraints but these slots, given in ascending order; slots are renumbered."""
        assert self.rows is not None
        self._keep_gram(which)
        self.rows.keep(which)
        for column in self._columns:
            column.keep(which)
        keep_ragged(self.key_indptr, which, self.key_values)
        self.members = np.empty(0, dtype=np.int64)
        self._index(np.arange(len(which)))

    def _keep_gram(self, which: Ints) -> None:
        if not self.gram.size:
            self.gram_indptr.size = min(self.gram_indptr.size, len(which) + 1)
            return
        stays = np.zeros(len(self), dtype=np.bool_)
        stays[which] = True
        indptr = np.zeros(len(which) + 1, dtype=np.int64)
        keep_gram(self.members, which, *self._places(), stays, self.gram_indptr.view, self.gram.view, indptr)
        self.gram.size = int(indptr[-1])
        self.gram_indptr.size = 0
        self.gram_indptr.extend(indptr)

    def _images(self, slots: Ints) -> Floats:
        """Return Λ⁻¹ x_k of new rows, where Λ is full."""
        assert self.rows is not None
        dense = np.zeros((len(slots), self.prior.n_weights))
        unpack(self.rows.view, slots, dense)
        return self.prior.whiten(dense)

    def _index(self, slots: Ints) -> None:
        """Merge new slots into `members`, sorted by example and then by age."""
        example = self.example.view
        new = slots[np.argsort(example[slots], kind="stable")]
        self.members = merge(example, self.members, new)
        self.group_indptr, self.group_example = group_up(example, self.members)


def unit_rows(at: Ints, like: Rows | ReferredRows) -> Rows:
    """Return rows e_k in the format of `like`."""
    n, like = len(at), packed(like)
    if isinstance(like, OuterRows):
        raise InputError("prior: w_k ≥ 0 under a full precision matrix is not possible for multiclass problems")
    if isinstance(like, CsrRows):
        return CsrRows(np.arange(n + 1), at.astype(like.indices.dtype), np.ones(n, dtype=like.values.dtype))
    dense = np.zeros((n, like.values.shape[1]), dtype=like.values.dtype)
    dense[np.arange(n), at] = 1.0
    return DenseRows(dense)


@bare_kernel
def all_curvatures(space: Space, rows: Rows, slots: Ints, out: Floats) -> None:
    """out_s = x_kᵀ Λ⁻¹ x_k for k = slots_s; fills `out`."""
    for s in range(len(slots)):
        out[s] = curvature(space, rows, slots[s])


@bare_kernel
def unpack(rows: Rows, slots: Ints, dense: Floats) -> None:
    """dense_s ← dense_s + x_k for k = slots_s, as float64."""
    for s in range(len(slots)):
        add(rows, slots[s], 1.0, dense[s])
