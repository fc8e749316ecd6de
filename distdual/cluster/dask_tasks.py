"""What is one task of Dask? A function of one shard, or of several small ones, that runs on any worker."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from distdual.data.dataset import TrainingData
from distdual.data.in_memory import MemoryDataset
from distdual.kernels.rows import Floats, Int32s, Ints
from distdual.problems.base import Problem
from distdual.problems.latent.base import Completed
from distdual.scan.scan import Scan, ShardReport, Source, load_and_scan, scan_shard
from distdual.scan.shard_reader import Loaded, Openable, give_back, load_shard

T = TypeVar("T")

BUNDLE = 16  # small shards that stay together in memory, or are looked at by one task, at the most
BUNDLE_BYTES = 16 << 20
TASK_SECONDS = 0.1  # scans that are expected to take less are put into one task: Dask adds several ms to each
READS_SECONDS = 1.5  # the same, of a task that also reads: a worker that leaves takes that much with it
READ = 1e8  # bytes a second
UPDATE = 1e-6  # seconds that an ascent update of one row may take
BATCH = 200  # tasks that travel to the scheduler together
BATCH_BYTES = 4 << 20  # Dask warns of graphs of more than 10 MB


class Latent(NamedTuple):
    """What Completed has beside the problem."""

    values: Int32s
    first: int
    indptr: Ints | None


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker is to do with one shard."""

    shard: int
    arguments: tuple[Any, ...]
    latent: Latent | None  # of the shard's examples; the rest of the problem is the same for all shards


@dataclass(frozen=True, slots=True)
class Works:
    """The same, for several shards."""

    function: Any  # of (source or loaded shard, problem, w, *arguments)
    each: list[Work]


@dataclass(eq=False, slots=True)
class Task:
    """A function of one shard or of several, at one version, and the Dask future that will hold the results."""

    name: str
    version: int
    function: Any
    shards: list[int]
    arguments: list[tuple[Any, ...]]  # of each
    reads: bool = True  # the shards itself; else it is given those that stay in memory, if they do
    future: Any = None
    lost: int = 0

    def __str__(self) -> str:
        more = f"-{self.shards[-1]}" if len(self.shards) > 1 else ""
        return f"{self.name}-v{self.version}-shard{self.shards[0]}{more}"


def bundle_size(dataset: TrainingData, slots: int) -> int:
    """How many shards stay together; one travels with its task where the data set is in our memory."""
    if isinstance(dataset, MemoryDataset) or not dataset.nbytes:
        return 1
    mean = dataset.nbytes / dataset.n_shards
    return max(1, min(BUNDLE, int(BUNDLE_BYTES / mean), dataset.n_shards // (8 * max(1, slots))))


def scan_seconds(dataset: TrainingData, problem: Problem) -> float:
    """A guess, as long as no scan has told."""
    return (dataset.nbytes / READ + dataset.n_examples * problem.oracle_work * UPDATE) / dataset.n_shards


def scans_a_task(n_scans: int, slots: int, seconds: float) -> int:
    """As many as take next to no time, if there is a task for every slot."""
    return max(1, min(BUNDLE, n_scans // max(1, slots), int(TASK_SECONDS / max(seconds, 1e-6))))


def reads_a_task(seconds: float) -> int:
    return max(1, min(BUNDLE, int(READS_SECONDS / max(seconds, 1e-6))))


def scan_tasks(scans: Sequence[Scan], bundle: int, most: int) -> list[Task]:
    """Neighbours that stay together in memory are scanned together."""
    together: dict[tuple[int, int], list[Scan]] = {}
    for scan in scans:
        together.setdefault((scan.version, scan.shard // bundle), []).append(scan)
    return [
        Task("scan", version, scan_on_worker, [s.shard for s in some], [(s,) for s in some], reads=False)
        for (version, _), group in together.items()
        for some in chunks(group, most)
    ]


def chunks(values: list[T], most: int) -> list[list[T]]:
    return [values[begin : begin + most] for begin in range(0, len(values), most)]


def shrinking_chunks(values: list[T], slots: int, most: int) -> list[list[T]]:
    """Fewer at a time towards the end, so that no worker is still busy long after the others."""
    found, begin = list[list[T]](), 0
    while begin < len(values):
        end = begin + max(1, min(most, (len(values) - begin) // (4 * slots)))
        found.append(values[begin:end])
        begin = end
    return found


def batches(tasks: Sequence[Task], source: Source | MemoryDataset) -> Iterator[list[Task]]:
    """Tasks at one version that travel together."""
    batch: list[Task] = []
    size = 0
    for task in sorted(tasks, key=lambda task: task.version):  # which keeps their order
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


# What follows runs on workers.


def load_bundle(source: Openable, shards: Sequence[int], lean: bool) -> dict[int, Loaded]:
    return {shard: load_shard(source, shard, lean=lean) for shard in shards}


def work_on_shards(works: Works, given: Any, problem: Any, w: Floats) -> list[Any]:
    results = []
    for work in works.each:
        one = given[work.shard] if isinstance(given, dict) else given
        own = problem if work.latent is None else Completed(problem, *work.latent)
        results.append(works.function(one, own, w, *work.arguments))
    give_back()
    return results


def scan_on_worker(given: Any, problem: Problem, w: Floats, scan: Scan) -> ShardReport:
    kept = isinstance(given, Loaded)
    report = scan_shard(problem, given, w, scan) if kept else load_and_scan(given, problem, w, scan)
    return report._replace(worker=worker_name())


def worker_name() -> str:
    from distributed import get_worker

    return str(get_worker().name).removeprefix("tcp://").removeprefix("tls://")
