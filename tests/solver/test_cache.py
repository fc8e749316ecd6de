"""The cache holds each constraint once, and finds the ones that share a slack."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.problems.base import Keys
from distdual.problems.constraint_hash import identities
from distdual.solver import growable as growth
from distdual.solver.cache import ConstraintCache
from distdual.solver.cache_index import are_absent, group_up
from distdual.solver.growable import Growing, Room
from distdual.solver.regularizer import Prior
from tests import naive
from tests.build import compiling, constraints_of

WIDTH = 3
formats = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


class NaiveCache:
    """One dict entry a constraint, in the order of arrival."""

    def __init__(self):
        self.held = {}

    def insert(self, batch):
        for example, key in batch:
            self.held.setdefault((example, key), content_of(example, key))

    def keep(self, slots):
        names = list(self.held)
        self.held = {names[slot]: self.held[names[slot]] for slot in slots}

    def groups(self):
        found = {}
        for slot, (example, _) in enumerate(self.held):
            found.setdefault(example, []).append(slot)
        return dict(sorted(found.items()))


def content_of(example, key):
    """Row, margin and cost that follow from the name, as they do from real data; some entries are zero."""
    rng = np.random.default_rng([example, key])
    row = (rng.normal(size=WIDTH) * (rng.random(WIDTH) < 0.6)).astype(np.float32)
    return row, rng.normal(), 0.5 + example


def batch_of(names, *, sparse=False):
    content = [content_of(*name) for name in names]
    return constraints_of(
        np.array([row for row, _, _ in content]).reshape(-1, WIDTH),
        [margin for _, margin, _ in content],
        [example for example, _ in names],
        cost=[cost for _, _, cost in content],
        keys=[key for _, key in names],
        sparse=sparse,
    )


def assert_same(cache, wanted):
    names = list(wanted.held)
    assert len(cache) == len(names)
    assert cache.n_groups == len(wanted.groups())
    if cache.rows is None:
        return
    view = cache.view()
    np.testing.assert_array_equal(cache.example.view, [example for example, _ in names])
    np.testing.assert_array_equal(cache.keys().values, [key for _, key in names])
    np.testing.assert_array_equal(np.diff(cache.keys().indptr), np.ones(len(names)))
    rows = np.array([row for row, _, _ in wanted.held.values()]).reshape(-1, WIDTH)
    np.testing.assert_array_equal(naive.dense(view.rows, WIDTH), rows)
    np.testing.assert_allclose(view.curve, (rows.astype(np.float64) ** 2).sum(axis=1))
    np.testing.assert_array_equal(view.margin, [margin for _, margin, _ in wanted.held.values()])
    np.testing.assert_array_equal(view.most, [cache.C * cost for _, _, cost in wanted.held.values()])
    assert cache.single == (len(wanted.groups()) == len(names))
    for group, (example, slots) in enumerate(wanted.groups().items()):
        begin, end = view.group_indptr[group : group + 2]
        assert sorted(view.members[begin:end]) == slots
        assert view.capacity[group] == cache.C * (0.5 + example)
        assert cache.group_example[group] == example
        for later, slot in enumerate(slots):
            kept = view.space.gram[view.space.gram_indptr[slot] : view.space.gram_indptr[slot + 1]]
            np.testing.assert_allclose(
                kept, rows[slots[:later]].astype(np.float64) @ rows[slot], rtol=1e-12, atol=1e-12
            )


names = st.tuples(st.integers(0, 8), st.integers(0, 3))
batches = st.lists(st.lists(names, max_size=8), min_size=1, max_size=6)


@formats
@compiling
@given(given_batches=batches, data=st.data())
def test_it_holds_what_a_dict_would_hold(sparse, given_batches, data):
    cache, wanted = ConstraintCache(2.0, Prior(WIDTH)), NaiveCache()
    for batch in given_batches:
        before = len(wanted.held)
        wanted.insert(batch)
        slots = cache.insert(batch_of(batch, sparse=sparse))
        np.testing.assert_array_equal(slots, np.arange(before, len(wanted.held)))
        assert_same(cache, wanted)
        if len(cache) and data.draw(st.booleans(), label="drop some"):
            chosen = data.draw(st.sets(st.integers(0, len(cache) - 1)), label="keep")
            cache.keep(np.array(sorted(chosen), dtype=np.int64))
            wanted.keep(sorted(chosen))
            assert_same(cache, wanted)


@formats
def test_rows_may_come_in_the_other_format(sparse):
    cache, wanted = ConstraintCache(2.0, Prior(WIDTH)), NaiveCache()
    for k, batch in enumerate([[(0, 0), (1, 1)], [(2, 0), (0, 1)], [(3, 0)]]):
        wanted.insert(batch)
        cache.insert(batch_of(batch, sparse=sparse == (k % 2 == 0)))
        assert_same(cache, wanted)


@compiling
@given(given_batches=batches, first=st.integers(0, 9), count=st.integers(0, 9))
def test_what_is_known_of_a_shard_is_what_is_held_of_its_examples(given_batches, first, count):
    cache, wanted = ConstraintCache(1.0, Prior(WIDTH)), NaiveCache()
    for batch in given_batches:
        cache.insert(batch_of(batch))
        wanted.insert(batch)
    held = [name for name in wanted.held if first <= name[0] < first + count]
    keys = Keys(np.arange(len(held) + 1), np.array([key for _, key in held], dtype=np.int32))
    expected = identities(np.array([example for example, _ in held], dtype=np.int64), keys)
    assert sorted(cache.known(first, first + count)) == sorted(expected)


@formats
def test_what_the_ascent_has_found_stays_with_its_constraint(sparse):
    cache = ConstraintCache(1.0, Prior(WIDTH))
    cache.insert(batch_of([(4, 0), (2, 0), (4, 1)], sparse=sparse))
    cache.view().alpha[:] = [0.1, 0.2, 0.3]
    cache.insert(batch_of([(2, 0), (3, 0), (4, 1), (1, 0)], sparse=sparse))
    np.testing.assert_array_equal(cache.alpha.view, [0.1, 0.2, 0.3, 0.0, 0.0])
    cache.keep(np.array([1, 2, 4]))
    np.testing.assert_array_equal(cache.alpha.view, [0.2, 0.3, 0.0])
    np.testing.assert_array_equal(cache.example.view, [2, 4, 1])


def test_a_constraint_is_dropped_once_its_alpha_was_zero_often_enough():
    cache = ConstraintCache(1.0, Prior(WIDTH))
    cache.insert(batch_of([(0, 0), (1, 0), (2, 0)]))
    cache.view().alpha[:] = [0.5, 0.0, 0.5]
    assert [cache.prune(2), cache.prune(2)] == [0, 0]
    cache.view().alpha[:] = [0.5, 0.0, 0.0]
    assert cache.prune(2) == 1  # example 1, for the third time
    np.testing.assert_array_equal(cache.example.view, [0, 2])
    np.testing.assert_array_equal(cache.alpha.view, [0.5, 0.0])
    assert cache.prune(0) == 1
    np.testing.assert_array_equal(cache.example.view, [0])
    cache.insert(batch_of([(1, 0)]))  # it may come back
    np.testing.assert_array_equal(cache.example.view, [0, 1])


@formats
def test_weights_that_may_not_be_negative_are_constraints_without_slack(sparse):
    precision = np.eye(WIDTH) + 0.1
    cache = ConstraintCache(1.0, Prior(WIDTH, precision=precision, nonnegative=np.array([0, 2])))
    batch = batch_of([(0, 0), (0, 1), (3, 0)], sparse=sparse)
    cache.insert_nonnegative(batch.rows)
    cache.insert(batch)
    view = cache.view()
    rows = naive.dense(view.rows, WIDTH)
    np.testing.assert_array_equal(rows[:2], [[1, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(view.margin[:2], [0, 0])
    np.testing.assert_array_equal(view.most[:2], [np.inf, np.inf])
    np.testing.assert_allclose(view.curve, np.einsum("ki,ij,kj->k", rows, np.linalg.inv(precision), rows))
    assert cache.n_groups == 4
    assert cache.prune(0) == 3  # the constraints of examples, all with α = 0; the others stay
    assert len(cache) == 2


def test_it_grows_without_losing_anything():
    cache, wanted = ConstraintCache(1.0, Prior(WIDTH)), NaiveCache()
    rng = np.random.default_rng(0)
    for _ in range(30):
        batch = [(int(example), int(key)) for example, key in rng.integers(0, 60, size=(40, 2))]
        cache.insert(batch_of(batch))
        wanted.insert(batch)
    assert len(cache) > 900
    assert_same(cache, wanted)


def test_examples_may_come_in_any_order():
    cache, wanted = ConstraintCache(1.0, Prior(WIDTH)), NaiveCache()
    for batch in ([(7, 0)], [(3, 0), (9, 0)], [(3, 1), (0, 0), (7, 1), (3, 2)]):
        cache.insert(batch_of(batch))
        wanted.insert(batch)
        assert_same(cache, wanted)


ROOMS = {
    "roomy": Room(),
    "tight": Room(tight=True),
    "for 7": Room(expected=7),
    "for many": Room(expected=900),
}


@pytest.mark.parametrize("room", ROOMS.values(), ids=ROOMS)
@pytest.mark.parametrize("width", [0, 4], ids=["flat", "with columns"])
def test_an_array_that_grows_is_the_concatenation_of_its_parts(width, room, monkeypatch):
    monkeypatch.setattr(growth, "ASIDE", 800)  # bytes
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, width) if width else n) for n in (0, 1, 5, 0, 40, 3)]
    growing = Growing(np.float64, width, room)
    for part in parts[:3]:
        growing.extend(part)
    assert len(growing.buffer) <= max(6, 0 if room.tight else 100 // max(1, width), 0 if room.tight else 24)
    for part in parts[3:]:
        mixed = rng.permutation(len(part))
        growing.extend_taken(part[mixed], np.argsort(mixed))
    np.testing.assert_array_equal(growing.view, np.concatenate(parts))
    which = np.array([0, 3, 4, 48])
    growing.keep(which)
    np.testing.assert_array_equal(growing.view, np.concatenate(parts)[which])


def test_a_few_idle_constraints_of_many_wait_for_more():
    cache = ConstraintCache(1.0, Prior(3))
    cache.insert(batch_of([(i, 0) for i in range(100)]))
    cache.alpha.view[4:] = 0.5
    assert [cache.prune(1), cache.prune(1), len(cache)] == [0, 0, 100]
    cache.alpha.view[:8] = 0.0
    assert [cache.prune(1), cache.prune(1), len(cache)] == [0, 8, 92]


numbers = st.lists(st.integers(0, 30), max_size=12)


@pytest.mark.parametrize("run", [are_absent, are_absent.py_func], ids=["compiled", "python"])
@compiling
@given(held=numbers, asked=numbers)
def test_what_is_asked_for_is_absent_unless_its_own_group_has_it(run, held, asked):
    """Identities here are numbers modulo 3, so that other groups have the same ones."""
    example, members = np.array(held, dtype=np.int64), np.argsort(held, kind="stable")
    indptr, groups = group_up(example, members)
    wanted = np.array(asked, dtype=np.int64)
    identity, ids = (np.array([7 * n % 3 for n in of], dtype=np.uint64) for of in (held[::-1], asked))
    found = run(wanted, ids, groups, indptr, members, identity)
    assert found.tolist() == [
        (e, i) not in set(zip(held, identity.tolist(), strict=True)) for e, i in zip(asked, ids.tolist(), strict=True)
    ]


@given(held=numbers, asked=numbers)
def test_it_knows_whether_it_holds_constraints_of_any_of_these_examples(held, asked):
    cache = ConstraintCache(1.0, Prior(WIDTH))
    cache.insert(batch_of([(i, 0) for i in dict.fromkeys(held)]))
    assert cache.holds_any(np.array(asked, dtype=np.int64)) == bool(set(held) & set(asked))


@formats
def test_inner_products_are_kept_for_each_constraint_of_a_group_and_those_before_it(sparse):
    cache = ConstraintCache(1.0, Prior(WIDTH))
    for names in ([(3, 0), (1, 0)], [(1, 1), (2, 0), (3, 1)], [(3, 2), (1, 2)]):
        cache.insert(batch_of(names, sparse=sparse))
    for left in (np.arange(7), np.array([0, 2, 4, 5, 6])):
        cache.keep(left)
        space, rows = cache.view().space, naive.dense(cache.view().rows, WIDTH).astype(np.float64)
        for begin, end in itertools.pairwise(cache.group_indptr):
            slots = cache.members[begin:end]
            for s, k in enumerate(slots):
                at = space.gram_indptr[k]
                np.testing.assert_allclose(space.gram[at : at + s], rows[slots[:s]] @ rows[k], atol=1e-12)
