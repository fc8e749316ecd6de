"""A bound is proven by one exact scan of every shard at one w, and by nothing less."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.certificate.bounds import Certificate, CertificateError, ShardLoss, upper_bound
from distdual.solver.regularizer import Prior

W = np.array([3.0, 4.0])


def bound(losses, *, version=7, n_shards=2, C=2.0, w=W):
    found = upper_bound(w, version, losses, C=C, n_shards=n_shards, prior=Prior(len(w)))
    assert found.error <= 1e-12 * found.value
    return found.value


def loss(shard, value=1.0, *, version=7, exact=True):
    return ShardLoss(shard, version, value, exact)


def test_the_upper_bound_is_the_primal_objective():
    assert bound([loss(0, 1.5), loss(1, 0.25)]) == 12.5 + 2.0 * 1.75


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ([loss(0)], r"each of 2 shards exactly once; got 1 scans, missing \[1\]"),
        ([], r"got 0 scans, missing \[0, 1\]"),
        ([loss(0), loss(0)], r"got 2 scans, missing \[1\]"),
        ([loss(0), loss(1), loss(1)], r"got 3 scans, missing \[\]"),
        ([loss(0), loss(2)], r"missing \[1\]"),
        ([loss(0), loss(1, version=6)], r"shard 1 was scanned at weights v6, this bound is for v7"),
        ([loss(0), loss(1, exact=False)], r"shard 1 used inexact inference"),
    ],
    ids=[
        "a shard that is missing",
        "no shard at all",
        "a shard that counts for another",
        "a shard that counts twice",
        "a shard that is not there",
        "losses taken at older weights",
        "inexact inference",
    ],
)
def test_nothing_is_proven_by(losses, message):
    with pytest.raises(CertificateError, match=message):
        bound(losses)


@given(values=st.lists(st.floats(0, 1e12), min_size=1, max_size=30), seed=st.integers(0, 99))
def test_the_order_in_which_workers_report_does_not_matter(values, seed):
    losses = [loss(shard, value) for shard, value in enumerate(values)]
    shuffled = [losses[k] for k in np.random.default_rng(seed).permutation(len(losses))]
    n_shards = len(losses)
    assert bound(losses, n_shards=n_shards) == bound(shuffled, n_shards=n_shards)
    exact = Fraction(25, 2) + 2 * sum(Fraction(value) for value in values)
    assert bound(losses, n_shards=n_shards) == pytest.approx(float(exact), rel=1e-15)


@pytest.mark.parametrize(
    ("lower", "upper", "gap"),
    [(9.0, 10.0, 0.1), (10.0, 10.0, 0.0), (0.0, 10.0, 1.0), (0.0, 0.0, 0.0), (-5.0, 10.0, 1.5)],
    ids=["a gap", "no gap", "nothing known", "an optimum of 0", "a lower bound below 0"],
)
def test_the_gap_is_relative_to_upper_with(lower, upper, gap):
    assert Certificate(lower, upper, 0).gap == pytest.approx(gap)


def test_bounds_that_are_not_numbers_never_close_the_gap():
    for lower, upper in ((0.0, math.nan), (math.nan, 1.0), (0.0, math.inf)):
        assert not Certificate(lower, upper, 0).gap <= 0.5
