"""The initial slack partition for `slack = "auto"`, from sizes and counts alone, so that runs are reproducible.

Single examples need the fewest passes, and ascent on their short rows is as fast as on the fewer, denser rows of
groups, but their memory grows with the data. So examples stay single while all their constraints fit. With an
expensive oracle they start single in any case: passes cost more then, and groups can be merged once memory runs short.
"""

from typing import NamedTuple

import numpy as np

from distdual.config import SolverConfig
from distdual.coordinator.slack_partition import CONSTRAINT_BYTES, FIRST_BLOCK
from distdual.data.training_data import TrainingData
from distdual.errors import InputError
from distdual.kernels.rows import Ints
from distdual.problems.base import Problem
from distdual.report.number_format import size
from distdual.scan.scan import loaded_bytes
from distdual.scan.slack import EXAMPLE, Slack

DEFAULT_BUDGET = 4 << 30  # bytes for constraints where solver.cache_bytes sets no limit
ROWS_THAT_FIT = 4  # constraints per group that should fit
EXPENSIVE_ORACLE = 4.0  # cost of an oracle call, in ascent steps, above which passes dominate


class Choice(NamedTuple):
    slack: Slack
    why: str


def choice_of(config: SolverConfig, dataset: TrainingData, problem: Problem) -> Choice:
    """The initial slack partition of a run."""
    sizes = np.diff(dataset.first)
    return choose(
        config.slack,
        sizes,
        loaded_bytes(dataset, problem),
        problem.n_weights,
        problem.oracle_work,
        float(config.cache_bytes),
    )


def check_offender_cache(config: SolverConfig, slack: Slack, *, members_files: bool) -> None:
    """The offender cache lives in members files, which only groups of examples have."""
    if config.offender_cache and (slack.is_example or not members_files):
        found = f"slack {slack}" if members_files else "no members files"
        raise InputError(
            'solver.offender_cache needs groups of examples and output.dual = "full", this run has '
            f'{found}; set solver.slack = "all", for example'
        )


def choose(configured: str, sizes: Ints, nbytes: int, n_weights: int, oracle_work: float, budget: float) -> Choice:
    """The initial partition; `sizes` counts the examples of each shard, `nbytes` is the size of the data set."""
    if configured != "auto":
        return Choice(Slack.parse(configured), f"slack {configured}, as configured")
    n = int(sizes.sum())
    room = budget if np.isfinite(budget) else DEFAULT_BUDGET
    example = nbytes / n
    most = n * (example + CONSTRAINT_BYTES)
    if most <= room:
        return Choice(EXAMPLE, f"slack example: constraints of all examples take at most {size(most)} of {size(room)}")
    if oracle_work >= EXPENSIVE_ORACLE:
        return Choice(
            EXAMPLE, f"slack example, merged if memory runs short: an oracle call costs {oracle_work:g} steps"
        )
    slack = FIRST_BLOCK
    while not slack.is_all and ROWS_THAT_FIT * group_bytes(slack, sizes, example, n_weights) > room:
        slack = slack.coarser(int(sizes.max()))
    need = group_bytes(slack, sizes, example, n_weights)
    return Choice(
        slack,
        f"slack {slack}: constraints of all examples could take {size(most)} of {size(room)}, "
        f"one constraint a group takes at most {size(need)}",
    )


def group_bytes(slack: Slack, sizes: Ints, example: float, n_weights: int) -> float:
    """Bytes of one constraint per group: at most a dense row, at most the rows of its members."""
    members = np.inf if slack.per_group is None else 3 * slack.per_group * example
    return slack.n_groups(sizes) * (min(8.0 * n_weights, members) + CONSTRAINT_BYTES)


def pool_of(config: SolverConfig, problem: Problem, slack: Slack) -> int:
    """The neighbours of which one is selected, where that is possible."""
    if config.pool > 1 and not problem.has_boundary:
        raise InputError(f"solver.select = {config.select!r}: a {problem.kind} problem has no decision boundary")
    if config.pool > 1 and not slack.is_example:
        raise InputError(f'solver.select = {config.select!r} needs solver.slack = "example", this run has {slack}')
    return config.pool
