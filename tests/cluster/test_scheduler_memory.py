"""A task graph never holds w: the scheduler stays small however large the weights are."""

from pathlib import Path

import numpy as np
import psutil
import pytest

from distdual.cluster.dask_client import connect
from distdual.cluster.dask_executor import DaskExecutor
from distdual.config import ClusterConfig
from distdual.data.dataset import open_dataset
from distdual.problems.binary import Binary
from tests.build import CLASSES, examples, write
from tests.cluster.test_executor import scans
from tests.dask_processes import DaskProcesses

WIDTH = 5_000_000  # weights, of 8 bytes: 40 MB
N_SHARDS = 200


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_with_weights_of_40_mb_and_200_shards_the_scheduler_grows_by_less_than_200_mb(tmp_path: Path) -> None:
    dataset = open_dataset(
        write(tmp_path / "set", examples(0, 2 * N_SHARDS, 4), sparse=True, n_features=WIDTH, n_shards=N_SHARDS)
    )
    assert dataset.n_shards >= N_SHARDS
    processes = DaskProcesses(tmp_path, workers=2)
    try:
        assert processes.scheduler
        scheduler = psutil.Process(processes.scheduler.pid)
        with connect(ClusterConfig(scheduler=processes.address, timeout=90.0)) as client:
            client.wait_for_workers(2, timeout=90)
            before = scheduler.memory_info().rss
            executor = DaskExecutor(client, dataset, Binary(n_features=WIDTH, classes=CLASSES))
            executor.seconds = 1.0  # each shard has a task of its own
            grown = []
            for version in range(5):
                executor.publish(version, np.full(WIDTH, 1e-9 * version))
                assert sum(1 for _ in executor.reports(scans(dataset, version))) == dataset.n_shards
                grown.append((scheduler.memory_info().rss - before) / 1e6)
            executor.close()
    finally:
        processes.close()
    assert max(grown) < 200, grown
