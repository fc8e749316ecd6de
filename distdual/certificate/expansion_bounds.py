"""Both bounds of an exact kernel from the shards' shares of one pass; `verify` and training add them up alike."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from distdual.cluster.base import Executor
from distdual.data.training_data import TrainingData
from distdual.kernels.rounding import gamma, sum_of
from distdual.kernels.rows import Floats, Ints
from distdual.scan.expansion_scan import Checked, HeldSupport, Told, check_expansion

PIECES, LEAST = 8, 2000  # most pieces of a shard, which is read for each; and fewest examples of a piece


class ExpansionBounds(NamedTuple):
    lower: float
    upper: float
    multiple: float  # s, of the w with this upper bound
    rounding: float


def bounds_of_expansion(checks: Sequence[Checked], C: float, multiples: Floats) -> ExpansionBounds:
    """D(β), and the lowest P(s w), from the shares of all shards; both hold in exact arithmetic.

    ||w||² = Σ_i β_i ⟨w, φ(x_i)⟩        D(β) = linear part − 1/2 ||w_β||²        P(s w) = s²/2 ||w||² + C Σ loss(s w)
    """
    squares = [sum_of([check.inner[k] for check in checks]) for k in (0, 1)]
    dual = sum_of([check.linear for check in checks]).plus(squares[1].times(0.5), -1.0)
    losses = np.array([math.fsum(each) for each in zip(*(check.losses for check in checks), strict=True)])
    every = (1.0 + gamma(8.0)) * (0.5 * multiples**2 * max(0.0, squares[0].high) + C * losses)
    best = int(np.argmin(every))
    plain = 0.5 * multiples[0] ** 2 * squares[0].value + C * math.fsum(check.loss for check in checks)
    rounding = dual.value - dual.low + max(0.0, float(every[0]) - plain)
    return ExpansionBounds(max(0.0, dual.low), float(every[best]), float(multiples[best]), rounding)


def checked_shards(
    executor: Executor,
    dataset: TrainingData,
    example: Ints,
    place: Ints,
    multiples: Floats,
    C: float,
    *,
    search: bool,
) -> list[Checked]:
    """A pass over all shards. `example` ascends; `place` is that of each among the support rows, or −1 for none."""
    pieces, told = pieces_of_shards(dataset.first), []
    for shard, begin, end in pieces:
        start = int(dataset.first[shard]) + begin
        mine = slice(*np.searchsorted(example, [start, start + end - begin]))
        known, used = example[mine] - start, np.flatnonzero(place[mine] >= 0)
        held = HeldSupport(known[used], place[mine][used])
        told.append(Told(begin, end, held, known, multiples, C, search))
    return list(executor.map_shards(check_expansion, [shard for shard, _, _ in pieces], told))


def pieces_of_shards(first: Ints, most: int | None = None) -> list[tuple[int, int, int]]:
    """(shard, begin, end) of pieces that keep several workers busy; the same on any cluster."""
    found = []
    for shard, n in enumerate(np.diff(first).tolist()):
        size = max(LEAST, -(-n // PIECES)) if most is None else most
        found += [(shard, begin, min(begin + size, n)) for begin in range(0, n, size)]
    return found
