"""What a worker computes of one shard for an exact kernel: a search for offenders, and a share of both bounds. Pure."""

from typing import NamedTuple

import numpy as np

from distdual.data.shard import Shard
from distdual.feature_maps.kernel_function import dense_matrix
from distdual.kernels.rounding import UNIT, Enclosed, enclosed_product, gamma, row_norm_bound
from distdual.kernels.rows import Bools, Features, Floats, Int32s, Ints
from distdual.problems.expanded import Expanded
from distdual.scan.shard_reader import Openable, streamed


class Examples(NamedTuple):
    """Examples with their features."""

    example: Ints  # numbered through the whole data set
    rows: Features
    target: Floats  # (n, c) t_i
    label: Int32s
    cost: Floats
    h: Floats  # (n, c) the gradient at the β that they were looked at with


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
        form = problem.form
        scores = problem.rough_sums.of(loaded.shard.x.take(chosen), w) + problem.bias2 * w.sum(axis=0)
        h = form.targets(loaded.shard)[chosen] - scores
        violated = form.violation(h, form.labels(loaded.shard)[chosen]) > 0
        found = examples_at(problem, loaded.shard, chosen[violated], scores[violated])
        return SearchedPiece(found, len(chosen), loaded.bytes_read, loaded.gets)


def fetch_examples(source: Openable, problem: Expanded, w: Floats, shard: int, local: Ints) -> Examples:  # noqa: ARG001
    """Examples of a shard by their numbers in it, as of β = 0."""
    with streamed(source, shard) as loaded:
        return examples_at(problem, loaded.shard, local, np.zeros((len(local), problem.form.columns)))


class HeldSupport(NamedTuple):
    """Support examples of a piece, and their places among the support rows."""

    local: Ints
    place: Ints


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
    inner: list[Enclosed]  # Σ β_i ⟨w, φ(x_i)⟩ over support examples, of w and of D's β: they add up to ||w||²
    linear: Enclosed  # Σ ⟨t_i, β_i⟩ − ε Σ |β_i|
    infeasible: Ints
    foreign: Ints  # examples whose features are not those of their support row
    scores: Floats  # (n, c) of the known examples, for D's β
    offenders: Examples  # violated by D's β at s = 1, and not known
    bytes_read: int
    gets: int


def check_expansion(source: Openable, problem: Expanded, w: Floats, shard: int, told: Told) -> Checked:
    """Both bounds' shares. Losses are those of the first c columns of `w`, D(β) is that of the last c.

    Offenders, too, are those of the last.
    """
    held, known, form = told.held, told.known, problem.form
    with streamed(source, shard, check=False) as loaded:
        found = loaded.shard.piece(told.begin, told.end)
        scores, label, cost = problem.scores(w, found), form.labels(found), problem.costs(found)
        norm = row_norm_bound(found.x)
        errors = np.array([problem.error(w[:, k], norm) for k in range(w.shape[1])])
        target, c = form.targets(found), form.columns
        mine, last = scores[:, :c], scores[:, -c:]
        high = [losses(problem, target, mine, label, cost, s, float(errors[:c].max())) for s in told.multiples]
        new = np.empty(0, dtype=np.int64)
        if told.search:
            new = np.setdiff1d(np.flatnonzero(form.violation(target - last, label) > 0), known, assume_unique=True)
        beta = w[held.place]
        proof = beta[:, -c:]
        foreign = unlike_support(found.x.take(held.local), problem.support.take(held.place), problem)
        return Checked(
            shard,
            loaded.intact,
            np.array(high),
            float(cost @ np.maximum(0.0, form.violation(target - mine, label))),
            [inner_product(beta[:, k], scores[held.local][:, k], errors[k]) for k in (slice(None, c), slice(-c, None))],
            linear_part(problem, proof, target[held.local]),
            found.first + held.local[form.infeasible(proof, label[held.local], told.C * cost[held.local])],
            found.first + held.local[foreign],
            last[known],
            examples_at(problem, found, new, last[new]),
            loaded.bytes_read,
            loaded.gets,
        )


def losses(
    problem: Expanded, target: Floats, scores: Floats, label: Int32s, cost: Floats, s: float, error: float
) -> float:
    """Σ cost_i ξ_i(s w), an upper bound with all rounding."""
    form = problem.form
    size = np.abs(target).max(axis=1) + 2.0 * np.abs(scores).max(axis=1) + form.epsilon
    off = form.steepness * (4.0 * UNIT * size + abs(s) * error)
    slack = np.maximum(0.0, form.violation(target - s * scores, label) + off)
    return float(cost @ slack) * (1.0 + gamma(len(cost) + 4.0))


def inner_product(beta: Floats, scores: Floats, errors: Floats) -> Enclosed:
    """Σ β_ik s_ik, where scores are off by `errors` at most."""
    found = enclosed_product(beta.ravel(), scores.ravel())
    return found.wider(float(np.abs(beta).sum(axis=0) @ errors) * (1.0 + gamma(beta.size + 4.0)))


def linear_part(problem: Expanded, beta: Floats, target: Floats) -> Enclosed:
    """Σ ⟨t_i, β_i⟩ − ε Σ |β_i|."""
    found = enclosed_product(beta.ravel(), target.ravel())
    if problem.form.epsilon:
        found = found.plus(enclosed_product(np.abs(beta).ravel(), np.full(beta.size, problem.form.epsilon)), -1.0)
    return found


def unlike_support(rows: Features, support: Features, problem: Expanded) -> Bools:
    """Which rows are not the support rows that they should be."""
    width = problem.problem.n_features
    unlike: Bools = (dense_matrix(rows, width) != dense_matrix(support, width)).any(axis=1)
    return unlike


def examples_at(problem: Expanded, shard: Shard, chosen: Ints, scores: Floats) -> Examples:
    target = problem.form.targets(shard)[chosen]
    return Examples(
        shard.first + chosen,
        shard.x.take(chosen),
        target,
        problem.form.labels(shard)[chosen],
        problem.costs(shard)[chosen],
        target - scores,
    )
