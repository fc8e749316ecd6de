"""A problem whose oracle waits instead of computing, so that many workers can share few processor cores honestly."""

import time
from dataclasses import dataclass
from typing import Any, ClassVar

from distdual.data.shard import Shard
from distdual.kernels.rows import Floats
from distdual.problems.base import Offenders
from distdual.problems.multiclass import Multiclass

UPDATES_PER_SECOND = 1e6  # as the schedule counts the work of an oracle


@dataclass(frozen=True, kw_only=True)
class Waiting(Multiclass):
    """Multiclass, with an oracle that takes this long for each example."""

    kind: ClassVar[str] = "benchmarks.waiting:Waiting"

    seconds: float = 0.02
    """Wait of the oracle, an example."""

    @property
    def oracle_work(self) -> float:  # type: ignore[override]
        return self.seconds * UPDATES_PER_SECOND

    def offenders(self, w: Floats, shard: Shard) -> Offenders:
        time.sleep(self.seconds * shard.n_examples)
        return super().offenders(w, shard)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "seconds": self.seconds}
