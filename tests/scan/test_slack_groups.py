"""The constraint of a group is the sum of its members' offenders, in every format."""

import io
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.kernels.row_sums import sum_rows
from distdual.kernels.rows import CsrRows, DenseRows, OuterRows
from distdual.problems.base import Keys
from distdual.problems.binary import Binary
from distdual.problems.constraint_hash import identities
from distdual.problems.multiclass import Multiclass
from distdual.scan import slack_groups as groups
from distdual.scan.group_members_file import pack_members, unpack_members
from distdual.scan.scan import Scan, scan_shard
from distdual.scan.shard_reader import Loaded
from distdual.scan.slack import ALL, SHARD, Slack
from distdual.scan.slack_groups import Members, group_members, groups_of
from tests import naive
from tests.build import CLASSES, compiling, examples, python_kernels, rows_of, shard_of

NOTHING = np.empty(0, dtype=np.uint64)
BINARY = Binary(n_features=4, classes=CLASSES, bias=1.0)
THREE = Multiclass(n_features=4, classes=("a", "b", "c"), bias=1.0)


def any_rows(rng: np.random.Generator, form: str, n: int, width: int):
    """Rows of a format, with many zeros."""
    x = (rng.normal(size=(n, width)) * (rng.random((n, width)) < 0.4)).astype(np.float32)
    if not form.startswith("outer"):
        return rows_of(x, sparse=form == "sparse"), width
    plus = rng.integers(3, size=n).astype(np.int32)
    minus = ((plus + rng.integers(1, 3, size=n)) % 3).astype(np.int32)
    at = rng.integers(n, size=n)
    return OuterRows(rows_of(x, sparse=form == "outer sparse"), at, plus, minus, rng.normal(size=n), width), 3 * width


@pytest.mark.parametrize("form", ["dense", "sparse", "outer dense", "outer sparse"])
@given(seed=st.integers(0, 10_000), compiled=st.booleans())
@compiling
def test_runs_of_rows_are_added_up(form, seed, compiled):
    rng = np.random.default_rng(seed)
    n, width = int(rng.integers(1, 12)), int(rng.integers(1, 40))
    rows, n_weights = any_rows(rng, form, n, width)
    weight = rng.normal(size=n)
    indptr = np.concatenate([[0], np.sort(rng.integers(0, n + 1, size=2)), [n]])
    if compiled:
        found = sum_rows(rows, weight, indptr, n_weights)
    else:
        with python_kernels("distdual.kernels.row_sums"):
            found = sum_rows(rows, weight, indptr, n_weights)
    written = naive.dense(rows, n_weights)
    wanted = [
        sum((weight[k] * written[k] for k in range(a, b)), np.zeros(n_weights)) for a, b in itertools.pairwise(indptr)
    ]
    assert found.values.dtype == np.float64
    np.testing.assert_allclose(naive.dense(found, n_weights), wanted, rtol=1e-12, atol=1e-12)
    if isinstance(found, CsrRows):
        assert all((np.diff(found.indices[a:b]) > 0).all() for a, b in itertools.pairwise(found.indptr))
        assert 12 * len(found.values) <= 8 * 3 * n_weights
    else:
        assert isinstance(found, DenseRows)


@pytest.mark.parametrize("chunk", [4, 4096], ids=["a few at a time", "all at once"])
@pytest.mark.parametrize("slack", [Slack(2), Slack(7), Slack(20), SHARD, ALL])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("problem", [BINARY, THREE], ids=["binary", "multiclass"])
def test_a_scan_of_groups_finds_what_is_worst_for_each(problem, sparse, slack, chunk, monkeypatch):
    monkeypatch.setattr(groups, "CHUNK", chunk)
    made = examples(1, 33, 4, cost=True)
    made.cost[5] = 0.0
    shard = shard_of(made._replace(y=made.y if problem is BINARY else np.arange(33, dtype=np.int32) % 3), sparse=sparse)
    w = np.random.default_rng(2).normal(size=problem.n_weights)
    report = scan_shard(problem, Loaded(shard, 0, 0.0), w, Scan(0, 0, NOTHING, slack=slack))
    found = problem.offenders(w, shard)
    single = problem.constraints(shard, np.arange(33), found.keys)
    rows = naive.dense(single.rows, problem.n_weights)
    cost = problem.costs(shard)
    begins = range(0, 33, slack.per_group or 33)
    slacks = {b: sum(cost[i] * found.slack[i] for i in range(b, min(b + (slack.per_group or 33), 33))) for b in begins}
    wanted = [b for b in begins if slacks[b] > 0]
    assert report.offenders.example.tolist() == wanted
    assert report.loss == pytest.approx(sum(slacks.values()))
    assert (report.offenders.cost == 1).all()
    for k, b in enumerate(wanted):
        bad = [i for i in range(b, min(b + (slack.per_group or 33), 33)) if found.slack[i] > 0]
        row = naive.dense(report.offenders.rows, problem.n_weights)[k]
        np.testing.assert_allclose(row, sum(cost[i] * rows[i] for i in bad), rtol=1e-12, atol=1e-12)
        assert report.offenders.margin[k] == pytest.approx(sum(cost[i] * single.margin[i] for i in bad))
        assert report.offenders.margin[k] - row @ w == pytest.approx(slacks[b])


def test_a_group_that_is_known_is_not_sent_again():
    shard, w = shard_of(examples(1, 33, 4)), np.zeros(5)
    first = scan_shard(BINARY, Loaded(shard, 0, 0.0), w, Scan(0, 0, NOTHING, slack=Slack(8))).offenders
    known = identities(first.example, first.keys)
    assert len(known) == 5
    again = scan_shard(BINARY, Loaded(shard, 0, 0.0), w, Scan(0, 0, known[:3], slack=Slack(8))).offenders
    assert again.example.tolist() == [24, 32]
    other = scan_shard(BINARY, Loaded(shard, 0, 0.0), np.ones(5), Scan(0, 0, known, slack=Slack(8))).offenders
    assert other.example.tolist()[:4] == [0, 8, 16, 24]  # other members violate other weights


@given(seed=st.integers(0, 10_000), ragged=st.booleans())
@compiling
def test_members_come_back_as_they_were_written_down(seed, ragged):
    rng = np.random.default_rng(seed)
    chosen = np.flatnonzero(rng.random(60) < 0.3)
    lengths = rng.integers(0, 4, size=len(chosen)) if ragged else np.full(len(chosen), rng.integers(0, 3))
    values = rng.integers(-300, 100_000, size=lengths.sum()).astype(np.int32)
    members = group_members(
        chosen, Keys(np.concatenate([[0], np.cumsum(lengths)]), values), Slack(int(rng.integers(1, 20)))
    )
    arrays = np.load(io.BytesIO(pack_members(members)))
    found = unpack_members(arrays)
    for left, right in zip(
        (members.indptr, members.example, *members.keys), (found.indptr, found.example, *found.keys), strict=True
    ):
        np.testing.assert_array_equal(left, right)


def test_members_of_binary_groups_take_one_bit_an_example():
    members = Members(np.array([0, 10_000]), np.arange(10_000), Keys.none(10_000))
    assert len(pack_members(members)) < 10_000 / 8 + 1500


def test_groups_are_named_and_numbered_by_their_first_example():
    first = np.array([0, 10, 25])
    example = np.array([0, 4, 9, 10, 14, 24])
    assert groups_of(example, Slack(4), first).tolist() == [0, 4, 8, 10, 14, 22]
    assert groups_of(example, SHARD, first).tolist() == [0, 0, 0, 10, 10, 10]
    assert groups_of(example, ALL, first).tolist() == [0] * 6
