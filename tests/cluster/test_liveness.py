"""Every wait has an end, and a worker that is not heard of is given up."""

import pytest

from distdual.cluster.liveness import SignsOfLife
from distdual.config import ClusterConfig
from distdual.errors import ClusterError

LIMITS = ClusterConfig(patience=30.0, silence=10.0, scan_timeout=100.0)


def watch() -> SignsOfLife:
    return SignsOfLife(LIMITS, answered=0.0, manned=0.0, progress=0.0)


def test_workers_that_come_and_go_are_told_once():
    here = watch()
    assert here.look(0.0, {"a": 1.0, "b": 1.0}) == (["a", "b"], [], [])
    assert here.look(1.0, {"b": 2.0, "c": 2.0}) == (["c"], ["a"], [])
    assert here.look(2.0, {"b": 3.0, "c": 3.0}) == ([], [], [])


def test_a_worker_is_silent_when_its_heartbeat_stands_still_by_our_own_clock():
    here = watch()
    for now in range(0, 22, 2):
        found = here.look(float(now), {"a": 5000.0, "b": 9000.0 + now})  # the scheduler's clock is another
        assert found.silent == (["a"] if now > 10 else [])
    here.check(20.0)


@pytest.mark.parametrize(("now", "raises"), [(29.0, False), (31.0, True)])
def test_a_scheduler_that_does_not_answer_is_waited_for(now, raises):
    here = watch()
    if not raises:
        here.check(now)
        return
    with pytest.raises(ClusterError, match=r"the scheduler has not answered for 30 s \(cluster\.patience\)"):
        here.check(now)


def test_a_cluster_without_workers_is_waited_for():
    here = watch()
    here.look(50.0, {"a": 1.0})
    here.look(51.0, {})
    here.look(80.0, {})
    here.check(80.0)
    here.look(81.0, {})
    with pytest.raises(ClusterError, match=r"there has been no worker for 30 s \(cluster\.patience\)"):
        here.check(81.0)


def test_workers_that_are_all_silent_are_as_good_as_none():
    here = watch()
    for now in range(0, 45, 5):
        here.look(float(now), {"a": 1.0})
    with pytest.raises(ClusterError, match="there has been no worker"):
        here.check(41.0)


def test_workers_that_get_nothing_done_end_a_run():
    here = watch()
    for now in range(0, 105, 5):
        here.look(float(now), {"a": float(now)})
        here.check(float(now))
    with pytest.raises(ClusterError, match=r"no scan has ended for 100 s \(cluster\.scan_timeout\), though .* \(a\)"):
        here.check(101.0)
    here.progress = 100.0
    here.check(101.0)


def test_the_time_in_which_nobody_looks_does_not_count():
    here = watch()
    here.look(5.0, {"a": 1.0})
    here.away(500.0)
    here.check(506.0)
    assert here.look(506.0, {"a": 1.0}).silent == []
    assert here.look(516.0, {"a": 1.0}).silent == ["a"]


def test_the_time_without_workers_is_none_in_which_they_get_nothing_done():
    here = watch()
    here.look(90.0, {})
    here.look(95.0, {"a": 1.0})
    here.look(180.0, {"a": 2.0})
    here.check(180.0)
