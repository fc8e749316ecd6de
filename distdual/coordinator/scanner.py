"""The scans of a run: publish weights, send pieces to workers, check the reports and count their costs."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distdual.cluster.base import Executor
from distdual.coordinator.report_checks import check_report
from distdual.coordinator.run_state import RunState
from distdual.coordinator.schedule import Piece, cut_expensive
from distdual.coordinator.slack_partition import SlackPartition
from distdual.kernels.rows import Floats, Ints
from distdual.report.round_log import Since
from distdual.scan.cv_folds import Fold
from distdual.scan.group_members_file import Notes
from distdual.scan.scan import Scan, ShardReport, is_built_in
from distdual.scan.slack import Slack
from distdual.solver.solver import Solver

NO_IDENTITIES: Any = np.empty(0, dtype=np.uint64)
MOST_KINKS, MIN_KINKS = 1 << 20, 64  # of the loss along a free bias, from all shards, and from each at least
NO_NOTES: Mapping[int, tuple[Notes, ...]] = {}


class OutOfTimeError(Exception):
    """The time of a run was over before its round was."""


@dataclass(slots=True)
class Scanner:
    """Runs scans of the executor's problem; costs go into the run's state."""

    executor: Executor
    first: Ints  # number of the first example of each shard
    solver: Solver
    partition: SlackPartition
    state: RunState
    fold: Fold | None = None  # examples to leave out
    hurried: bool = False  # whether to give up a round whose time is over
    pool: int = 1  # neighbours of which a scan that does not certify selects one
    since: Since = field(default_factory=lambda: Since(time.perf_counter()))

    def publish(self, w: Floats) -> int:
        """Send weights to workers; return their version."""
        version = self.state.next_version()
        self.executor.publish(version, w)
        self.state.totals.published_bytes += w.nbytes
        return version

    def scan(
        self,
        pieces: tuple[Piece, ...],
        w: Floats,
        slack: Slack,
        recent: Mapping[int, tuple[Notes, ...]] = NO_NOTES,
        *,
        certify: bool = False,
        search: bool = False,
    ) -> tuple[list[Scan], list[ShardReport]]:
        """Scan the pieces at w, cut where the oracle is expensive; scans and reports are in the order of examples.

        `recent` maps a shard to members files to search instead of calling the oracle. A scan that certifies
        reports all offenders; `search` asks for the loss along a free bias.
        """
        version = self.publish(w)
        pieces = tuple(sorted(pieces))
        if not recent:
            problem = self.executor.problem
            pieces = cut_expensive(pieces, problem.oracle_work, slack, shared=problem.holds_gil)
        scans = [
            self.scan_of(p, version, slack, recent.get(p.shard, ()), ticket, certify=certify, search=search)
            for ticket, p in enumerate(pieces)
        ]
        begin = time.perf_counter()
        reports = sorted(self._in_time(scans), key=lambda report: report.ticket)
        self.state.totals.wait_seconds += time.perf_counter() - begin
        self.state.totals.rounds += 1
        for scan, report in zip(scans, reports, strict=True):
            self.count(report, scan)
        return scans, reports

    def _in_time(self, scans: list[Scan]) -> Iterator[ShardReport]:
        """Reports as they end; raises OutOfTimeError once it is time to stop, if another scan may take long."""
        for arrived, report in enumerate(self.executor.reports(scans), 1):
            yield report
            if self.hurried and arrived < len(scans) and self.solver.should_stop():
                raise OutOfTimeError

    def scan_of(
        self,
        piece: Piece,
        version: int,
        slack: Slack,
        recent: tuple[Notes, ...] = (),
        ticket: int = 0,
        *,
        certify: bool = False,
        search: bool = False,
    ) -> Scan:
        """The scan of a piece, for a worker to carry out."""
        notes = self.partition.notes(piece.shard, slack)
        known = self._known(piece)
        kinks = max(MIN_KINKS, MOST_KINKS // (len(self.first) - 1)) if search and self.solver.prior.free else 0
        pool = 1 if certify or recent else self.pool
        return Scan(
            piece.shard, version, known, piece.begin, piece.end, slack, notes, recent, self.fold, pool, kinks, ticket
        )

    def count(self, report: ShardReport, scan: Scan) -> None:
        """Check a report and add up its costs."""
        problem = self.executor.problem
        sent = self.executor.sends_reports or not is_built_in(problem)
        check_report(report, scan, self.first, problem.n_weights, sent=sent)
        self.solver.meet(report.magnitude)
        totals = self.state.totals
        totals.oracle_calls += report.n_examples
        totals.offenders += len(report.offenders.margin)
        totals.wire_bytes += report.offenders.rows.nbytes
        totals.bytes_read += report.bytes_read
        totals.gets += report.gets
        totals.read_seconds += report.read_seconds
        totals.scan_seconds += report.compute_seconds
        self.since.add(report, self.state.version - 1 - report.version)

    def take_since(self) -> Since:
        """What arrived since the last call."""
        since, self.since = self.since, Since(time.perf_counter())
        idle = self.executor.slots * (self.since.seconds - since.seconds) - since.busy
        self.state.totals.idle_seconds += max(0.0, idle)
        return since

    def _known(self, piece: Piece) -> Any:
        if self.partition.slack.is_all:  # each report is one part of a row: all are needed
            return NO_IDENTITIES
        first = int(self.first[piece.shard])
        return self.solver.cache.known(first + piece.begin, first + piece.end)
