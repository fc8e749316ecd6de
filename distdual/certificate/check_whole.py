"""P(w) and D(α) of a loss over the whole data set, recomputed.

The key of a support constraint is the weights that it was found at. The offender there is found again, so its row is a
constraint of the problem, whatever the key says.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from distdual.certificate.check_shard import FEASIBLE, NOTHING, SAME_SLACK, ShardCheck
from distdual.cluster.base import Executor
from distdual.cluster.whole_oracle import oracle_of
from distdual.data.training_data import TrainingData
from distdual.kernels.rounding import MARGIN, Enclosed, enclosed_product, norm_bound
from distdual.kernels.rows import Floats, Ints, product
from distdual.model.dual import Dual
from distdual.model.io import Model
from distdual.problems.base import Keys, Magnitude
from distdual.problems.multivariate.problem import Multivariate
from distdual.scan.loss_error import LossError, loss_error, slack_error
from distdual.scan.whole_data import Cost, Participants
from distdual.solver.proven import Mass

MOST_SCORES = 1 << 24  # in memory at once

NO_EXAMPLE: Ints = np.empty(0, dtype=np.int64)
WHOLE_DATA: Ints = np.zeros(1, dtype=np.int64)
NO_DUAL = Dual(NO_EXAMPLE, Keys.none(0), np.empty(0), np.empty(0))


def check_whole(model: Model, dataset: TrainingData, executor: Executor) -> tuple[Floats, list[ShardCheck], int]:
    """Σ α x; a check for each shard, of which the first has the loss and the dual; and constraints of no example.

    Reads the data set two or three times for every few support constraints.
    """
    problem, w = model.problem, model.w
    assert isinstance(problem, Multivariate)
    publish = partial(executor.publish, -1)
    oracle = oracle_of(problem)(executor, problem, dataset.n_shards, publish, Participants(check=False), keep=False)
    first = oracle.find(w[np.newaxis])
    slack, size = float(first.slack[0]), first.magnitude
    dual = model.dual if isinstance(model.dual, Dual) else NO_DUAL
    known = np.flatnonzero(dual.example == 0)
    alpha, weights = dual.alpha[known], problem.weights_of(dual.keys.take(known))
    parts = [(found, found.rows()) for found in map(oracle.find, weight_batches(weights, first.n))]
    margin = np.concatenate([np.empty(0), *(found.margin for found, _ in parts)])
    rows = np.concatenate([np.empty((0, len(w))), *(summed.rows for _, summed in parts)])
    v = np.zeros(len(w))
    with np.errstate(over="ignore", invalid="ignore"):  # of a forged α, which is not feasible
        used = float(alpha.sum())
        for a, row in zip(alpha, rows, strict=True):
            v += a * row
    most = slack * (1.0 + SAME_SLACK) + slack_error(size, norm_bound(w))
    missed = any(level - product(row, w) > most for level, row in zip(margin, rows, strict=True))
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
    reads = [*first.costs, *(phase for found, summed in parts for phase in [*found.costs, *summed.costs])]
    return v, list(by_shard(whole, first.intact, reads)), len(dual.alpha) - len(known)


def weight_batches(weights: Floats, n: int) -> Iterator[Floats]:
    """As many weights at once as leave room for the scores of n examples."""
    size = max(1, MOST_SCORES // n)
    for begin in range(0, len(weights), size):
        yield weights[begin : begin + size]


def by_shard(whole: ShardCheck, intact: list[bool], reads: list[list[Cost]]) -> Iterator[ShardCheck]:
    """What belongs to all examples goes to the first shard."""
    nothing = whole._replace(
        loss=0.0, error=LossError(), linear=Enclosed(0.0), mass=Mass(), magnitude=Magnitude(), excess=0.0
    )
    for number, own in enumerate(intact):
        base = nothing._replace(infeasible=NO_EXAMPLE, missed=NO_EXAMPLE) if number else whole
        yield base._replace(
            shard=number,
            intact=own,
            bytes_read=sum(phase[number].bytes_read for phase in reads),
            gets=sum(phase[number].gets for phase in reads),
        )
