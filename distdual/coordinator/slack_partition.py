"""The current slack partition, and insertion of new constraints into a cache of limited size.

Insertion makes room first: it drops constraints with α = 0, then coalesces each group into one constraint, then merges
groups as far as needed. None of these lowers D(α).
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from distdual.coordinator.coalesce import Mixture, coarsen, condense
from distdual.coordinator.provenance import POSITION_BITS, Ledger, references
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.kernels.row_copies import packed
from distdual.kernels.row_sums import row_lengths
from distdual.kernels.rows import Floats, Ints, OuterRows
from distdual.memory import LARGEST_SHARE, memory_limit
from distdual.problems.base import Constraints, Keys
from distdual.scan.group_members_file import Notes
from distdual.scan.scan import Scan, ShardReport
from distdual.scan.slack import Slack
from distdual.scan.slack_groups import Members, groups_of, join_smaller
from distdual.solver.cache import ConstraintCache
from distdual.solver.solver import Solver

log = logging.getLogger(__name__)

FIRST_BLOCK = Slack(8)  # where single examples take too much memory
FILL_AFTER_COALESCING = 0.5  # of the budget; the rest is for new constraints
CONSTRAINT_BYTES = 160  # upper bound on the bytes of a constraint besides its row


def unset_limit() -> int:
    """Bytes of cached constraints at which a run ends that was given no solver.cache_bytes."""
    return int(LARGEST_SHARE * memory_limit())


class Found(NamedTuple):
    """Constraints of several shards, and references to their rows."""

    parts: list[Constraints]
    names: list[Ints]


class SlackPartition:
    """The partition of examples into slack groups; it only ever gets coarser."""

    def __init__(self, slack: Slack, first: Ints, budget: float, folder: Location | None) -> None:
        self.slack = slack
        self.first = first  # the first example of each shard, and the end of the last
        self.budget = budget
        self.folder = folder  # of members files; None if none are written
        self.ledger = Ledger()
        self.shards: list[int] = []  # the shard of each members file, by number
        self.covers: list[int] = []  # examples scanned for each file; 0 if it has no rows
        self.coalesced = 0
        self.events: list[str] = []  # since the last line of the run log

    def notes(self, shard: int, slack: Slack) -> Notes | None:
        """The file where a scan of this shard records the members of each group; None for single examples."""
        return None if slack.is_example or self.folder is None else self._next_file(shard)

    def recent(self, most: int) -> dict[int, tuple[Notes, ...]]:
        """The newest members files of each shard, enough to cover each example `most` times."""
        found: dict[int, list[Notes]] = {}
        left = most * np.diff(self.first)
        for number in reversed(range(len(self.shards))):
            shard, covers = self.shards[number], self.covers[number]
            if left[shard] > 0 and covers and self.folder is not None:
                found.setdefault(shard, []).append(Notes(self.folder, number))
                left[shard] -= covers
        return {shard: tuple(files) for shard, files in found.items()}

    def insert(self, solver: Solver, reports: Sequence[ShardReport], scans: Sequence[Scan]) -> Ints:
        """Insert the offenders of a round in the order of shards; return their cache slots."""
        parts = [report.offenders for report in reports]
        if np.isinf(self.budget) and (n_bytes := solver.cache.nbytes + new_bytes(parts)) > unset_limit():
            raise InputError(
                f"the cached constraints take {n_bytes:,} bytes, more than half of this machine's memory; set "
                "solver.cache_bytes, below which they are coalesced, or a coarser solver.slack"
            )
        if np.isfinite(self.budget):  # coalescing needs rows of their own
            parts = [part._replace(rows=packed(part.rows)) for part in parts]
        for part, scan in zip(parts, scans, strict=True):
            if scan.notes is not None and len(part.margin):
                self.check_visible(scan.notes)
                if not scan.recent:
                    self.covers[scan.notes.number] = (scan.end or 0) - scan.begin
        if self.slack.is_example and (self._fits(solver, parts) or self._prune(solver, parts)):
            return solver.insert(*parts)
        found = Found(parts, [self._named(part, scan) for part, scan in zip(parts, scans, strict=True)])
        found = self._coarser(found, scans[0].slack, solver.cache.n_weights)
        if not (self._fits(solver, found.parts) or self._prune(solver, found.parts)):
            found = self._make_room(solver, found)
        return solver.insert(*found.parts, references=found.names)

    def name_mixture(self, indptr: Ints, weight: Floats, notes: Notes | None) -> Ints:
        """References to mixtures of the rows of a file."""
        return self.ledger.mix(indptr, references(notes.number if notes else 0, len(weight)), weight)

    def settle(self, solver: Solver) -> None:
        """Fit the constraints of a warm start into the partition and the budget."""
        if len(solver.cache) and (self.slack.is_all or solver.cache.nbytes > self.budget):
            self.slack = self.roomier(solver.cache, Found([], []))
            self._condense(solver)

    def resolve(self, names: Ints, alpha: Floats) -> tuple[Ints, Ints, Ints, Floats]:
        """The recorded rows that make up Σ α x: shard, file, row and α of each."""
        found, shares = self.ledger.resolve(names, alpha)
        file = found >> POSITION_BITS
        return np.array(self.shards, dtype=np.int64)[file], file, found & ((1 << POSITION_BITS) - 1), shares

    def keep_files(self, numbers: Ints) -> None:
        """Remove all members files except these."""
        assert self.folder is not None
        kept = {Notes(self.folder, int(number)).name for number in np.unique(numbers)}
        for name in self.folder.names():
            if name not in kept:
                self.folder.remove_file(name)

    def check_budget(self, cache: ConstraintCache) -> None:
        """Refuse a budget below the minimum: one cached and one new row for the whole data set."""
        n, prior = cache.n_weights, cache.prior
        row = (16 if prior.full else 8) * n + CONSTRAINT_BYTES
        bounded = int((prior.floor == 0.0).sum()) if prior.full else 0
        least = (2 + bounded) * row + 1024
        if self.budget < least:
            raise InputError(
                f"solver.cache_bytes: {self.budget:g} bytes do not hold two constraints of {n} weights, "
                f"the minimum for training; set at least {least}"
            )

    def packed(self) -> tuple[dict[str, Ints], dict[str, Any]]:
        """The state as arrays and as values that JSON can hold, without the ledger's file."""
        ledger = self.ledger
        lists = {"shards": self.shards, "covers": self.covers, "batches": ledger.batches, "offsets": ledger.offsets}
        values = {
            "slack": str(self.slack),
            "coalesced": self.coalesced,
            "events": self.events,
            "n_mixtures": ledger.n_mixtures,
        }
        return {name: np.array(numbers, dtype=np.int64) for name, numbers in lists.items()}, values

    def restore(self, arrays: Mapping[str, Ints], values: Mapping[str, Any], ledger: Iterable[bytes]) -> None:
        """Restore what `packed` returned; `ledger` is the content of the ledger's file, in pieces."""
        self.slack, self.coalesced, self.events = Slack.parse(values["slack"]), values["coalesced"], values["events"]
        self.shards, self.covers = arrays["shards"].tolist(), arrays["covers"].tolist()
        self.ledger.restore(ledger, arrays["batches"], arrays["offsets"], values["n_mixtures"])

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
        return Notes(self.folder, len(self.shards) - 1)

    def check_visible(self, notes: Notes) -> None:
        """Check with the first file that the coordinator can read what workers write."""
        if not any(self.covers) and not notes.folder.exists(notes.name):
            raise InputError(
                f"{notes.folder}: files that workers write there are not visible to the coordinator; "
                'shared slacks need an output.url that all machines can reach, or output.dual = "summary"'
            )

    def _named(self, part: Constraints, scan: Scan) -> Ints:
        """References to new rows: where their members are recorded."""
        if scan.notes is not None:
            return references(scan.notes.number, len(part.margin))
        if scan.slack.is_example:
            return self._note_examples(part.example, part.keys)
        return references(0, len(part.margin))

    def _note_examples(self, example: Ints, keys: Keys) -> Ints:
        """The same for constraints of single examples, which the coordinator records itself."""
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

    def _coarser(self, found: Found, slack: Slack, n_weights: int) -> Found:
        """Convert constraints of groups of `slack`, which was never coarser, to the current partition."""
        within = self.slack.within_shard
        if slack.within_shard != within:
            made = [coarsen(part, within, self.first, n_weights) for part in found.parts]
            names = [self._mixed(mixture, own) for mixture, own in zip(made, found.names, strict=True)]
            found = Found([mixture.constraints for mixture in made], names)
        if self.slack.is_all:
            together = coarsen(join(found.parts, n_weights), self.slack, self.first, n_weights)
            found = Found([together.constraints], [self._mixed(together, np.concatenate(found.names))])
        return found

    def _mixed(self, made: Mixture, names: Ints) -> Ints:
        return self.ledger.mix(made.indptr, names[made.slots], made.weight)

    def _fits(self, solver: Solver, parts: list[Constraints]) -> bool:
        return bool(np.isinf(self.budget)) or solver.cache.nbytes_with(parts) <= self.budget

    def _prune(self, solver: Solver, parts: list[Constraints]) -> bool:
        """Drop all constraints with α = 0; return whether the new ones fit now."""
        dropped = solver.prune(0)
        if dropped:
            self.tell(f"dropped {dropped} constraints with α = 0: the cache is full")
        return self._fits(solver, parts)

    def _make_room(self, solver: Solver, found: Found) -> Found:
        """Coalesce the constraints of each group, and merge neighbouring groups as far as needed."""
        before, rows = self.slack, len(solver.cache)
        self.slack = self.roomier(solver.cache, found)
        if rows:
            self._condense(solver)
            self.coalesced += rows - len(solver.cache)
            self.tell(f"coalesced {rows} constraints into {len(solver.cache)}, one per group: the cache is full")
        if self.slack != before:
            self.tell(f"slack {before} is now {self.slack}: the cache is full")
            found = self._coarser(found, before, solver.cache.n_weights)
        return found

    def roomier(self, cache: ConstraintCache, found: Found) -> Slack:
        """The finest slack from the current one on that leaves half of the budget free."""
        slack = FIRST_BLOCK if self.slack.is_example else self.slack
        while not slack.is_all and self._least(cache, found, slack) > FILL_AFTER_COALESCING * self.budget:
            slack = slack.coarser(int(np.diff(self.first).max()))
        return slack

    def _least(self, cache: ConstraintCache, found: Found, slack: Slack) -> int:
        """Upper bound on the bytes of one cached and one new constraint per group."""
        sides = [(part.example, row_lengths(part.rows)) for part in found.parts]
        if cache.rows is not None:
            kept = np.flatnonzero(cache.alpha.view > 0)
            sides.append((cache.example.view[kept], row_lengths(cache.rows.view)[kept]))
        total = 0
        for example, lengths in sides:
            own = example < 0
            _, place = np.unique(groups_of(np.maximum(example, 0), slack, self.first), return_inverse=True)
            values = np.minimum(np.bincount(place[~own], lengths[~own]), cache.n_weights)
            row = (
                np.minimum(12 * values, 8 * cache.n_weights) + CONSTRAINT_BYTES + 8 * cache.n_weights * cache.prior.full
            )
            total += int(row.sum()) + int(own.sum()) * CONSTRAINT_BYTES
        return total

    def _condense(self, solver: Solver) -> None:
        cache = solver.cache
        made = condense(cache, self.slack, self.first)
        if cache.referenced:
            names = cache.reference.view[made.slots]
        else:
            names = self._note_examples(cache.example.view[made.slots], cache.keys().take(made.slots))
        mixed = self.ledger.mix(made.indptr, names, made.weight)
        solver.replace(made.constraints, made.alpha, [mixed])


def new_bytes(parts: Sequence[Constraints]) -> int:
    """The bytes of new rows."""
    return sum(part.rows.nbytes for part in parts)


def join(parts: Sequence[Constraints], n_weights: int) -> Constraints:
    """Concatenate constraints of groups."""
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
