"""A cluster is there, or one sentence says in time that it is not."""

import socket
import sys
import time

import distributed
import pytest

from distdual.cluster.dask_client import connect
from distdual.config import ClusterConfig, LocalCluster
from distdual.errors import InputError
from tests.shell import run


def refuse_connection(address: str) -> float:
    begin = time.monotonic()
    with (
        pytest.raises(InputError, match="the scheduler did not answer within 2 s") as error,
        connect(ClusterConfig(scheduler=address, timeout=2.0)),
    ):
        pass
    assert str(error.value).startswith(address)
    return time.monotonic() - begin


def test_a_scheduler_that_is_not_there_is_an_error_in_time():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        assert refuse_connection(f"tcp://127.0.0.1:{taken.getsockname()[1]}") < 7


def test_a_server_that_never_answers_is_an_error_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert refuse_connection(f"tcp://127.0.0.1:{silent.getsockname()[1]}") < 7


def test_the_patience_with_a_scheduler_is_well_below_a_quarter_of_a_minute():
    assert ClusterConfig().timeout <= 10.0


@pytest.mark.parametrize("address", ["nonsense", "tcp://no-such-host.invalid:8786"])
def test_an_address_that_cannot_be_one_is_an_error(address):
    assert refuse_connection(address) < 7


def test_a_scheduler_without_workers_is_an_error():
    plain = {"processes": False, "protocol": "tcp://", "host": "127.0.0.1"}
    with distributed.LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0", **plain) as empty:
        address = empty.scheduler_address
        with (
            pytest.raises(InputError, match=f"{address}: the scheduler has no workers; start one with `dask worker"),
            connect(ClusterConfig(scheduler=address, timeout=1.0)),
        ):
            pass


def test_two_clusters_fit_on_one_machine():
    local = ClusterConfig(local=LocalCluster(workers=1, memory="1GiB"))
    with connect(local) as first, connect(local) as second:
        assert second.submit(sum, [1, 2]).result() == first.submit(sum, [1, 2]).result() == 3


LEAVES_A_LOCK = """
from multiprocessing import resource_tracker

from distdual.config import ClusterConfig, LocalCluster
from distdual.cluster.dask_client import connect

if __name__ == "__main__":
    with connect(ClusterConfig(local=LocalCluster(workers=1))):
        resource_tracker.register("/nobody-unlinks-this", "semaphore")
"""


def test_a_lock_left_behind_by_a_worker_is_no_word_on_stderr(tmp_path):
    (tmp_path / "leave.py").write_text(LEAVES_A_LOCK)
    assert run(sys.executable, tmp_path / "leave.py") == (0, "", "")
