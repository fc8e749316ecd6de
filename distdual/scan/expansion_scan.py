"""What a worker computes of one shard for an exact kernel: a search for offenders, and a share of both bounds. Pure."""

from typing import NamedTuple

import numpy as np

from distdual.data.shard import Shard
from distdual.feature_maps.kernel_function import dense_matrix
from distdual.kernels.rounding import UNIT, Enclosed, enclosed_product, gamma, row_norm_bound
from distdual.kernels.rows import Bools, Features, Floats, Ints
from distdual.problems.expanded import Expanded, margins, signs
from distdual.scan.shard_reader import Openable, streamed


class Examples(NamedTuple):
    """Examples with their features."""

    example: Ints  # numbered through the whole data set
    rows: Features
    sign: Floats  # y_i = ±1
    margin: Floats
    cost: Floats


class SearchPiece(NamedTuple):
    """Examples begin … end − 1 of a shard, and the numbers in the shard of those that are not to be looked at."""

    begin: int
    end: int
    known: Ints


class SearchedPiece(NamedTuple):
    offenders: Examples
    n_searched: int
    bytes_read: int
    gets: int


def search_piece(source: Openable, problem: Expanded, w: Floats, shard: int, piece: SearchPiece) -> SearchedPiece:
    """The examples of a piece that w violates, in single precision: what they are is all that matters."""
    with streamed(source, shard) as loaded:
        chosen = np.setdiff1d(np.arange(piece.begin, piece.end), piece.known, assume_unique=True)
        x = loaded.shard.x.take(chosen)
        scores = problem.rough_sums.of(x, w[:, :1])[:, 0] + problem.bias2 * float(w[:, 0].sum())
        slack = margins(loaded.shard)[chosen] - signs(loaded.shard)[chosen] * scores
        return SearchedPiece(
            examples_at(problem, loaded.shard, chosen[slack > 0]), len(chosen), loaded.bytes_read, loaded.gets
        )


class HeldSupport(NamedTuple):
    """Support examples of a piece, and their places among the support rows."""

    local: Ints
    place: Ints
    alpha: Floats


class Told(NamedTuple):
    """The arguments of a pass for examples begin … end − 1 of a shard; other numbers count from `begin`."""

    begin: int
    end: int
    held: HeldSupport
    known: Ints  # examples whose scores are wanted, ascending
    multiples: Floats  # s
    C: float
    search: bool  # whether offenders are wanted

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (*self.held, self.known))


class Checked(NamedTuple):
    """One piece's share of P(s w) and of D(α)."""

    shard: int
    intact: bool
    losses: Floats  # Σ cost_i ξ_i(s w) for each multiple s, an upper bound with all rounding
    loss: float  # the same at s = 1 without rounding
    inner: Floats  # (c,) Σ β_i ⟨w, φ(x_i)⟩ over the support examples, for each column of β: they add up to ||w||²
    inner_error: Floats
    linear: Enclosed  # Σ α_i l_i
    infeasible: Ints
    foreign: Ints  # examples whose features are not those of their support row
    scores: Floats  # of the known examples, for the last column of β
    offenders: Examples  # violated by the last column of β at s = 1, and not known
    bytes_read: int
    gets: int


def check_expansion(source: Openable, problem: Expanded, w: Floats, shard: int, told: Told) -> Checked:
    """Both bounds' shares. `w` has columns β; losses are those of the first, and D(α) is that of the last.

    Offenders, too, are those of the last.
    """
    held, known = told.held, told.known
    with streamed(source, shard, check=False) as loaded:
        found = loaded.shard.piece(told.begin, told.end)
        scores = problem.scores(w, found)
        norm = row_norm_bound(found.x)
        errors = np.array([problem.error(w[:, c], norm) for c in range(w.shape[1])])
        y, l, cost = signs(found), margins(found), problem.costs(found)  # noqa: E741 - the paper's letter
        beta = w[held.place]
        own = 4.0 * UNIT * (np.abs(l) + 2.0 * np.abs(scores[:, 0]))  # of the slack's own arithmetic
        high = [float(cost @ np.maximum(0.0, l + own - s * (y * scores[:, 0] - errors[0]))) for s in told.multiples]
        slack = l - y * scores[:, -1]
        new = (
            np.setdiff1d(np.flatnonzero(slack > 0), known, assume_unique=True) if told.search else np.empty(0, np.int64)
        )
        foreign = unlike_support(found.x.take(held.local), problem.support.take(held.place), problem)
        foreign |= np.sign(beta[:, 0]) != y[held.local]
        return Checked(
            shard,
            loaded.intact,
            np.array(high) * (1.0 + gamma(len(y) + 4.0)),
            float(cost @ np.maximum(0.0, l - y * scores[:, 0])),
            np.einsum("ic,ic->c", beta, scores[held.local]),
            np.abs(beta).sum(axis=0) * errors + gamma(len(beta) + 4.0) * np.abs(beta * scores[held.local]).sum(axis=0),
            enclosed_product(held.alpha, l[held.local], 2.0),
            found.first + held.local[~((held.alpha >= 0) & (held.alpha <= told.C * cost[held.local]))],
            found.first + held.local[foreign],
            scores[known, -1],
            examples_at(problem, found, new),
            loaded.bytes_read,
            loaded.gets,
        )


def unlike_support(rows: Features, support: Features, problem: Expanded) -> Bools:
    """Which rows are not the support rows that they should be."""
    width = problem.problem.n_features
    unlike: Bools = (dense_matrix(rows, width) != dense_matrix(support, width)).any(axis=1)
    return unlike


def examples_at(problem: Expanded, shard: Shard, chosen: Ints) -> Examples:
    return Examples(
        shard.first + chosen,
        shard.x.take(chosen),
        signs(shard)[chosen],
        margins(shard)[chosen],
        problem.costs(shard)[chosen],
    )
