"""How many examples should share a slack? Decided by sizes and counts alone, so that runs can be repeated bit by bit.

Single examples need the fewest passes, and the ascent on their short rows is as fast as that on the fewer, longer and
denser rows of groups; what they cost is memory, which grows with the data. So examples stay single while all of their
constraints would fit. Where an oracle call is worth many ascent steps they do so at first in any case: few passes are
worth more then, and groups can still be joined once memory does run short.
"""

from typing import NamedTuple

import numpy as np

from distdual.coordinator.slack_partition import FIRST_BLOCK, ROW
from distdual.kernels.rows import Ints
from distdual.scan.slack_groups import ALL, EXAMPLE, SHARD, grain_of, name_of

ROOM = 4 << 30  # bytes that constraints may take where solver.cache_bytes sets no limit
ROWS = 4  # constraints a group that should find room
EXPENSIVE = 4.0  # ascent steps that an oracle call costs, from which on passes count most


class Choice(NamedTuple):
    grain: int
    why: str


def choose(slack: str, sizes: Ints, nbytes: int, n_weights: int, oracle_work: float, budget: float) -> Choice:
    """The partition to begin with; `sizes` are the examples of each shard, `nbytes` is what the data set takes."""
    if slack != "auto":
        return Choice(grain_of(slack), f"slack {slack}, as told")
    n = int(sizes.sum())
    room = budget if np.isfinite(budget) else ROOM
    example = nbytes / n
    most = n * (example + ROW)
    if most <= room:
        return Choice(
            EXAMPLE, f"slack example: constraints of all examples take at most {most:.3g} of {room:.3g} bytes"
        )
    if oracle_work >= EXPENSIVE:
        return Choice(EXAMPLE, f"slack example, to be joined if need be: an oracle call costs {oracle_work:g} steps")
    grain = FIRST_BLOCK
    while grain < ALL and ROWS * group_bytes(grain, sizes, example, n_weights) > room:
        grain = ALL if grain == SHARD else SHARD if 2 * grain >= int(sizes.max()) else 2 * grain
    need = group_bytes(grain, sizes, example, n_weights)
    return Choice(
        grain,
        f"slack {name_of(grain)}: constraints of all examples could take {most:.3g} of {room:.3g} bytes, "
        f"one constraint a group takes at most {need:.3g}",
    )


def group_bytes(grain: int, sizes: Ints, example: float, n_weights: int) -> float:
    """What one constraint for each group takes: no more than a dense row, nor than the rows of its members."""
    n_groups = 1 if grain == ALL else int((-(-sizes // grain)).sum())
    return n_groups * (min(8.0 * n_weights, 3 * grain * example) + ROW)
