"""A shuffle keeps every example, makes every order equally likely, and leaves no files."""

import contextlib
import itertools
import os
import tempfile
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from distdual.data.prepare import shuffle as module
from distdual.data.prepare.shuffle import shuffle
from distdual.data.shard import Block, join_blocks
from distdual.errors import InputError
from distdual.kernels.rows import CsrRows, DenseRows

IN_MEMORY, SPILL, DEEP = 1 << 30, 20_000, 60


def make_blocks(n, sparse=False, size=17, columns=True):
    """Examples that carry their number in every part."""
    number = np.arange(n)
    x = DenseRows(np.stack([number, 2 * number], axis=1).astype(np.float32))
    if sparse:
        csr = sp.csr_array(np.where(number[:, None] % 5 == np.arange(5), number[:, None] + 1, 0))
        x = CsrRows(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data.astype(np.float32))
    extra = number.astype(np.float64) if columns else None
    whole = Block(x, number.astype(str), extra, None if extra is None else -extra)
    return [whole.take(slice(a, a + size)) for a in range(0, n, size)]


def numbers(blocks):
    return np.concatenate([block.y for block in blocks]).astype(int)


def open_files(folder):
    """Of this process, in this folder: sockets of earlier tests may go at any moment."""
    targets = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            targets.append(os.readlink(f"/proc/self/fd/{number}"))
    return sum(target.startswith(str(folder)) for target in targets)


@pytest.mark.parametrize("budget", [IN_MEMORY, SPILL, DEEP])
@pytest.mark.parametrize("sparse", [False, True])
def test_every_example_comes_out_once_and_whole(budget, sparse):
    n = 300 if budget == DEEP else 2000
    out = join_blocks(list(shuffle(make_blocks(n, sparse), 1, budget)))
    order = out.y.astype(int)
    assert sorted(order) == list(range(n))
    assert (order != np.arange(n)).mean() > 0.9
    np.testing.assert_array_equal(out.cost, order)
    np.testing.assert_array_equal(out.margin, -order)
    if sparse:
        np.testing.assert_array_equal(out.x.values, order + 1)
        np.testing.assert_array_equal(out.x.indices, order % 5)
    else:
        np.testing.assert_array_equal(out.x.values, np.stack([order, 2 * order], axis=1))


@pytest.mark.parametrize("budget", [IN_MEMORY, SPILL])
def test_the_seed_decides_the_order(budget):
    one, again, other = (numbers(shuffle(make_blocks(500), seed, budget)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_how_the_input_is_cut_into_blocks_does_not_matter_in_memory():
    one, other = (numbers(shuffle(make_blocks(500, size=size), 1)) for size in (3, 100))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("budget", [IN_MEMORY, DEEP])
def test_every_order_is_equally_likely(budget, monkeypatch):
    monkeypatch.setattr(module, "BUCKETS", 3)  # the fewer, the more often two examples share one
    blocks = make_blocks(4, size=3, columns=False)
    seen = Counter(tuple(numbers(shuffle(blocks, seed, budget))) for seed in range(720))
    counts = [seen[order] for order in itertools.permutations(range(4))]
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_places_are_uniform_over_many_buckets():
    n = 640
    first = [numbers(shuffle(make_blocks(n), seed, 5000))[:64] for seed in range(8)]
    assert scipy.stats.kstest(np.concatenate(first) / n, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("end", ["read to the end", "stopped early", "source fails"])
def test_no_files_are_left_however_it_ends(tmp_path, monkeypatch, end):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = open_files(tmp_path)

    def source():
        yield from make_blocks(2000)
        if end == "source fails":
            raise KeyError("source")

    shuffled = shuffle(source(), 0, 5000)
    if end == "source fails":
        with pytest.raises(KeyError):
            next(shuffled)
    else:
        next(shuffled)
        assert open_files(tmp_path) > before  # or the test would show nothing
        if end == "stopped early":
            shuffled.close()
        else:
            list(shuffled)
    assert open_files(tmp_path) == before
    assert list(tmp_path.iterdir()) == []


def test_no_examples_give_no_blocks():
    assert list(shuffle([], 0)) == []
    assert list(shuffle([make_blocks(5)[0].take(slice(0, 0))], 0)) == []


def test_examples_larger_than_the_budget_still_come_out():
    assert sorted(numbers(shuffle(make_blocks(10), 0, 1))) == list(range(10))


def test_a_full_disk_is_named(monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_block", full)
    with pytest.raises(InputError, match=r"cannot keep a shuffle there \(No space left on device\); set TMPDIR"):
        list(shuffle(make_blocks(1000), 0, 5000))


def test_a_folder_for_temporary_files_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="nowhere: cannot keep a shuffle there"):
        list(shuffle(make_blocks(1000), 0, 5000))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 200), st.integers(1, 50), st.integers(1, 20_000), st.integers(0, 99), st.booleans())
def test_any_cut_and_any_budget_keep_the_examples(n, size, budget, seed, sparse):
    out = list(shuffle(make_blocks(n, sparse, size), seed, budget))
    assert sorted(numbers(out)) == list(range(n)) if n else out == []
