"""A probe of an oracle: another class of one example a scan, which w must not violate more than what argmax returned.

It notices an argmax that misses most outputs, which leave no constraint to refute it with. `check-problem` tries more.
"""

from typing import TYPE_CHECKING

import numpy as np

from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.rows import Floats
from distdual.problems.user.cases import naming_example
from distdual.problems.user.rows import kept_vector, row_differences, shorts

if TYPE_CHECKING:
    from distdual.problems.user.problem import UserProblem

SAME_VALUE = 1e-4  # relative to loss and ||w|| ||row||: feature maps may be computed in float32


def probe(problem: "UserProblem", w: Floats, shard: Shard, i: int, key: tuple[int, ...], slack: float) -> None:
    """Raise if a class of example i is violated more than `slack`, which argmax found for the output `key`."""
    if len(problem.classes) < 2 or len(key) != 1 or shard.structured:
        return
    inputs = problem.inputs(shard)
    with naming_example(problem.kind, problem.oracle_seconds, shard, i):
        x = inputs.x(i)
        case, rival = problem.case(inputs, i, x), (key[0] + 1) % len(problem.classes)
        if type(case.y_true) is not int or not problem.is_output(x, rival):
            return
        loss = np.array([problem.loss_of(case.y_true, rival)])
        right, wrong = (kept_vector(problem.feature_map(x, y)) for y in (case.right, rival))
        found = row_differences([right], [wrong], problem.n_weights, loss if problem.slack_rescaled else None)
        short = float(shorts(found.rows, loss, w)[0])
        if short > slack + SAME_VALUE * float(1.0 + loss[0] + np.linalg.norm(w) * found.norm[0]):
            raise InputError(
                f"argmax is not the best: it gives {key} with slack {slack:.6g}, ({rival},) has {short:.6g}; correct "
                "it, or set exact = False; define is_output if not every class is an output"
            )
