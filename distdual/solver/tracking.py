"""Tracking a stream: a new constraint, then visits to random known ones (Usunier, Bordes, Bottou; Algorithms 1 and 2).

    process     one step on the new constraint t                                        Algorithm 2, line 4
    reprocess   K times: one step on a constraint i drawn from {1 … t}                  both, line 7
    average     w̄_t, the mean of w after each of the K steps of the last constraint     both, line 8

Each step maximises D over one α (`group_step.improve_alone`), for constraints that share no slack.
"""

from typing import Any

import numpy as np

from distdual.kernels.jit import kernel
from distdual.kernels.rows import Floats, Ints, Rows
from distdual.solver.group_step import improve_alone
from distdual.solver.metric import Space


@kernel
def track(
    space: Space,
    rows: Rows,
    margin: Floats,
    alpha: Floats,
    curve: Floats,
    capacity: Floats,
    new: Ints,
    revisits: int,
    process: bool,
    random: Any,
    w: Floats,
    v: Floats,
    average: Floats,
) -> float:
    """Take in the slots `new`, ascending, each after all before it; slots below the first are known already.

    Changes alpha, w and v, advances `random`, fills `average` with w̄ after the last slot, and returns the gain in D.
    """
    gain = 0.0
    for t in range(len(new)):
        if process:
            gain += improve_alone(space, rows, margin, alpha, curve, capacity[new[t]], new[t], w, v)[0]
        for turn in range(revisits):
            random[0] ^= random[0] >> np.uint64(12)
            random[0] ^= random[0] << np.uint64(25)
            random[0] ^= random[0] >> np.uint64(27)
            i = np.int64((random[0] * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(33)) % (new[t] + 1)
            gain += improve_alone(space, rows, margin, alpha, curve, capacity[i], i, w, v)[0]
            if t + 1 == len(new):
                for j in range(len(w)):
                    average[j] += (w[j] - average[j]) / (turn + 1)
    return gain
