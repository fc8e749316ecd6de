"""Speed of kernels relative to memory bandwidth and to a plain loop of dot products, measured in the same run.

Each thread has its part of the rows. The scan is `Problem.offenders`, shard by shard, of features as they are stored:
workers leave out zeros where most are, as those of MNIST for ten classes. `dot` is the plainest Numba kernel there is
for Σ_j x_ij w_j; `sum` adds up all values, which is as fast as memory is read here.
"""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np

from benchmarks.datasets.covtype import two_classes
from benchmarks.datasets.imdb import imdb
from benchmarks.datasets.mnist import mnist
from benchmarks.table import Table
from distdual.data.in_memory import in_memory
from distdual.problems.base import Problem
from distdual.problems.binary import Binary
from distdual.problems.multiclass import Multiclass
from distdual.solver.regularizer import Prior
from distdual.solver.solver import Solver

ROUNDS = 15


@numba.njit(nogil=True, fastmath=True)
def plain_sum(x: Any, out: Any) -> None:
    flat = x.reshape(-1)
    total = np.float32(0.0)
    for j in range(len(flat)):
        total += flat[j]
    out[0] = total


@numba.njit(nogil=True, fastmath=True)
def plain_dot(x: Any, w: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            total += x[i, j] * w[j]
        out[i] = total


@numba.njit(nogil=True, fastmath=True)
def plain_csr_dot(indptr: Any, indices: Any, values: Any, w: Any, out: Any) -> None:
    for i in range(len(indptr) - 1):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += values[p] * w[indices[p]]
        out[i] = total


def micro(folder: Path, scratch: Path, repeat: int) -> list[Table]:  # noqa: ARG001 - as the others
    rows = []
    x, y, _, _ = two_classes(folder)
    rows += dense("covtype", x, y)
    case = mnist(folder, scratch)
    rows += dense("MNIST", case.x, case.y)
    rows += ten_classes(case.x)
    rows += sparse(imdb(folder, scratch))
    note = (
        "Bandwidth is the size of the features over the median time of fifteen interleaved rounds. "
        "The scan of ten classes is bound by arithmetic: its last column counts the dot products it does. "
        "Workers scan ten classes of MNIST without zeros, in less time."
    )
    columns = ["scan", "threads", "sum, GB/s", "dot, GB/s", "ours, GB/s", "of the sum", "of the dot scan"]
    scans = Table("scans", "Scan kernels against the memory's bandwidth", columns, rows, note)
    return [scans, ascent(x, y, case.x, case.y)]


def fastest_together(jobs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median seconds of each, round by round, after one round that compiles."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(ROUNDS + 1):
        for name, job in jobs.items():
            begin = time.perf_counter()
            job()
            if turn:
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(taken) for name, taken in times.items()}


def spread(pool: ThreadPoolExecutor, parts: list[Any], job: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: list(pool.map(job, parts))


def scan(problem: Problem, w: Any, shards: Any) -> None:
    """Results are discarded after each shard, as on a worker."""
    for shard in shards:
        problem.offenders(w, shard)


def dense(name: str, x: Any, y: Any) -> list[list[Any]]:
    data = in_memory(x, y)
    problem = Binary(n_features=x.shape[1], classes=data.classes)
    w = np.random.default_rng(0).normal(size=x.shape[1]) / 10
    out = np.empty(len(x))
    found = []
    for threads in (1, 2):
        cuts = [(p[0], p[-1] + 1) for p in np.array_split(np.arange(len(x)), threads)]
        shards = [data.shards[k::threads] for k in range(threads)]
        with ThreadPoolExecutor(threads) as pool:
            taken = fastest_together(
                {
                    "sum": spread(pool, cuts, lambda at: plain_sum(x[at[0] : at[1]], out[at[0] :])),
                    "dot": spread(pool, cuts, lambda at: plain_dot(x[at[0] : at[1]], w, out[at[0] : at[1]])),
                    "ours": spread(pool, shards, partial(scan, problem, w)),
                }
            )
        found.append(line(f"binary, dense, {name}", threads, x.nbytes, taken))
    return found


def sparse(case: Any) -> list[list[Any]]:
    x, data = case.x, in_memory(case.x, case.y)
    w = np.random.default_rng(0).normal(size=x.shape[1]) / 10
    out, indptr = np.empty(x.shape[0]), x.indptr.astype(np.int64)
    found = []
    for threads in (1, 2):
        cuts = [(p[0], p[-1] + 1) for p in np.array_split(np.arange(x.shape[0]), threads)]
        shards = [data.shards[k::threads] for k in range(threads)]
        with ThreadPoolExecutor(threads) as pool:

            def added(at: Any) -> None:
                where = slice(indptr[at[0]], indptr[at[1]])
                plain_sum(x.data[where], out[at[0] :])
                plain_sum(x.indices[where].view(np.float32), out[at[0] :])

            taken = fastest_together(
                {
                    "sum": spread(pool, cuts, added),
                    "dot": spread(
                        pool,
                        cuts,
                        lambda at: plain_csr_dot(indptr[at[0] : at[1] + 1], x.indices, x.data, w, out[at[0] :]),
                    ),
                    "ours": spread(pool, shards, partial(scan, case.problem, w)),
                }
            )
        found.append(line("binary, sparse, IMDB", threads, x.data.nbytes + x.indices.nbytes, taken))
    return found


def ten_classes(x: Any) -> list[list[Any]]:
    y = np.arange(len(x)) % 10
    data = in_memory(x, y)
    problem = Multiclass(n_features=x.shape[1], classes=data.classes)
    w = np.random.default_rng(0).normal(size=problem.n_weights) / 10
    by_class, out = w.reshape(10, -1), np.empty(len(x))
    found = []
    for threads in (1, 2):
        cuts = [(p[0], p[-1] + 1) for p in np.array_split(np.arange(len(x)), threads)]
        shards = [data.shards[k::threads] for k in range(threads)]
        with ThreadPoolExecutor(threads) as pool:
            taken = fastest_together(
                {
                    "sum": spread(pool, cuts, lambda at: plain_sum(x[at[0] : at[1]], out[at[0] :])),
                    "dot": spread(
                        pool, cuts, lambda at: [plain_dot(x[at[0] : at[1]], row, out[at[0] :]) for row in by_class]
                    ),
                    "ours": spread(pool, shards, partial(scan, problem, w)),
                }
            )
        found.append(line("ten classes, dense, MNIST", threads, x.nbytes, taken))
    return found


def line(name: str, threads: int, n_bytes: int, taken: dict[str, float]) -> list[Any]:
    speed = {each: n_bytes / seconds / 1e9 for each, seconds in taken.items()}
    return [
        name,
        threads,
        *(round(speed[each], 2) for each in ("sum", "dot", "ours")),
        round(speed["ours"] / speed["sum"], 2),
        round(speed["ours"] / speed["dot"], 2),
    ]


def ascent(*arrays: Any) -> Table:
    """Nanoseconds that the coordinator takes to visit a constraint, all examples cached, beside a plain dot product."""
    rows = []
    for name, x, y in (("covtype", *arrays[:2]), ("MNIST", *arrays[2:])):
        some = min(len(x), 100_000_000 // (4 * x.shape[1]))
        data = in_memory(x[:some], y[:some])
        problem = Binary(n_features=x.shape[1], classes=data.classes)
        solver = Solver(0.01, 0, Prior(problem.n_weights))
        for shard in data.shards:
            found = problem.offenders(np.zeros(problem.n_weights), shard)
            solver.insert(problem.constraints(shard, np.arange(shard.n_examples), found.keys))
        out = np.empty(some)
        taken = fastest_together(
            {
                "sweep": lambda solver=solver: solver.process(np.arange(len(solver.cache))),
                "dot": lambda x=x, some=some, out=out, solver=solver: plain_dot(x[:some], solver.w, out),
            }
        )
        nanoseconds = {each: 1e9 * seconds / some for each, seconds in taken.items()}
        rows.append([name, x.shape[1], *(round(nanoseconds[each], 1) for each in ("dot", "sweep"))])
    columns = ["rows of", "width", "plain dot, ns a row", "visit, ns a row"]
    note = (
        "A visit reads the row for the gradient and again where α moves; rows come in a random order of runs of 16. "
        "The cache leaves out the zeros of MNIST, which the dot product reads."
    )
    return Table("ascent", "A visit of the coordinate ascent", columns, rows, note)
