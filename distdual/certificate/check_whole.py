"""P(w) and D(α) of a loss over the whole data set, recomputed.

The key of a support constraint is the weights that it was found at. The offender there is found again, so its row is a
constraint of the problem, whatever the key says.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from distdual.certificate.check_shard import FEASIBLE, NOTHING, SAME_SLACK, ShardCheck
from distdual.cluster.base import Executor
from distdual.cluster.whole_oracle import WholeOracle, WholeScores
from distdual.data.dataset import Dataset
from distdual.kernels.rounding import MARGIN, Enclosed, enclosed_product, norm_bound
from distdual.kernels.rows import Floats, Ints, product
from distdual.model.dual import Dual
from distdual.model.io import Model
from distdual.problems.base import Keys, Magnitude
from distdual.problems.multivariate.problem import Multivariate
from distdual.scan.loss_error import LossError, loss_error, slack_error
from distdual.scan.whole_data import Cost
from distdual.solver.proven import Mass

MOST_SCORES = 1 << 24  # in memory at once

NO_EXAMPLE: Ints = np.empty(0, dtype=np.int64)
WHOLE_DATA: Ints = np.zeros(1, dtype=np.int64)
NO_DUAL = Dual(NO_EXAMPLE, Keys.none(0), np.empty(0), np.empty(0))


class FoundAgain(NamedTuple):
    """The offenders at some weights."""

    margin: Floats
    rows: Floats
    reads: list[list[Cost]]  # of each phase, those of all shards


def check_whole(model: Model, dataset: Dataset, executor: Executor) -> tuple[Floats, list[ShardCheck], int]:
    """Σ α x; a check for each shard, of which the first has the loss and the dual; and constraints of no example.

    Reads the data set twice for every few support constraints.
    """
    problem, w = model.problem, model.w
    assert isinstance(problem, Multivariate)
    oracle = WholeOracle(executor, problem, dataset.n_shards)
    first = oracle.scores(w[np.newaxis])
    slack, size = oracle.offender(first).slack, first.magnitude(problem)
    dual = model.dual if isinstance(model.dual, Dual) else NO_DUAL
    known = np.flatnonzero(dual.example == 0)
    alpha, weights = dual.alpha[known], problem.weights_of(dual.keys.take(known))
    parts = [offenders_at(oracle, some) for some in weight_batches(weights, first.n)]
    margin = np.concatenate([np.empty(0), *(part.margin for part in parts)])
    rows = np.concatenate([np.empty((0, len(w))), *(part.rows for part in parts)])
    v = np.zeros(len(w))
    with np.errstate(over="ignore", invalid="ignore"):  # of a forged α, which is not feasible
        for a, row in zip(alpha, rows, strict=True):
            v += a * row
    most = slack * (1.0 + SAME_SLACK) + slack_error(size, norm_bound(w))
    missed = any(level - product(row, w) > most for level, row in zip(margin, rows, strict=True))
    used = float(alpha.sum())
    wrong = bool((alpha < 0).any()) or not used <= model.C * (1.0 + FEASIBLE)
    whole = ShardCheck(
        shard=0,
        exact=True,
        intact=True,
        loss=slack,
        error=loss_error(size, np.ones(1), slack),
        linear=enclosed_product(alpha, margin, 2.0),
        v=NOTHING,
        mass=Mass(MARGIN * used, float(len(alpha))),
        magnitude=size,
        infeasible=WHOLE_DATA if wrong else NO_EXAMPLE,
        excess=max(0.0, used / model.C - 1.0),
        missed=WHOLE_DATA if missed else NO_EXAMPLE,
        bytes_read=0,
        gets=0,
    )
    reads = [[each.cost for each in first.shards], *(phase for part in parts for phase in part.reads)]
    return v, list(by_shard(whole, first, reads)), len(dual.alpha) - len(known)


def weight_batches(weights: Floats, n: int) -> Iterator[Floats]:
    """As many weights at once as leave room for the scores of n examples."""
    size = max(1, MOST_SCORES // n)
    for begin in range(0, len(weights), size):
        yield weights[begin : begin + size]


def offenders_at(oracle: WholeOracle, weights: Floats) -> FoundAgain:
    found = oracle.scores(weights)
    offenders = [oracle.offender(found, k) for k in range(len(weights))]
    rows, costs = oracle.rows(offenders, found)
    margin = np.array([offender.margin for offender in offenders])
    return FoundAgain(margin, rows, [[each.cost for each in found.shards], costs])


def by_shard(whole: ShardCheck, first: WholeScores, reads: list[list[Cost]]) -> Iterator[ShardCheck]:
    """What belongs to all examples goes to the first shard."""
    nothing = whole._replace(
        loss=0.0, error=LossError(), linear=Enclosed(0.0), mass=Mass(), magnitude=Magnitude(), excess=0.0
    )
    for number, shard in enumerate(first.shards):
        base = nothing._replace(infeasible=NO_EXAMPLE, missed=NO_EXAMPLE) if number else whole
        yield base._replace(
            shard=number,
            intact=shard.intact,
            bytes_read=sum(phase[number].bytes_read for phase in reads),
            gets=sum(phase[number].gets for phase in reads),
        )
