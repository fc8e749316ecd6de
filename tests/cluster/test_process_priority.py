"""Where workers and coordinator share a machine, the coordinator goes first."""

import os

from distdual.cluster.dask_client import connect
from distdual.cluster.process_priority import NICE
from distdual.config import ClusterConfig, LocalCluster


def test_workers_of_a_local_cluster_give_way_to_this_process():
    with connect(ClusterConfig(local=LocalCluster(workers=1))) as client:
        assert client.submit(os.nice, 0).result() == min(19, os.nice(0) + NICE)
