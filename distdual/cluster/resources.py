"""The memory of scanning processes, and whether the shards of a data set stay in it between passes."""

import logging
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from distdual.config import LocalCluster
from distdual.scan.shard_reader import MOST_AHEAD, ROOM_BYTES, ROOM_SHARE

IN_MEMORY = 2 << 30  # bytes of shards that threads of one process keep between passes
SHARDS_SHARE = 0.5  # of the workers' memory that shards may fill


class Resources(NamedTuple):
    """The scanning processes: Dask workers, or threads of this process as one worker."""

    workers: int
    threads: int  # of each
    memory: int | None  # of each; None: no limit, so that no room is promised
    room: float  # bytes of shards that all of them together keep

    def keep(self, nbytes: int) -> bool:
        return nbytes <= self.room

    def needs(self, nbytes: int, shard_bytes: int) -> int:
        """The most bytes of shards that a worker holds: its part of all, or those that it reads and computes on."""
        if self.keep(nbytes):
            return -(-nbytes // max(1, self.workers))
        ahead = ROOM_BYTES if self.memory is None else min(ROOM_BYTES, int(ROOM_SHARE * self.memory))
        least, most = (self.threads + 1) * shard_bytes, (self.threads + MOST_AHEAD) * shard_bytes
        return max(least, min(most, ahead))


def of_threads(threads: int = 2) -> Resources:
    return Resources(1, min(threads, os.cpu_count() or 1), None, IN_MEMORY)


def of_workers(workers: Mapping[str, Any]) -> Resources:
    """The workers that a scheduler reports."""
    limits = [worker["memory_limit"] or 0 for worker in workers.values()]
    threads = max((worker["nthreads"] for worker in workers.values()), default=1)
    return Resources(len(limits), threads, min(limits, default=0) or None, SHARDS_SHARE * sum(limits))


def of_local(local: LocalCluster) -> Resources:
    """The workers of a local cluster, whose memory limit is parsed as Dask does."""
    from distributed.worker_memory import parse_memory_limit

    log = logging.getLogger(__name__)
    limit = parse_memory_limit(local.memory, local.threads, local.workers, logger=log)
    return Resources(local.workers, local.threads, limit, SHARDS_SHARE * local.workers * (limit or 0))
