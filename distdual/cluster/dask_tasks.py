"""Dask tasks: how scans of small shards are grouped into tasks, and tasks into batches. Pure."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from distdual.cluster.collection import CollectionDataset
from distdual.cluster.dask_worker import scan_on_worker
from distdual.data.in_memory import MemoryDataset
from distdual.data.training_data import TrainingData
from distdual.problems.base import Problem
from distdual.scan.scan import DatasetRef, Scan

T = TypeVar("T")

Sent = MemoryDataset | CollectionDataset  # the shards, or futures of them, are arguments of tasks

BUNDLE = 16  # the most small shards that stay together in memory, or share a task
BUNDLE_BYTES = 64 << 20  # four shards of the default size: a scan of one may take less than Dask takes for a task
TASK_SECONDS = 0.1  # scans share a task up to this expected time: Dask adds several ms to each task
READS_SECONDS = 1.5  # the same, for a task that also reads; it is lost when its worker dies
READ = 1e8  # assumed bytes per second
UPDATE = 1e-6  # assumed seconds per ascent update of one row
BATCH = 200  # tasks per message to the scheduler
BATCH_BYTES = 4 << 20  # Dask warns about graphs above 10 MB


@dataclass(eq=False, slots=True)
class Task:
    """A function of one shard or of several, at one version, and the Dask future that will hold the results."""

    name: str
    version: int
    function: Any
    shards: list[int]
    arguments: list[tuple[Any, ...]]  # one tuple per shard
    reads: bool = True  # False: it takes shards from cluster memory, if they are kept there
    future: Any = None
    lost: int = 0  # times that it was lost with a worker

    def __str__(self) -> str:
        more = f"-{self.shards[-1]}" if len(self.shards) > 1 else ""
        return f"{self.name}-v{self.version}-shard{self.shards[0]}{more}"


def bundle_size(dataset: TrainingData, slots: int) -> int:
    """Number of shards per bundle in cluster memory; 1 for arrays, whose shards are arguments of tasks."""
    if isinstance(dataset, Sent) or not dataset.nbytes:
        return 1
    mean = dataset.nbytes / dataset.n_shards
    return max(1, min(BUNDLE, int(BUNDLE_BYTES / mean), dataset.n_shards // (8 * max(1, slots))))


def scan_seconds(dataset: TrainingData, problem: Problem) -> float:
    """Guess the time of a scan, for use until one has been measured."""
    return (dataset.nbytes / READ + dataset.n_examples * problem.oracle_work * UPDATE) / dataset.n_shards


def scans_a_task(n_scans: int, slots: int, seconds: float) -> int:
    """Number of scans per task: as many as take next to no time, if every slot still gets a task."""
    return max(1, min(BUNDLE, n_scans // max(1, slots), int(TASK_SECONDS / max(seconds, 1e-6))))


def reads_a_task(seconds: float) -> int:
    return max(1, min(BUNDLE, int(READS_SECONDS / max(seconds, 1e-6))))


def scan_tasks(scans: Sequence[Scan], bundle: int, most: int) -> list[Task]:
    """Group scans into tasks; only shards of one bundle, at one version, share a task."""
    together: dict[tuple[int, int], list[Scan]] = {}
    for scan in scans:
        together.setdefault((scan.version, scan.shard // bundle), []).append(scan)
    return [
        Task("scan", version, scan_on_worker, [s.shard for s in some], [(s,) for s in some], reads=False)
        for (version, _), group in together.items()
        for some in chunks(group, most)
    ]


def bundled(arguments: list[tuple[Any, ...]], bundle: int, most: int) -> list[list[tuple[Any, ...]]]:
    """Arguments whose first one is a shard, grouped into tasks; only neighbours of one bundle share a task."""
    groups = itertools.groupby(arguments, lambda each: each[0] // bundle)
    return [some for _, group in groups for some in chunks(list(group), most)]


def chunks(values: list[T], most: int) -> list[list[T]]:
    return [values[begin : begin + most] for begin in range(0, len(values), most)]


def shrinking_chunks(values: list[T], slots: int, most: int) -> list[list[T]]:
    """Cut values into chunks that shrink towards the end, so that all workers finish at about the same time."""
    found, begin = list[list[T]](), 0
    while begin < len(values):
        end = begin + max(1, min(most, (len(values) - begin) // (4 * slots)))
        found.append(values[begin:end])
        begin = end
    return found


def batches(tasks: Sequence[Task], source: DatasetRef | Sent) -> Iterator[list[Task]]:
    """Group tasks of one version into messages to the scheduler."""
    batch: list[Task] = []
    size = 0
    for task in sorted(tasks, key=lambda task: task.version):  # a stable sort
        weight = BATCH_BYTES if isinstance(source, MemoryDataset) else sent_bytes(task)
        if batch and (batch[0].version != task.version or len(batch) == BATCH or size + weight > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += weight
    if batch:
        yield batch


def sent_bytes(task: Task) -> int:
    return sum(getattr(part, "nbytes", 0) for own in task.arguments for part in own)
