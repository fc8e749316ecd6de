"""The executor that scans on a Dask cluster and recovers from worker failures.

A task is a pure function of the data set, one or several small shards, the problem and a version of the weights.
Problem and weights are scattered, and tasks refer to them by key. Dask reruns the tasks of a dead worker elsewhere;
this module scatters values again whose last holder died, and limits all waiting.
"""

import asyncio
import itertools
import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, ClassVar, NamedTuple

from distdual.cluster.base import HeldWeights, arrived, run_scans
from distdual.cluster.dask_monitor import PAUSE, POLL_SECONDS, Attended
from distdual.cluster.dask_tasks import (
    Sent,
    Task,
    batches,
    bundle_size,
    bundled,
    reads_a_task,
    scan_seconds,
    scan_tasks,
    scans_a_task,
    shrinking_chunks,
)
from distdual.cluster.dask_worker import LatentValues, ShardWork, TaskDone, TaskWork, load_bundle, work_on_shards
from distdual.cluster.resources import of_workers
from distdual.cluster.same_sources import HERE, ForeignWorkerError, is_same
from distdual.config import ClusterConfig
from distdual.data.dataset import Dataset
from distdual.data.in_memory import OneShard
from distdual.errors import ClusterError
from distdual.kernels.rows import Floats
from distdual.problems.base import Problem
from distdual.problems.latent.base import Completed
from distdual.scan.scan import DatasetRef, Scan, ShardReport, loaded_bytes

SENDING = 10.0  # seconds allowed for sending a value to a worker, plus …
SLOWEST = 1e6  # … a second per this many bytes
TASK_TRIES = 5  # times a task may be lost with a worker, the last copy of its weights or the scheduler
SUSPECT = 3  # losses after which tasks run one at a time, to find the one that kills workers
LOST = ("cancelled", "error")  # states of a shard that has to be read again
KILLED = 4  # workers that died when Dask gives up a task


@dataclass(eq=False, slots=True)
class Scattered:
    """A value in cluster memory, under a key that changes when the value is sent again."""

    name: str
    value: Any
    future: Any = None


class TaskOutcome(NamedTuple):
    task: Task
    future: Any  # the task may have a newer one by now
    result: Any
    error: BaseException | None


@dataclass(eq=False, slots=True)
class PendingTasks:
    """Pending tasks and the queue of their outcomes."""

    tasks: set[Task] = field(default_factory=set)
    suspects: list[Task] = field(default_factory=list)  # tasks waiting to run alone
    alone: Task | None = None  # the suspect that runs now
    ended: "SimpleQueue[TaskOutcome]" = field(default_factory=SimpleQueue)

    def arrived(self, wait: float) -> list[TaskOutcome]:
        """Return the outcomes of tasks that were neither dropped nor resubmitted."""
        return [o for o in arrived(self.ended, wait) if o.task in self.tasks and o.task.future is o.future]


