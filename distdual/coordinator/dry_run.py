"""The dry run: what a run would read, hold in memory and cost. Trains nothing and writes nothing.

One shard is read and a few of its examples are searched at w = 0, for the bytes and the GETs of a shard, the size of a
constraint and the time of the oracle. The rest follows from the config and from the layout of the data set.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distdual.cluster.dask_client import reach, scheduler_state
from distdual.cluster.resources import Resources, of_local, of_threads, of_workers
from distdual.config import Config
from distdual.coordinator.auto_slack import choice_of, group_bytes
from distdual.coordinator.latent_loop import check_possible
from distdual.coordinator.map_maker import stand_in
from distdual.coordinator.run_inputs import data_of, prior_of, problem_of, start_of
from distdual.coordinator.slack_partition import CONSTRAINT_BYTES
from distdual.data.dataset import Dataset, open_dataset
from distdual.data.shard import Read
from distdual.errors import InputError
from distdual.problems.base import Problem
from distdual.problems.latent.base import LatentProblem
from distdual.problems.multivariate.problem import Multivariate
from distdual.scan.scan import loaded_bytes
from distdual.scan.slack import Slack

SAMPLE_EXAMPLES = 64  # examples to search
USUAL_PASSES = 5  # to a gap of 1e-3; most runs take 3 to 8
ROWS_OF_ALL = 100  # the same where all examples share one slack: a few dozen to a few hundred
USUAL_ROWS_PER_GROUP = 2  # constraints in the cache per slack group, where an example has many; 1 to 4 are usual
VECTORS = 6  # vectors as long as w that the coordinator holds


@dataclass(frozen=True, slots=True)
class DryRun:
    """What is known before a run; `expected` marks what depends on how it goes."""

    examples: int
    shards: int
    weights: int
    slack: str
    bytes_a_pass: int
    gets_a_pass: int
    shards_stay_in_memory: bool
    workers: int
    worker_memory: int | None  # limit of each; None: unknown or unlimited
    worker_needs: int
    coordinator_needs: int
    expected_cache_rows: int
    expected_cache_bytes: int
    expected_passes: int
    expected_passes_read: int  # those that read from storage
    oracle_seconds_a_pass: float | None  # of all workers together; None for latent problems

    @property
    def expected_bytes(self) -> int:
        return self.expected_passes_read * self.bytes_a_pass

    @property
    def expected_gets(self) -> int:
        return self.expected_passes_read * self.gets_a_pass


class Probe(NamedTuple):
    """Figures of a few examples of one shard."""

    row_bytes: float  # of a constraint
    single: bool  # an example has one constraint at most
    seconds: float | None  # of the oracle, an example


def dry_run(config: Config) -> DryRun:
    """Describe the run of this config; raises the InputError that the run would raise for its inputs."""
    dataset = open_dataset(data_of(config))
    problem = stand_in(problem_of(config, dataset), config.kernel, config.data.storage_options)
    if isinstance(problem, Multivariate):
        raise InputError(f"--dry-run cannot estimate a {problem.kind} problem, whose constraints involve all examples")
    prior_of(config, problem)
    start_of(config)
    slack = slack_of(config, dataset, problem)
    read = dataset.read(0)
    probe = probed(problem, dataset, read)
    loaded = loaded_bytes(dataset, problem)
    with resources(config) as there:
        stays = there.keep(loaded)
        rows, cached = expected_cache(config, dataset, problem.n_weights, slack, probe)
        most = min(USUAL_PASSES, config.solver.max_passes)
        vector = 8 * problem.n_weights
        return DryRun(
            dataset.n_examples,
            dataset.n_shards,
            problem.n_weights,
            str(slack),
            bytes_of_pass(dataset, read),
            read.n_gets * dataset.n_shards,
            stays,
            there.workers,
            there.memory,
            there.needs(loaded, loaded // dataset.n_shards) + 2 * vector,
            cached + VECTORS * vector,
            rows,
            cached,
            most,
            1 if stays else most,
            None if probe.seconds is None else probe.seconds * dataset.n_examples,
        )


def slack_of(config: Config, dataset: Dataset, problem: Problem) -> Slack:
    if isinstance(problem, LatentProblem):
        check_possible(problem, config.solver.slack, config.solver.cache_bytes)
        return Slack.parse("example")
    return choice_of(config.solver, dataset, problem).slack


@contextlib.contextmanager
def resources(config: Config) -> Iterator[Resources]:
    """Where scans would run; asks a running scheduler for its workers, and starts none."""
    if config.cluster.scheduler:
        with reach(config.cluster) as client:
            yield of_workers(scheduler_state(client)["workers"])
    elif config.cluster.local:
        yield of_local(config.cluster.local)
    else:
        yield of_threads()


def probed(problem: Problem, dataset: Dataset, read: Read) -> Probe:
    """Search a few examples at w = 0, where every constraint with a positive margin is violated."""
    if isinstance(problem, LatentProblem):  # its constraints need latent values
        return Probe(dataset.nbytes / dataset.n_examples, False, None)
    shard = problem.prepared(read.shard.piece(0, min(SAMPLE_EXAMPLES, read.shard.n_examples)))
    w = np.zeros(problem.n_weights)
    problem.offenders(w, shard.piece(0, 1))  # loads or compiles kernels
    begin = time.perf_counter()
    found = problem.offenders(w, shard)
    seconds = (time.perf_counter() - begin) / shard.n_examples
    violated = np.flatnonzero(found.slack > 0)
    rows = problem.constraints(shard, violated, found.keys.take(violated)).rows
    return Probe(rows.nbytes / max(1, len(violated)), not len(found.keys.values), seconds)


def expected_cache(config: Config, dataset: Dataset, n_weights: int, slack: Slack, probe: Probe) -> tuple[int, int]:
    """Constraints at the end of a run and their bytes, within solver.cache_bytes."""
    sizes = np.diff(dataset.first)
    groups = slack.n_groups(sizes)
    shared = group_bytes(slack, sizes, dataset.nbytes / dataset.n_examples, n_weights) / groups
    each = probe.row_bytes + CONSTRAINT_BYTES if slack.is_example else shared
    rows = groups * (1 if probe.single and slack.is_example else USUAL_ROWS_PER_GROUP)
    if slack.is_all:
        rows = ROWS_OF_ALL
    rows = int(max(1, min(rows, config.solver.cache_bytes / each)))
    return rows, int(rows * each)


def bytes_of_pass(dataset: Dataset, read: Read) -> int:
    """Bytes of all objects: padded to one size, or compressed as well as this shard, which is the first."""
    if not dataset.layout.compress:
        return read.n_bytes * dataset.n_shards
    return round(read.n_bytes * dataset.nbytes / max(1, dataset.head(1).nbytes))
