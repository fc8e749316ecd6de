"""Coalescing: several constraints become one, their mixture weighted by α, without lowering D(α).

A convex combination of constraints of a group is one of its constraints, and so is a sum over groups for the group
that they form together. With u_o = Σ α / cost over a group o, and β = max u_o over the groups that become one,

    x = Σ α_k x_k / β,     l = Σ α_k l_k / β,     α = β        leave Σ α x and Σ α l as they are.
"""

from typing import NamedTuple

import numpy as np

from distdual.kernels.row_sums import sum_rows
from distdual.kernels.rows import Features, Floats, Ints, Rows
from distdual.problems.base import Constraints, Keys
from distdual.problems.constraint_hash import Identities, identities
from distdual.scan.slack import Slack
from distdual.scan.slack_groups import CHUNK, add_margins, fold, groups_of, join_smaller, member_ranges, runs_of
from distdual.solver.cache import ConstraintCache


class Mixture(NamedTuple):
    """One constraint per group, and its components."""

    constraints: Constraints
    alpha: Floats
    indptr: Ints  # (n + 1,) into the others
    slots: Ints  # of the cache, or positions among the given constraints
    weight: Floats  # of each slot's row in the sum, that row taken per unit of its group's cost


def condense(cache: ConstraintCache, slack: Slack, first: Ints) -> Mixture:
    """Mix the constraints with α > 0 into one for each group."""
    assert cache.rows is not None
    example, alpha = cache.example.view, cache.alpha.view
    slots = cache.support()
    group, indptr = runs_of(groups_of(example[slots], slack, first))
    used = alpha[slots] / cache.cost.view[slots]
    _, old = np.unique(example[slots], return_inverse=True)
    beta = np.maximum.reduceat(np.bincount(old, used)[old], indptr[:-1]) if len(slots) else np.empty(0)
    share = 1.0 / np.repeat(beta, np.diff(indptr))
    mixed = mix(
        cache.rows.view, cache.margin.view, cache.identity.view, slots, alpha[slots] * share, indptr, cache.n_weights
    )
    return Mixture(mixed._replace(example=group), beta, indptr, slots, used * share)


def coarsen(new: Constraints, slack: Slack, first: Ints, n_weights: int) -> Mixture:
    """Sum constraints of smaller groups, found at one w, into one for each group."""
    order = np.argsort(new.example, kind="stable")
    group, indptr = runs_of(groups_of(new.example[order], slack, first))
    identity = identities(new.example, new.keys)
    mixed = mix(new.rows, new.margin, identity, order, new.cost[order], indptr, n_weights)
    return Mixture(mixed._replace(example=group), np.zeros(len(group)), indptr, order, np.ones(len(order)))


def mix(
    rows: Rows, margin: Floats, identity: Identities, slots: Ints, weight: Floats, indptr: Ints, n_weights: int
) -> Constraints:
    """Σ weight · constraint over each run of `slots`; the caller fills in the example."""
    n = len(indptr) - 1
    margins, parts = np.zeros(n), []
    add_margins(margin[slots], weight, indptr, margins)
    for begin, end in member_ranges(indptr, CHUNK):
        at = slice(indptr[begin], indptr[end])
        part: Features = sum_rows(rows.take(slots[at]), weight[at], indptr[begin : end + 1] - indptr[begin], n_weights)
        parts.append(part)
    folded = np.empty(n, dtype=np.uint64)
    fold(identity[slots] ^ weight.view(np.uint64), indptr, folded)
    keys = Keys(np.arange(0, 2 * n + 1, 2), folded.view(np.int32))
    return Constraints(np.zeros(n, dtype=np.int64), np.ones(n), margins, join_smaller(parts, n_weights), keys)
