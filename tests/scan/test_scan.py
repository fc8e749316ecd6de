"""A scan is a pure function of the shard, the problem, the weights and what is known already."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.data.dataset import open_dataset
from distdual.data.shard import Shard
from distdual.errors import InputError
from distdual.kernels.row_copies import SAMPLE, WIDE, packed
from distdual.kernels.rows import CsrRows, DenseRows, OuterRows, ReferredRows
from distdual.problems.base import Keys
from distdual.problems.binary import Binary
from distdual.problems.chain.problem import Chain
from distdual.problems.constraint_hash import identities, mix_identities
from distdual.problems.multiclass import Multiclass
from distdual.scan.scan import DatasetRef, Scan, load_and_scan, scan_shard, wants_lean
from distdual.scan.shard_reader import Loaded, load_shard, made_lean
from distdual.scan.slack import EXAMPLE, SHARD, Slack
from distdual.testing import assert_same_constraints
from tests import naive
from tests.build import CLASSES, compiling, examples, shard_of, write

NOTHING = np.empty(0, dtype=np.uint64)
MADE = examples(0, 30, 4, cost=True, margin=True)
PROBLEM = Binary(n_features=4, classes=CLASSES, bias=1.0)
W = np.random.default_rng(1).normal(size=5)

shards = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


def scan(shard, w=W, known=NOTHING, problem=PROBLEM):
    return scan_shard(problem, Loaded(shard, 123, 0.5), w, Scan(shard.number, 7, known))


@shards
def test_the_loss_is_the_cost_of_all_slacks(sparse):
    shard = shard_of(MADE, sparse=sparse, number=2, first=60)
    report = scan(shard)
    program = naive.binary_program(PROBLEM, shard, C=1.0)
    assert report.loss == pytest.approx(naive.primal(program, W) - 0.5 * W @ W, rel=1e-12)
    assert (report.shard, report.version, report.exact, report.n_examples) == (2, 7, True, 30)
    assert (report.bytes_read, report.read_seconds) == (123, 0.5)


@shards
def test_offenders_are_the_violated_constraints(sparse):
    shard = shard_of(MADE, sparse=sparse, first=60)
    found = scan(shard).offenders
    program = naive.binary_program(PROBLEM, shard, C=1.0)
    violated = [i for i, xi in enumerate(naive.slacks(program, W)) if xi > 0]
    assert 0 < len(violated) < 30
    np.testing.assert_array_equal(found.example, 60 + np.array(violated))
    np.testing.assert_allclose(naive.dense(found.rows, 5), program.rows[violated])
    np.testing.assert_array_equal(found.margin, program.margin[violated])
    np.testing.assert_array_equal(found.cost, program.capacity[violated])


@shards
def test_what_the_coordinator_knows_is_not_sent_again_but_counts(sparse):
    shard = shard_of(MADE, sparse=sparse, first=60)
    everything = scan(shard)
    known = identities(everything.offenders.example, everything.offenders.keys)[::2]
    report = scan(shard, known=known)
    assert report.loss == everything.loss
    assert_same_constraints(report.offenders, everything.offenders.take(slice(1, None, 2)))


@shards
@pytest.mark.parametrize("problem", [PROBLEM, Multiclass(n_features=4, classes=CLASSES, bias=1.0)], ids=["one", "some"])
def test_offenders_of_a_shard_that_is_kept_are_not_copied(sparse, problem):
    shard = shard_of(MADE, sparse=sparse, first=60)
    w = np.random.default_rng(1).normal(size=problem.n_weights)
    sent, near = (scan(each, w, problem=problem).offenders for each in (shard, replace(shard, kept=True)))
    features = near.rows.x if isinstance(near.rows, OuterRows) else near.rows
    assert isinstance(features, ReferredRows)
    assert features.x.values is shard.x.values
    np.testing.assert_array_equal(
        naive.dense(packed(near.rows), problem.n_weights), naive.dense(sent.rows, problem.n_weights)
    )


@shards
@pytest.mark.parametrize("slack", [EXAMPLE, Slack(4), SHARD], ids=["single examples", "groups of four", "the shard"])
def test_the_loss_that_offenders_show_is_told_apart(sparse, slack):
    shard = shard_of(MADE, sparse=sparse, first=60)
    task = Scan(shard.number, 7, NOTHING, slack=slack)
    everything = scan_shard(PROBLEM, Loaded(shard, 0, 0.0), W, task)
    known = identities(everything.offenders.example, everything.offenders.keys)[::2]
    for report in (everything, scan_shard(PROBLEM, Loaded(shard, 0, 0.0), W, replace(task, known=known))):
        found = report.offenders
        short = found.margin - naive.dense(found.rows, 5) @ W
        assert report.new_loss == pytest.approx(found.cost @ np.maximum(0.0, short), rel=1e-9)
    assert everything.new_loss == pytest.approx(everything.loss, rel=1e-12)


def test_weights_that_violate_nothing_give_an_empty_report():
    made = examples(0, 10, 4)._replace(margin=np.full(10, -1.0))
    report = scan(shard_of(made), np.zeros(5))
    assert report.loss == 0.0
    assert len(report.offenders.margin) == 0


@shards
@pytest.mark.parametrize("value", [np.nan, np.inf], ids=["not a number", "infinite"])
def test_a_bad_feature_is_an_error_that_names_shard_and_row(sparse, value):
    made = copy.deepcopy(MADE)
    row = next(i for i in range(8, 30) if made.x[i].any())
    made.x[row, np.flatnonzero(made.x[row])[0]] = value if made.y[row] == 0 else -value
    with pytest.raises(InputError, match=f"shard 5, row {row}: the loss is (nan|inf)"):
        scan(shard_of(made, sparse=sparse, number=5), np.ones(5))


@shards
def test_reading_and_scanning_at_once_is_the_same_as_one_after_the_other(sparse, tmp_path):
    dataset = open_dataset(write(tmp_path / "set", MADE, sparse=sparse, n_shards=3))
    source = DatasetRef.of(dataset)
    for number in range(dataset.n_shards):
        task = Scan(number, 0, NOTHING)
        kept = scan_shard(PROBLEM, load_shard(source, number), W, task)
        fresh = load_and_scan(source, PROBLEM, W, task)
        assert fresh.loss == kept.loss
        assert fresh.bytes_read == kept.bytes_read > 0
        assert_same_constraints(fresh.offenders, kept.offenders)


def test_a_data_set_that_changed_under_the_run_is_not_read(tmp_path):
    location = write(tmp_path / "set", MADE)
    with pytest.raises(InputError, match="has changed since the run began"):
        load_shard(DatasetRef(location, "0123", 1), 0)


constraint_names = st.lists(
    st.tuples(st.integers(0, 2**40), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3)), max_size=20
)


def named(names):
    lengths = [len(key) for _, key in names]
    values = np.array([value for _, key in names for value in key], dtype=np.int32)
    keys = Keys(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), values)
    return np.array([example for example, _ in names], dtype=np.int64), keys


@compiling
@given(names=constraint_names)
def test_constraints_have_one_identity_exactly_if_example_and_key_are_the_same(names):
    found = identities(*named(names))
    for a in range(len(names)):
        for b in range(len(names)):
            assert (found[a] == found[b]) == (names[a] == names[b])


@compiling
@given(names=constraint_names)
def test_identities_are_the_same_in_plain_python(names):
    example, keys = named(names)
    plain = np.empty(len(names), dtype=np.uint64)
    with np.errstate(over="ignore"):  # they are meant to wrap around
        mix_identities.py_func(example, keys.indptr, keys.values, plain)
    np.testing.assert_array_equal(plain, identities(example, keys))


def test_identities_do_not_depend_on_the_company():
    """A worker and the coordinator compute them at different times from different batches."""
    example, keys = named([(5, []), (5, [1]), (5, [1, 2]), (6, [1])])
    together = identities(example, keys)
    alone = [identities(example[k : k + 1], keys.take(slice(k, k + 1)))[0] for k in range(4)]
    np.testing.assert_array_equal(together, alone)


def mostly_zeros(n: int, filled: float = 0.1) -> Shard:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, WIDE)) * (rng.random((n, WIDE)) < filled)
    return Shard(3, 50, DenseRows(x.astype(np.float32)), rng.integers(3, size=n).astype(np.int32))


class OwnMulticlass(Multiclass):
    pass


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (Multiclass(n_features=WIDE, classes=("a", "b", "c")), True),
        (Chain(n_features=WIDE, classes=("a", "b", "c")), True),
        (Binary(n_features=WIDE, classes=CLASSES), False),
        (OwnMulticlass(n_features=WIDE, classes=("a", "b", "c")), False),
    ],
    ids=["several classes", "tags", "two classes", "a user's own"],
)
def test_zeros_are_left_out_for_problems_of_ours_that_read_features_often(problem, expected):
    assert wants_lean(problem) == expected


@pytest.mark.parametrize(
    ("problem", "tokens"),
    [
        (Multiclass(n_features=WIDE, classes=("a", "b", "c")), None),
        (Chain(n_features=WIDE, classes=("a", "b", "c")), np.arange(0, 41, 2)),
    ],
    ids=["several classes", "tags"],
)
def test_a_scan_without_zeros_finds_what_one_with_them_finds(problem, tokens):
    stored = Loaded(replace(mostly_zeros(40), tokens=tokens), 0, 0.5)
    lean = made_lean(stored)
    assert isinstance(lean.shard.x, CsrRows)
    assert lean.read_seconds > 0.5
    w, task = np.random.default_rng(1).normal(size=problem.n_weights), Scan(3, 0, NOTHING, 5, 15)
    found, expected = (scan_shard(problem, each, w, task) for each in (lean, stored))
    assert found.loss == pytest.approx(expected.loss, rel=1e-12)
    np.testing.assert_array_equal(found.offenders.keys.values, expected.offenders.keys.values)
    rows = (naive.dense(each.offenders.rows, problem.n_weights) for each in (found, expected))
    np.testing.assert_array_equal(*rows)


def misleading() -> Shard:
    """Every other row has no zeros, which those that are looked at do not tell."""
    shard = mostly_zeros(4 * SAMPLE)
    shard.x.values[1::2] = 1.0
    return shard


@pytest.mark.parametrize(
    "shard",
    [mostly_zeros(40, filled=0.9), shard_of(MADE, sparse=True), misleading()],
    ids=["few zeros", "sparse already", "fewer than it seemed"],
)
def test_a_shard_is_scanned_as_it_is_unless_that_is_slow(shard):
    loaded = Loaded(shard, 0, 0.0)
    assert made_lean(loaded) is loaded
