"""A pass that has begun: what was scanned, what was found, and what comes next. Pure values, which snapshots save."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from distdual.certificate.bounds import ShardLoss, shard_losses
from distdual.coordinator.schedule import Pass, Piece
from distdual.kernels.rows import Floats
from distdual.scan.scan import ShardReport
from distdual.scan.slack import Slack
from distdual.solver.ascent_plan import Ascent


class NextScan(NamedTuple):
    """The next scan of a pass."""

    pieces: tuple[Piece, ...]
    counts: bool  # the first visit to these examples: its losses count
    certify: bool  # at the weights that the pass certifies
    closes: bool  # the last scan of all examples at these weights
    over: bool  # the last scan of the pass


@dataclass(slots=True, eq=False)
class PassUnderway:
    """A pass of which some rounds are done."""

    plan: Pass
    slack: Slack  # slack groups that the rounds are cut for, even if groups grow before the pass ends
    losses: list[ShardLoss] = field(default_factory=list)
    done: int = 0  # scans of rounds, each counted as often as the plan visits it
    w: Floats | None = None  # the weights that a pass certifies
    version: int = -1  # of them
    new: float = 0.0  # the part of P(w) that new offenders account for

    def next_turn(self) -> NextScan:
        round_number, visit = divmod(self.done, self.plan.visits)
        certify = self.plan.certify and visit == 0
        last_round = round_number + 1 == len(self.plan.rounds)
        over = self.done + 1 == len(self.plan.rounds) * self.plan.visits
        return NextScan(self.plan.rounds[round_number], visit == 0, certify, certify and last_round, over)

    def ascent(self, turn: NextScan) -> Ascent:
        """The ascent after a scan."""
        return self.plan.last if turn.over else self.plan.between

    def reread(self) -> set[int]:
        """Shards of the next scan that other scans of this pass need, too."""
        turn = self.done // self.plan.visits
        now = {piece.shard for piece in self.plan.rounds[turn]}
        if self.plan.visits > 1:
            return now
        others = (*self.plan.rounds[:turn], *self.plan.rounds[turn + 1 :])
        return now & {piece.shard for pieces in others for piece in pieces}

    def add(self, reports: Sequence[ShardReport], C: float) -> None:
        """Count what a scan found; rounds of a pass that certifies are published one by one, all at the same w."""
        found = shard_losses(reports)
        self.losses += [loss._replace(version=self.version) for loss in found] if self.plan.certify else found
        self.new += C * sum(report.new_loss for report in reports)

    def without_weights(self) -> dict[str, Any]:
        """All but the weights as values that JSON can hold."""
        values = asdict(replace(self, w=None))
        del values["w"]
        return values
