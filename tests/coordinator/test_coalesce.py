"""Coalescing leaves Σ αx and Σ αl as they are, keeps α feasible, and can be taken apart again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.coordinator.coalesce import coarsen, condense
from distdual.coordinator.provenance import Ledger
from distdual.coordinator.slack_partition import Found, SlackPartition
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.scan.slack import ALL, EXAMPLE, SHARD, Slack
from distdual.scan.slack_groups import groups_of
from distdual.solver.cache import ConstraintCache
from distdual.solver.regularizer import Prior
from tests import naive
from tests.build import compiling, constraints_of

FIRST = np.array([0, 6, 13, 20])


def filled(rng: np.random.Generator, sparse: bool) -> ConstraintCache:
    """Constraints of 20 examples in three shards, some with α."""
    n = int(rng.integers(1, 40))
    example = np.sort(rng.integers(20, size=n))
    cost = rng.uniform(0.5, 2.0, 20)
    cache = ConstraintCache(0.7, Prior(4))
    cache.insert(
        constraints_of(rng.normal(size=(n, 4)), rng.normal(size=n), example, cost=cost[example], sparse=sparse)
    )
    share = rng.random(n) * (rng.random(n) < 0.7)
    total = np.bincount(example, share, minlength=20)[example]
    cache.alpha.view[:] = 0.7 * cost[example] * share / np.maximum(total, 1.0)
    return cache


@pytest.mark.parametrize("slack", [EXAMPLE, Slack(2), Slack(5), SHARD, ALL])
@given(seed=st.integers(0, 10_000), sparse=st.booleans())
@compiling
def test_coalescing_changes_neither_sum_and_keeps_alpha_feasible(slack, seed, sparse):
    rng = np.random.default_rng(seed)
    cache = filled(rng, sparse)
    made = condense(cache, slack, FIRST)
    rows = naive.dense(cache.rows.view, 4)
    v, linear = cache.alpha.view @ rows, cache.alpha.view @ cache.margin.view
    new = naive.dense(made.constraints.rows, 4)
    np.testing.assert_allclose(made.alpha @ new, v, rtol=1e-12, atol=1e-12)
    assert made.alpha @ made.constraints.margin == pytest.approx(linear, rel=1e-12, abs=1e-12)
    assert (made.alpha <= 0.7 * (1 + 1e-12)).all()
    assert (np.diff(made.constraints.example) > 0).all()
    wanted = np.unique(groups_of(cache.example.view[cache.alpha.view > 0], slack, FIRST))
    np.testing.assert_array_equal(made.constraints.example, wanted)
    for g in range(len(made.alpha)):  # what it is made of, per unit of cost
        at = slice(made.indptr[g], made.indptr[g + 1])
        part = made.weight[at] * cache.cost.view[made.slots[at]]
        np.testing.assert_allclose(part @ rows[made.slots[at]], new[g], rtol=1e-12, atol=1e-12)
        assert np.bincount(cache.example.view[made.slots[at]], made.weight[at]).max() <= 1 + 1e-12


@given(seed=st.integers(0, 10_000))
@compiling
def test_constraints_of_small_groups_add_up_to_those_of_larger_ones(seed):
    rng = np.random.default_rng(seed)
    example = np.flatnonzero(rng.random(20) < 0.5)
    x, margin, cost = rng.normal(size=(len(example), 4)), rng.normal(size=len(example)), rng.random(len(example))
    new = constraints_of(x, margin, example, cost=cost)
    made = coarsen(new, Slack(3), FIRST, 4)
    group = groups_of(example, Slack(3), FIRST)
    np.testing.assert_array_equal(made.constraints.example, np.unique(group))
    for g, found in zip(made.constraints.example, naive.dense(made.constraints.rows, 4), strict=True):
        np.testing.assert_allclose(found, cost[group == g] @ new.rows.values[group == g].astype(float), atol=1e-12)
    assert made.constraints.margin.sum() == pytest.approx(cost @ margin)


@given(seed=st.integers(0, 10_000))
@compiling
def test_mixtures_of_mixtures_are_resolved_into_what_was_written_down(seed):
    rng = np.random.default_rng(seed)
    ledger, vectors = Ledger(), {k: rng.normal(size=3) for k in range(5)}
    for _ in range(4):
        known = np.array(list(vectors))
        parts = rng.choice(known, size=6)
        weight, indptr = rng.random(6), np.array([0, 1, 4, 6])
        for k, name in enumerate(ledger.mix(indptr, parts, weight)):
            run = range(indptr[k], indptr[k + 1])
            vectors[int(name)] = sum(weight[j] * vectors[int(parts[j])] for j in run)
    rows = rng.choice(np.array(list(vectors)), size=7)
    alpha = rng.random(7)
    found, share = ledger.resolve(rows, alpha)
    assert (found >= 0).all()
    assert (np.diff(found) > 0).all()
    wanted = sum(a * vectors[int(row)] for a, row in zip(alpha, rows, strict=True))
    np.testing.assert_allclose(sum(s * vectors[int(k)] for s, k in zip(share, found, strict=True)), wanted, rtol=1e-10)


def test_groups_only_become_unions_of_those_there_are():
    partition = SlackPartition(Slack(7), np.array([0, 1000]), 1000.0, None)
    cache = filled(np.random.default_rng(0), sparse=False)
    slacks = set()
    for partition.budget in (10.0, 500.0, 2000.0, 5000.0, 1e6):
        slacks.add(partition.roomier(cache, Found([], [])))
    assert len(slacks) > 2
    assert all((slack.per_group or 7) % 7 == 0 for slack in slacks)


def test_members_that_workers_wrote_elsewhere_are_noticed_at_once(tmp_path):
    partition = SlackPartition(Slack(7), np.array([0, 1000]), np.inf, Location(str(tmp_path / "here")))
    with pytest.raises(InputError, match="files that workers write there are not visible to the coordinator"):
        partition.check_visible(partition.notes(0, Slack(7)))
