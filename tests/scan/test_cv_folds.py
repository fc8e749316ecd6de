"""Folds share out the examples, and a scan with a fold is a scan of a data set without it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.kernels.rows import DenseRows
from distdual.problems.binary import Binary
from distdual.scan.cv_folds import Fold, folds_of
from distdual.scan.scan import Scan, scan_shard
from distdual.scan.shard_reader import Loaded
from distdual.scan.slack import EXAMPLE, Slack
from tests import naive
from tests.build import CLASSES, compiling, examples, shard_of

PROBLEM = Binary(n_features=4, classes=CLASSES, bias=1.0)
W = np.random.default_rng(1).normal(size=5)


@compiling
@given(n=st.integers(1, 200), n_folds=st.integers(2, 11), seed=st.integers(0, 2**40))
def test_folds_differ_in_size_by_one_at_most(n: int, n_folds: int, seed: int) -> None:
    sizes = np.bincount(folds_of(np.arange(n), n_folds, seed), minlength=n_folds)
    assert len(sizes) == n_folds
    assert sizes.max() - sizes.min() <= 1


def test_the_fold_of_an_example_depends_on_its_number_and_the_seed_alone() -> None:
    whole = folds_of(np.arange(1000), 5, 3)
    np.testing.assert_array_equal(folds_of(np.arange(400, 700), 5, 3), whole[400:700])
    assert (whole != folds_of(np.arange(1000), 5, 4)).mean() > 0.5
    neighbours = whole[1:] - whole[:-1]
    assert len(np.unique(neighbours)) > 2  # no pattern that a sorted file could share


@pytest.mark.parametrize("slack", [EXAMPLE, Slack(4)])
@pytest.mark.parametrize("begin", [0, 8])
def test_a_fold_counts_as_if_it_were_not_there(slack: Slack, begin: int) -> None:
    shard = shard_of(examples(0, 30, 4, cost=True, margin=True), first=60)
    fold = Fold(1, 3, 0)
    scan = Scan(0, 7, np.empty(0, dtype=np.uint64), begin, 30, slack, fold=fold)
    report = scan_shard(PROBLEM, Loaded(shard, 0, 0.0), W, scan)
    program = naive.binary_program(PROBLEM, shard, C=1.0)
    loss = np.array(naive.slacks(program, W))
    held = fold.holds(np.arange(60, 90))
    stays = [i for i in range(begin, 30) if loss[i] > 0 and not held[i]]
    assert report.loss == pytest.approx(sum(program.capacity[i] * loss[i] for i in stays), rel=1e-12)
    if slack.is_example:
        np.testing.assert_array_equal(report.offenders.example, 60 + np.array(stays))
    else:
        total = sum(program.capacity[i] * program.rows[i] for i in stays)
        assert isinstance(report.offenders.rows, DenseRows)
        np.testing.assert_allclose(report.offenders.rows.values.sum(axis=0), total, rtol=1e-6)
