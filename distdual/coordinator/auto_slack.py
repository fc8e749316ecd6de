"""The initial slack partition for `slack = "auto"`, from sizes and counts alone, so that runs are reproducible.

Single examples need the fewest passes, and ascent on their short rows is as fast as on the fewer, denser rows of
groups, but their memory grows with the data. So examples stay single while all their constraints fit. With an
expensive oracle they start single in any case: passes cost more then, and groups can be merged once memory runs short.
"""

from typing import NamedTuple

import numpy as np

from distdual.coordinator.slack_partition import CONSTRAINT_BYTES, FIRST_BLOCK
from distdual.kernels.rows import Ints
from distdual.scan.slack import EXAMPLE, Slack

DEFAULT_BUDGET = 4 << 30  # bytes for constraints where solver.cache_bytes sets no limit
ROWS_PER_GROUP = 4  # constraints per group that should fit
EXPENSIVE_ORACLE = 4.0  # cost of an oracle call, in ascent steps, above which passes dominate


class Choice(NamedTuple):
    slack: Slack
    why: str


def choose(configured: str, sizes: Ints, nbytes: int, n_weights: int, oracle_work: float, budget: float) -> Choice:
    """The initial partition; `sizes` counts the examples of each shard, `nbytes` is the size of the data set."""
    if configured != "auto":
        return Choice(Slack.parse(configured), f"slack {configured}, as configured")
    n = int(sizes.sum())
    room = budget if np.isfinite(budget) else DEFAULT_BUDGET
    example = nbytes / n
    most = n * (example + CONSTRAINT_BYTES)
    if most <= room:
        return Choice(
            EXAMPLE, f"slack example: constraints of all examples take at most {most:.3g} of {room:.3g} bytes"
        )
    if oracle_work >= EXPENSIVE_ORACLE:
        return Choice(
            EXAMPLE, f"slack example, merged if memory runs short: an oracle call costs {oracle_work:g} steps"
        )
    slack = FIRST_BLOCK
    while not slack.is_all and ROWS_PER_GROUP * group_bytes(slack, sizes, example, n_weights) > room:
        slack = slack.coarser(int(sizes.max()))
    need = group_bytes(slack, sizes, example, n_weights)
    return Choice(
        slack,
        f"slack {slack}: constraints of all examples could take {most:.3g} of {room:.3g} bytes, "
        f"one constraint a group takes at most {need:.3g}",
    )


def group_bytes(slack: Slack, sizes: Ints, example: float, n_weights: int) -> float:
    """Bytes of one constraint per group: at most a dense row, at most the rows of its members."""
    members = np.inf if slack.per_group is None else 3 * slack.per_group * example
    return slack.n_groups(sizes) * (min(8.0 * n_weights, members) + CONSTRAINT_BYTES)
