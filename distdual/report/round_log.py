"""The records of a run: one line per round, and the costs so far."""

from dataclasses import dataclass, field, fields
from typing import Any

from distdual.scan.scan import ShardReport


@dataclass(slots=True)
class Totals:
    """Costs of the run so far."""

    passes: int = 0
    filled: int = 0  # of these, begun only to keep workers busy
    rounds: int = 0
    oracle_calls: int = 0
    calls_saved: int = 0  # by trying recent offenders first
    offenders: int = 0  # received from workers
    kept: int = 0  # of these, added to the cache
    stale: int = 0  # of these, no longer violated on arrival
    pruned: int = 0
    coalesced: int = 0
    wire_bytes: int = 0  # of constraints' rows, from workers to the coordinator
    published_bytes: int = 0  # of weights, before they are copied to every worker
    bytes_read: int = 0
    gets: int = 0  # objects requested to read them
    read_seconds: float = 0.0
    scan_seconds: float = 0.0
    idle_seconds: float = 0.0  # of workers' threads, together
    wait_seconds: float = 0.0  # of the coordinator
    ascent_seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Values by name; faster than `dataclasses.asdict`, which copies every value."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True)
class Round:
    """One line of the run log."""

    seconds: float
    version: int
    shards: int
    certify: bool
    lower: float
    upper: float  # the lowest certified so far; infinity before the first
    gap: float
    estimate: float  # of the gap, from losses at different weights
    cache_rows: int
    cache_bytes: int
    support: int
    totals: dict[str, Any]
    slack: str = "example"  # which examples share one
    events: list[str] = field(default_factory=list)  # changes of the cache or the groups, and failures
    staleness: list[int] = field(default_factory=list)  # counts of reports by versions behind on arrival
    workers: dict[str, list[float]] = field(default_factory=dict)  # examples scanned and busy seconds of each
    scores: dict[str, float] = field(default_factory=dict)  # on the data set of [eval], where this round has some
    scored: int = -1  # the version of the weights that have these scores


@dataclass(slots=True)
class Since:
    """Reports received since the last line of the run log."""

    seconds: float
    busy: float = 0.0
    staleness: list[int] = field(default_factory=list)
    workers: dict[str, list[float]] = field(default_factory=dict)

    def add(self, report: ShardReport, age: int) -> None:
        self.staleness += [0] * (age + 1 - len(self.staleness))
        self.staleness[age] += 1
        busy = report.read_seconds + report.compute_seconds
        self.busy += busy
        known = self.workers.get(report.worker, [0, 0.0])
        self.workers[report.worker] = [known[0] + report.n_examples, known[1] + busy]
