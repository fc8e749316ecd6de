"""Deciding when a worker hangs and when a cluster is lost, from the scheduler's answers and a clock. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from distdual.config import ClusterConfig
from distdual.errors import ClusterError


class Change(NamedTuple):
    """Workers that changed since the last poll."""

    joined: list[str]
    left: list[str]
    silent: list[str]  # without a heartbeat for too long, though still connected


@dataclass(slots=True)
class SignsOfLife:
    """The last signs of life of a cluster, by the local clock; the scheduler's may differ."""

    limits: ClusterConfig
    answered: float  # last answer of the scheduler
    manned: float  # last time with a live worker
    progress: float  # last end of a task, or else the start
    heard: dict[str, tuple[float, float]] = field(default_factory=dict)  # per worker: last heartbeat, since when

    def look(self, now: float, heartbeats: Mapping[str, float]) -> Change:
        """Record the workers that the scheduler knows, with their last heartbeats by its clock."""
        known, self.answered = self.heard, now
        self.heard = {
            address: known[address] if address in known and known[address][0] == beat else (beat, now)
            for address, beat in heartbeats.items()
        }
        silent = sorted(a for a, (_, since) in self.heard.items() if now - since > self.limits.silence)
        if len(silent) < len(self.heard):
            self.manned = now
        else:
            self.progress = now  # without workers, no progress is expected
        return Change(sorted(self.heard.keys() - known.keys()), sorted(known.keys() - self.heard.keys()), silent)

    def away(self, seconds: float) -> None:
        """Allow for a time in which the coordinator did not poll."""
        self.answered += seconds
        self.manned += seconds
        self.progress += seconds
        self.heard = {address: (beat, since + seconds) for address, (beat, since) in self.heard.items()}

    def check(self, now: float) -> None:
        """Raise ClusterError when a limit is exceeded."""
        limits = self.limits
        if now - self.answered > limits.patience:
            raise ClusterError(f"the scheduler has not answered for {limits.patience:g} s (cluster.patience)")
        if now - self.manned > limits.patience:
            raise ClusterError(f"there has been no worker for {limits.patience:g} s (cluster.patience)")
        if now - self.progress > limits.scan_timeout:
            workers = ", ".join(sorted(self.heard)[:3])
            raise ClusterError(
                f"no scan has ended for {limits.scan_timeout:g} s (cluster.scan_timeout), though there are workers "
                f"({workers}); smaller shards are scanned faster"
            )
