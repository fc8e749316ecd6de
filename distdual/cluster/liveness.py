"""When is a worker hung, and when is a cluster gone? Pure: told what the scheduler says, and the time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from distdual.config import ClusterConfig
from distdual.errors import ClusterError


class Change(NamedTuple):
    """What is new since the last look."""

    joined: list[str]
    left: list[str]
    silent: list[str]  # not heard of by the scheduler for too long, though their connections stand


@dataclass(slots=True)
class Watch:
    """All times are of our own clock: the scheduler's may differ."""

    limits: ClusterConfig
    answered: float  # when the scheduler did so last
    manned: float  # when there was a worker last
    progress: float  # when a task ended last, or else was begun
    heard: dict[str, tuple[float, float]] = field(default_factory=dict)  # of each worker: last heartbeat, since when

    def look(self, now: float, heartbeats: Mapping[str, float]) -> Change:
        """Take note of the workers that the scheduler knows, and of its clock when it last heard of each."""
        known, self.answered = self.heard, now
        self.heard = {
            address: known[address] if address in known and known[address][0] == beat else (beat, now)
            for address, beat in heartbeats.items()
        }
        silent = sorted(a for a, (_, since) in self.heard.items() if now - since > self.limits.silence)
        if len(silent) < len(self.heard):
            self.manned = now
        else:
            self.progress = now  # nobody is there to make any
        return Change(sorted(self.heard.keys() - known.keys()), sorted(known.keys() - self.heard.keys()), silent)

    def away(self, seconds: float) -> None:
        """Nobody has looked for so long: what was not seen meanwhile is nobody's fault."""
        self.answered += seconds
        self.manned += seconds
        self.progress += seconds
        self.heard = {address: (beat, since + seconds) for address, (beat, since) in self.heard.items()}

    def check(self, now: float) -> None:
        """Raise when there is no more sense in waiting."""
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
