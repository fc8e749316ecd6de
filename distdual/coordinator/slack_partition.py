"""How many examples share a slack, now, and how does what workers found get into a cache of limited size?

Before constraints go in, room is made for them: those with α = 0 go first, then all constraints of a group become one,
then groups become larger, as far as it takes. D(α) does not fall by any of it.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from distdual.coordinator.coalesce import Mixture, coarsen, condense
from distdual.coordinator.provenance import PLACES, Ledger, references
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.row_copies import packed
from distdual.kernels.rows import Floats, Ints, OuterRows
from distdual.problems.base import Constraints, Keys
from distdual.scan.group_members_file import Notes
from distdual.scan.scan import Scan, ShardReport
from distdual.scan.slack_groups import ALL, EXAMPLE, SHARD, Members, groups_of, join_smaller, name_of, row_lengths
from distdual.solver.cache import ConstraintCache
from distdual.solver.solver import Solver

log = logging.getLogger(__name__)

FIRST_BLOCK = 8  # examples a group where single examples take too much room
FILLED = 0.5  # of the budget that coalescing may leave in use: room for what is found next
ROW = 160  # bytes that a constraint takes beside its row, at most


class Found(NamedTuple):
    """Constraints of several shards, and references to their rows."""

    parts: list[Constraints]
    names: list[Ints]


class Grouping:
    """The partition into groups that the run works with; it only ever gets coarser."""

    def __init__(self, grain: int, first: Ints, budget: float, folder: Location | None) -> None:
        self.grain = grain
        self.first = first  # the first example of each shard, and the end of the last
        self.budget = budget
        self.folder = folder  # of files of members, if any are written
        self.ledger = Ledger()
        self.number = 0  # of the next file of members
        self.shards: list[int] = []  # that each file so far is of
        self.covers: list[int] = []  # examples that the oracle was asked about for it, 0 if it has no rows
        self.coalesced = 0
        self.events: list[str] = []  # what was done since somebody asked

    def notes(self, shard: int, grain: int) -> Notes | None:
        """Where a scan of groups of this shard writes down who is in them."""
        return None if grain == EXAMPLE or self.folder is None else self._next_file(shard)

    def recent(self, most: int) -> dict[int, tuple[Notes, ...]]:
        """The last files of each shard, the newest first: as many as it takes to meet each example `most` times."""
        found: dict[int, list[Notes]] = {}
        left = most * np.diff(self.first)
        for number in reversed(range(self.number)):
            shard, covers = self.shards[number], self.covers[number]
            if left[shard] > 0 and covers and self.folder is not None:
                found.setdefault(shard, []).append(Notes(self.folder, number))
                left[shard] -= covers
        return {shard: tuple(files) for shard, files in found.items()}

    def insert(self, solver: Solver, reports: Sequence[ShardReport], scans: Sequence[Scan]) -> Ints:
        """Add what a round has found, in the order of shards; returns the slots."""
        parts = [report.offenders for report in reports]
        if np.isfinite(self.budget):  # some may have to be coalesced
            parts = [part._replace(rows=packed(part.rows)) for part in parts]
        for part, scan in zip(parts, scans, strict=True):
            if scan.notes is not None and len(part.margin):
                self._check_shared(scan.notes)
                if not scan.recent:
                    self.covers[scan.notes.number] = (scan.end or 0) - scan.begin
        if self.grain == EXAMPLE and (self._fits(solver, parts) or self._prune(solver, parts)):
            return solver.insert(*parts)
        found = Found(parts, [self._named(part, scan) for part, scan in zip(parts, scans, strict=True)])
        found = self._coarser(found, min(scan.grain for scan in scans), solver.cache.n_weights)
        if not (self._fits(solver, found.parts) or self._prune(solver, found.parts)):
            found = self._make_room(solver, found)
        return solver.insert(*found.parts, references=found.names)

    def name_mixture(self, indptr: Ints, weight: Floats, notes: Notes | None) -> Ints:
        """References to rows that are mixtures of those in a file."""
        return self.ledger.mix(indptr, references(notes.number if notes else 0, len(weight)), weight)

    def settle(self, solver: Solver) -> None:
        """Fit what a run begins with, constraints of groups no larger than a shard, into the groups and the budget."""
        if len(solver.cache) and (self.grain == ALL or solver.cache.nbytes > self.budget):
            self.grain = self._next_grain(solver.cache, Found([], []))
            self._condense(solver)

    def resolve(self, names: Ints, alpha: Floats) -> tuple[Ints, Ints, Ints, Floats]:
        """The rows of files that Σ α x is made of: shard, file, row and α of each."""
        found, shares = self.ledger.resolve(names, alpha)
        file = found >> PLACES
        return np.array(self.shards, dtype=np.int64)[file], file, found & ((1 << PLACES) - 1), shares

    def keep_files(self, numbers: Ints) -> None:
        """Remove all files of members but these, whichever run wrote them."""
        assert self.folder is not None
        kept = {Notes(self.folder, int(number)).name for number in np.unique(numbers)}
        for name in self.folder.names():
            if name not in kept:
                self.folder.remove_file(name)

    def check_budget(self, cache: ConstraintCache) -> None:
        """The least that must fit: for the whole data set one row that is cached and one that comes in."""
        n, prior = cache.n_weights, cache.prior
        row = (16 if prior.full else 8) * n + ROW
        bounded = int((prior.floor == 0.0).sum()) if prior.full else 0
        least = (2 + bounded) * row + 1024
        if self.budget < least:
            raise InputError(
                f"solver.cache_bytes: {self.budget:g} bytes do not hold two constraints of {n} weights, "
                f"the least that training can do with; {least} bytes are needed"
            )

    def tell(self, event: str) -> None:
        log.info("slack: %s", event)
        self.events.append(event)

    def take_events(self) -> list[str]:
        events, self.events = self.events, []
        return events

    def _next_file(self, shard: int) -> Notes:
        assert self.folder is not None
        self.shards.append(shard)
        self.covers.append(0)
        self.number += 1
        return Notes(self.folder, self.number - 1)

    def _check_shared(self, notes: Notes) -> None:
        """The first file tells whether workers write to where the coordinator, and `verify`, will read."""
        if not any(self.covers) and not notes.folder.exists(notes.name):
            raise InputError(
                f"{notes.folder}: what workers write there is not to be seen from here; "
                'shared slacks need an output.url that all machines reach, or output.dual = "summary"'
            )

    def _named(self, part: Constraints, scan: Scan) -> Ints:
        """References to rows as they came: where their members are written down."""
        if scan.notes is not None:
            return references(scan.notes.number, len(part.margin))
        if scan.grain == EXAMPLE:
            return self._note_examples(part.example, part.keys)
        return references(0, len(part.margin))

    def _note_examples(self, example: Ints, keys: Keys) -> Ints:
        """The same for constraints of single examples, which the coordinator writes down itself."""
        named = references(0, len(example))
        if self.folder is None:
            return named
        shard = np.searchsorted(self.first, example, side="right") - 1
        for s in np.unique(shard):
            at = np.flatnonzero(shard == s)
            note = self._next_file(int(s))
            note.write(Members(np.arange(len(at) + 1), example[at] - self.first[s], keys.take(at)))
            named[at] = references(note.number, len(at))
        return named

    def _coarser(self, found: Found, grain: int, n_weights: int) -> Found:
        """Constraints of groups of `grain` examples as those of the groups there are now."""
        if grain < min(self.grain, SHARD):
            made = [coarsen(part, min(self.grain, SHARD), self.first, n_weights) for part in found.parts]
            names = [self._mixed(mixture, own) for mixture, own in zip(made, found.names, strict=True)]
            found = Found([mixture.constraints for mixture in made], names)
        if self.grain == ALL:
            together = coarsen(join(found.parts, n_weights), ALL, self.first, n_weights)
            found = Found([together.constraints], [self._mixed(together, np.concatenate(found.names))])
        return found

    def _mixed(self, made: Mixture, names: Ints) -> Ints:
        return self.ledger.mix(made.indptr, names[made.slots], made.weight)

    def _fits(self, solver: Solver, parts: list[Constraints]) -> bool:
        return bool(np.isinf(self.budget)) or solver.cache.nbytes_with(parts) <= self.budget

    def _prune(self, solver: Solver, parts: list[Constraints]) -> bool:
        """Drop all constraints with α = 0; returns whether that made room enough."""
        dropped = solver.prune(0)
        if dropped:
            self.tell(f"dropped {dropped} constraints with α = 0, for want of room")
        return self._fits(solver, parts)

    def _make_room(self, solver: Solver, found: Found) -> Found:
        """Coalesce the constraints of each group, and join neighbouring groups as far as needed."""
        before, rows = self.grain, len(solver.cache)
        self.grain = self._next_grain(solver.cache, found)
        if rows:
            self._condense(solver)
            self.coalesced += rows - len(solver.cache)
            self.tell(f"coalesced {rows} constraints into {len(solver.cache)}, one a group, for want of room")
        if self.grain != before:
            self.tell(f"slack {name_of(before)} is now {name_of(self.grain)}, for want of room")
            found = self._coarser(found, before, solver.cache.n_weights)
        return found

    def _next_grain(self, cache: ConstraintCache, found: Found) -> int:
        """The finest partition, from the present one on, that leaves half of the budget free.

        Its groups must be unions of those there are: sizes are multiplied.
        """
        grain = self.grain if self.grain > EXAMPLE else FIRST_BLOCK
        while grain < ALL and self._least(cache, found, grain) > FILLED * self.budget:
            grain = 2 * grain if grain < SHARD else ALL
            if SHARD > grain >= int(np.diff(self.first).max()):
                grain = SHARD
        return grain

    def _least(self, cache: ConstraintCache, found: Found, grain: int) -> int:
        """Bytes, at most, of one cached and one new constraint for each group of `grain` examples."""
        sides = [(part.example, row_lengths(part.rows)) for part in found.parts]
        if cache.rows is not None:
            kept = np.flatnonzero(cache.alpha.view > 0)
            sides.append((cache.example.view[kept], row_lengths(cache.rows.view)[kept]))
        total = 0
        for example, lengths in sides:
            own = example < 0
            _, place = np.unique(groups_of(np.maximum(example, 0), grain, self.first), return_inverse=True)
            values = np.minimum(np.bincount(place[~own], lengths[~own]), cache.n_weights)
            row = np.minimum(12 * values, 8 * cache.n_weights) + ROW + 8 * cache.n_weights * cache.prior.full
            total += int(row.sum()) + int(own.sum()) * ROW
        return total

    def _condense(self, solver: Solver) -> None:
        cache = solver.cache
        made = condense(cache, self.grain, self.first)
        if cache.referenced:
            names = cache.reference.view[made.slots]
        else:
            names = self._note_examples(cache.example.view[made.slots], cache.keys().take(made.slots))
        mixed = self.ledger.mix(made.indptr, names, made.weight)
        solver.replace(made.constraints, made.alpha, [mixed])


def join(parts: Sequence[Constraints], n_weights: int) -> Constraints:
    """Constraints of groups, those of one part after those of another."""
    lengths = [np.diff(part.keys.indptr) for part in parts]
    return Constraints(
        np.concatenate([part.example for part in parts]),
        np.concatenate([part.cost for part in parts]),
        np.concatenate([part.margin for part in parts]),
        join_smaller([part.rows for part in parts if not isinstance(part.rows, OuterRows)], n_weights),
        Keys(
            np.concatenate([[0], np.cumsum(np.concatenate(lengths))]),
            np.concatenate([part.keys.values for part in parts]),
        ),
    )
