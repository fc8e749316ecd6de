"""Of recent offenders a worker finds the worst for each example, as if it had compared them all."""

import numpy as np
import pytest

from distdual.data.storage.location import Location
from distdual.problems.base import Keys
from distdual.problems.multiclass import Multiclass
from distdual.scan import recent_offenders as recent
from distdual.scan.group_members_file import Notes
from distdual.scan.recent_offenders import find_violations, recent_offenders
from distdual.scan.scan import Scan, scan_shard
from distdual.scan.shard_reader import Loaded
from distdual.scan.slack import Slack
from distdual.scan.slack_groups import group_members
from tests import naive
from tests.build import examples, rows_of, shard_of

PROBLEM = Multiclass(n_features=3, classes=("a", "b", "c", "d"))
SHARD = shard_of(examples(0, 20, 3)._replace(y=np.arange(20, dtype=np.int32) % 4), first=100)
W = np.random.default_rng(5).normal(size=12)


def written(folder, seeds):
    """Files of random offenders of about half of the examples, and all of these as (example, key)."""
    files, named = [], set()
    for number, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        chosen = np.flatnonzero(rng.random(20) < 0.5)
        wrong = ((SHARD.y[chosen] + rng.integers(1, 4, size=len(chosen))) % 4).astype(np.int32)
        files.append(Notes(Location(str(folder)), number))
        files[-1].write(group_members(chosen, Keys(np.arange(len(chosen) + 1), wrong), Slack(6)))
        named |= set(zip(chosen.tolist(), wrong.tolist(), strict=True))
    return tuple(files), named


@pytest.mark.parametrize("chunk", [3, 4096])
def test_the_worst_recent_offender_of_each_example_is_found(chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(recent, "CHUNK", chunk)
    files, named = written(tmp_path, [1, 2, 3])
    found = recent_offenders(PROBLEM, SHARD, W, files)
    for i in range(20):
        keys = [j for example, j in named if example == i]
        made = PROBLEM.constraints(
            SHARD, np.full(len(keys), i), Keys(np.arange(len(keys) + 1), np.array(keys, np.int32))
        )
        slacks = made.margin - naive.dense(made.rows, 12) @ W
        assert found.slack[i] == pytest.approx(max([0.0, *slacks]))
        if found.slack[i] > 0:
            at = slice(found.keys.indptr[i], found.keys.indptr[i + 1])
            assert found.keys.values[at].tolist() == [keys[int(np.argmax(slacks))]]
    assert (found.slack <= PROBLEM.offenders(W, SHARD).slack + 1e-12).all()


def test_a_scan_of_recent_offenders_asks_no_oracle_and_is_not_exact(tmp_path):
    files, _ = written(tmp_path, [1])
    report = scan_shard(
        PROBLEM, Loaded(SHARD, 0, 0.0), W, Scan(0, 0, np.empty(0, np.uint64), slack=Slack(6), recent=files)
    )
    assert not report.exact
    assert report.n_examples == 0
    assert len(report.offenders.margin)


def test_old_files_are_left_out_where_there_is_no_room(tmp_path, monkeypatch):
    files, _ = written(tmp_path, [1, 2])
    monkeypatch.setattr(recent, "MOST_BYTES", 1)
    newest = recent_offenders(PROBLEM, SHARD, W, files)
    np.testing.assert_array_equal(newest.slack, recent_offenders(PROBLEM, SHARD, W, files[:1]).slack)


@pytest.mark.parametrize("run", [find_violations, find_violations.py_func], ids=["compiled", "python"])
@pytest.mark.parametrize("sparse", [False, True])
def test_violations_are_margins_less_products(run, sparse):
    x, margin, out = np.eye(3, 12) * 2, np.array([1.0, -1.0, 0.0]), np.empty(3)
    run(rows_of(x, sparse=sparse), margin, W, out)
    np.testing.assert_allclose(out, margin - 2 * W[:3])