class DaskExecutor:
    """Scans on Dask workers; shards stay in cluster memory if they fit, under Dask's memory management."""

    sends_reports: ClassVar[bool] = True

    def __init__(
        self,
        client: Any,
        dataset: Dataset | Sent,
        problem: Problem,
        limits: ClusterConfig | None = None,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """`prepare` is called after a scheduler restart, before any task is sent."""
        self.client = client
        self.cluster = Attended(client, limits or ClusterConfig(), prepare)
        self.source: DatasetRef | Sent = dataset if isinstance(dataset, Sent) else DatasetRef.of(dataset)
        self.first = dataset.first
        self.problem = problem
        self.run = secrets.token_hex(4)  # distinguishes runs that share a cluster
        self.serial = itertools.count()
        self.held: HeldWeights[Scattered] = HeldWeights()
        self.everywhere = True  # whether to scatter to all workers at once
        self.shared: Scattered | None = None  # the problem, without the latent values of each shard
        self.scans = PendingTasks()
        self.bundle = bundle_size(dataset, self.slots)
        self.streams = not of_workers(self.cluster.workers).keep(loaded_bytes(dataset, problem))
        self.loaded: dict[int, Any] = {}  # shards in cluster memory, by bundle number
        self.kept: set[int] = set()  # of a data set that is streamed: shards that stay there for now
        self.seen: set[int] = set()  # shards whose read cost is already reported
        self.seconds = scan_seconds(dataset, problem)  # per scan
        self.phase_seconds: dict[str, float] = {}  # the same for functions whose shards are kept, by name

    @property
    def events(self) -> list[str]:
        return self.cluster.events

    @events.setter
    def events(self, left: list[str]) -> None:
        self.cluster.events = left

    @property
    def slots(self) -> int:
        self.cluster.look()
        threads: int = sum(worker["nthreads"] for worker in self.cluster.workers.values())
        return max(1, threads)  # without workers, scans wait

    @property
    def pending(self) -> int:
        return sum(len(task.shards) for task in self.scans.tasks)

    def publish(self, version: int, w: Floats) -> None:
        weights = Scattered(f"weights-v{version}", w.copy())
        self._scatter(weights)
        self.held.publish(version, weights)

    def keep(self, shards: Set[int]) -> None:
        if not self.streams:
            return
        self.kept = set(shards)
        self.loaded = {shard: future for shard, future in self.loaded.items() if shard in self.kept}
        self.seen &= self.kept

    def start(self, scans: Sequence[Scan]) -> None:
        most = scans_a_task(len(scans), self.slots, self.seconds)
        self._begin(self.scans, scan_tasks(scans, 1 if self.kept else self.bundle, most))

    def collect(self, wait: float) -> list[ShardReport]:
        reports = [self._priced(report) for _, found in self._collect(self.scans, wait) for report in found]
        if reports:
            self.seconds = sum(report.read_seconds + report.compute_seconds for report in reports) / len(reports)
        return reports

    def drop(self) -> None:
        self._drop(self.scans)

    def reports(self, scans: Sequence[Scan]) -> Iterator[ShardReport]:
        return run_scans(self, scans)

    def map_shards(
        self, function: Any, shards: Sequence[int], *parts: Sequence[Any], keep: bool = False
    ) -> Iterator[Any]:
        name, version = function.__name__.replace("_", "-"), self.held.newest
        arguments = list(zip(shards, *parts, strict=True))
        if keep:
            most = scans_a_task(len(arguments), self.slots, self.phase_seconds.get(name, self.seconds))
            some_at_a_time = bundled(arguments, self.bundle, most)
        else:
            one_by_one = isinstance(self.source, Sent)  # the shard travels with its task
            most = 1 if one_by_one else max(self.bundle, reads_a_task(self.seconds))
            some_at_a_time = shrinking_chunks(arguments, self.slots, most)
        tasks = [
            Task(name, version, function, [each[0] for each in some], some, reads=not keep) for some in some_at_a_time
        ]
        flight = PendingTasks()
        self._begin(flight, tasks)
        found = self._in_order(flight, tasks)
        return self._paid(name, shards, found) if keep else found

    def _paid(self, phase: str, shards: Sequence[int], results: Iterator[Any]) -> Iterator[Any]:
        """Results with costs that are paid once; how long those of a phase take decides how many share a task."""
        seconds = 0.0
        for shard, result in zip(shards, results, strict=True):
            seconds += result.cost.compute_seconds + (0.0 if self._stays(shard) else result.cost.read_seconds)
            yield self._paid_once(shard, result)
        self.phase_seconds[phase] = seconds / max(1, len(shards))

    def _paid_once(self, shard: int, result: Any) -> Any:
        """A result whose cost has no reading of a shard that was in memory."""
        if self._stays(shard) and shard in self.seen:
            return result._replace(cost=result.cost.paid())
        self.seen.add(shard)
        return result

    def _in_order(self, flight: PendingTasks, tasks: Sequence[Task]) -> Iterator[Any]:
        """Yield results one by one: those of a large data set might not fit in memory at once."""
        results: dict[Task, list[Any]] = {}
        try:
            for task in tasks:
                while task not in results:
                    results.update(self._collect(flight, math.inf))
                yield from results.pop(task)
        finally:
            self._drop(flight)

    def close(self) -> None:
        self.drop()
        self.held = HeldWeights()
        self.shared = None
        self.loaded = {}

    def _priced(self, report: ShardReport) -> ShardReport:
        """Report the cost of reading only once for a shard that stays in memory."""
        if self._stays(report.shard) and report.shard in self.seen:
            return report._replace(bytes_read=0, gets=0, read_seconds=0.0)
        self.seen.add(report.shard)
        return report

    # Tasks: start, (re)submit, collect, drop.

    def _begin(self, flight: PendingTasks, tasks: Sequence[Task]) -> None:
        if not flight.tasks:
            self.cluster.watch.progress = time.monotonic()
        for task in tasks:
            self.held.begin(task.version)
            flight.tasks.add(task)
        self._submit(flight, tasks)

    def _submit(self, flight: PendingTasks, tasks: Sequence[Task]) -> None:
        """Send tasks to the scheduler in batches: one message costs about as much as a hundred tasks."""
        problem = self._problem()
        for batch in batches(tasks, self.source):
            futures = self.client.map(
                work_on_shards,
                [self._work(task) for task in batch],
                self._given(batch),
                key=[self._key(str(task)) for task in batch],
                pure=False,
                problem=problem.future,
                w=self.held.by_version[batch[0].version].future,
            )
            for task, future in zip(batch, futures, strict=True):
                task.future = future
                self.cluster.in_background(self._follow(flight, task, future))

    def _key(self, name: str) -> str:
        """Return a key that is readable on the dashboard and unique on this cluster."""
        return f"{name}-{self.run}-{next(self.serial)}"

    @staticmethod
    async def _follow(flight: PendingTasks, task: Task, future: Any) -> None:
        """Fetch the result as soon as it is ready, even while the coordinator is busy."""
        try:
            outcome = TaskOutcome(task, future, await future.result(), None)
        except Exception as error:  # among them distributed.CancelledError
            outcome = TaskOutcome(task, future, None, error)
        flight.ended.put(outcome)

    def _collect(self, flight: PendingTasks, wait: float) -> list[tuple[Task, list[Any]]]:
        end = time.monotonic() + wait
        while flight.tasks:
            found, lost = list[tuple[Task, list[Any]]](), list[Task]()
            for outcome in flight.arrived(min(end - time.monotonic(), POLL_SECONDS)):
                task = outcome.task
                if task is flight.alone:
                    flight.alone = None
                if (done := self._accepted(outcome)) is not None:
                    found.append((task, done.results))
                    flight.tasks.remove(task)
                    self.held.end(task.version)
                else:
                    self._check_lost(outcome)
                    lost.append(task)
            if found:
                self.cluster.watch.progress = time.monotonic()
            if lost:
                self._again(flight, lost)
            if flight.suspects and flight.alone is None:
                flight.alone = flight.suspects.pop(0)
                self._submit(flight, [flight.alone])
            self.cluster.look()
            if found or time.monotonic() >= end:
                return found
        return []

    def _accepted(self, outcome: TaskOutcome) -> TaskDone | None:
        """The results of a task, if it has ended on a worker that runs the same distdual."""
        done, foreign = outcome.result, None
        if isinstance(outcome.error, ForeignWorkerError):
            foreign = str(outcome.error)
        elif outcome.error is None:
            if isinstance(done, TaskDone) and is_same(done.sources):
                return done
            foreign = getattr(done, "worker", None)
        if foreign is not None:
            self.cluster.refuse(f"worker {foreign} runs another distdual", foreign)
        return None

    def _check_lost(self, outcome: TaskOutcome) -> None:
        """Raise the error of a task that failed by itself; count the loss of one that never finished."""
        from distributed import KilledWorker

        task, error = outcome.task, outcome.error
        if error is None or isinstance(error, ForeignWorkerError):
            task.lost += 1
            if task.lost > TASK_TRIES:
                raise ClusterError(f"{task}: workers that run another distdual take it again and again") from None
            return
        if isinstance(error, KilledWorker):
            task.lost += KILLED
        elif outcome.future.status != "error":
            task.lost += 1
        elif not isinstance(error, MemoryError):
            raise error
        if task.lost > TASK_TRIES or isinstance(error, MemoryError):
            raise ClusterError(short_of_memory(task, self.cluster.workers)) from None

    def _again(self, flight: PendingTasks, tasks: Sequence[Task]) -> None:
        self.cluster.wait_for_worker()
        self._restore(self._problem())
        for version in {task.version for task in tasks}:
            self._restore(self.held.by_version[version])
        if self.loaded:
            self.loaded = {number: future for number, future in self.loaded.items() if future.status not in LOST}
        for task in tasks:
            task.future = None
        flight.suspects += [task for task in tasks if task.lost >= SUSPECT]
        self._submit(flight, [task for task in tasks if task.lost < SUSPECT])
        self.events.append(f"{len(tasks)} tasks submitted again")

    def _drop(self, flight: PendingTasks) -> None:
        if not flight.tasks:
            return
        if self.client.status == "running":
            self.client.cancel([task.future for task in flight.tasks if task.future is not None])
        for task in flight.tasks:
            self.held.end(task.version)
        flight.tasks, flight.suspects, flight.alone = set(), [], None

    # Inputs of tasks: a shard or its source, the problem, the weights.

    def _given(self, tasks: Sequence[Task]) -> list[Any]:
        """Return for each task its shards in cluster memory, if they are kept there, else their source."""
        if tasks[0].reads:
            return [self._source(task.shards[0]) for task in tasks]
        bundle = 1 if self.streams else self.bundle
        numbers = [task.shards[0] // bundle for task in tasks]
        new = sorted({n for n in numbers if n not in self.loaded and self._stays(n * bundle)})
        if new:
            shards = [range(n * bundle, min((n + 1) * bundle, len(self.first) - 1)) for n in new]
            sources = [self._source(some[0]) for some in shards]
            keys = [self._key(f"read-shard{some[0]}") for some in shards]
            problem = self._problem().future
            futures = self.client.map(load_bundle, sources, shards, sender=HERE, problem=problem, key=keys, pure=False)
            self.loaded.update(zip(new, futures, strict=True))
        pairs = zip(tasks, numbers, strict=True)
        return [self.loaded[n] if n in self.loaded else self._source(task.shards[0]) for task, n in pairs]

    def _stays(self, shard: int) -> bool:
        """Whether a shard that has been read stays in cluster memory."""
        return not self.streams or shard in self.kept

    def _source(self, shard: int) -> DatasetRef | OneShard:
        """Return where a shard is stored or, for arrays, the shard itself."""
        return self.source.only(shard) if isinstance(self.source, Sent) else self.source

    def _problem(self) -> Scattered:
        shared = self.problem.problem if isinstance(self.problem, Completed) else self.problem
        if self.shared is None or self.shared.value is not shared:
            self.shared = Scattered("problem", shared)
            self._scatter(self.shared)
        return self.shared

    def _work(self, task: Task) -> TaskWork:
        each = zip(task.shards, task.arguments, strict=True)
        return TaskWork(task.function, [ShardWork(shard, own, self._latent(shard)) for shard, own in each])

    def _latent(self, shard: int) -> LatentValues | None:
        if not isinstance(self.problem, Completed):
            return None
        part = self.problem.part(int(self.first[shard]), int(self.first[shard + 1]))
        return LatentValues(part.values, part.first, part.indptr)

    def _scatter(self, what: Scattered) -> None:
        """Send a value to the workers, and retry until the scheduler has noticed those that died.

        Idle workers all get a copy: Dask runs tasks where a copy is, and the others would wait for work stealing. While
        workers are busy, or once a broadcast has failed, one worker gets it and Dask copies it on demand: that takes
        less of the coordinator's time, and the scheduler may keep trying to reach a dead worker.
        """
        begin = time.monotonic()
        while what.future is None:
            key = self._key(what.name)
            try:
                what.future = self.cluster.ask(self._send, key, what.value)[key]
            except OSError:  # or TimeoutError: no worker, or it died with the first copy
                self.everywhere = False
                time.sleep(PAUSE)
                self.cluster.look()
                limit = 2 * self.cluster.watch.limits.patience  # `look` raises earlier if all workers are gone
                if time.monotonic() - begin > limit:
                    raise ClusterError(f"{what.name} could not be sent to the workers for {limit:g} s") from None

    async def _send(self, key: str, value: Any) -> Any:
        """Scatter with a timeout: the scheduler may wait forever for copies where a worker died or joined meanwhile."""
        seconds = SENDING + getattr(value, "nbytes", 0) / SLOWEST
        copies = self.client.scatter({key: value}, broadcast=self.everywhere and not self.pending, timeout=POLL_SECONDS)
        return await asyncio.wait_for(copies, seconds)

    def _restore(self, what: Scattered) -> None:
        """Scatter a value again if no worker holds it."""
        if what.future.status == "cancelled" or not self._holders(what.future):
            what.future = None
            self._scatter(what)
            self.events.append(f"{what.name} scattered again")

    def _holders(self, future: Any) -> Sequence[str]:
        try:
            found: dict[str, Sequence[str]] = self.cluster.ask(self.client.scheduler.who_has, keys=[future.key])
        except OSError:
            return ()
        return found.get(future.key, ())


def short_of_memory(task: Task, workers: dict[str, Any]) -> str:
    limits = [worker["memory_limit"] for worker in workers.values() if worker["memory_limit"]]
    limit = f" (they have {min(limits) / 2**30:.3g} GiB)" if limits else ""
    which = (
        f"shard {task.shards[0]}"
        if len(task.shards) == 1
        else f"one of the shards {task.shards[0]} … {task.shards[-1]}"
    )
    return (
        f"{which}: workers died repeatedly while working on it, most likely short of memory{limit}; "
        "give them more, or prepare the data with smaller --shard-bytes"
    )
