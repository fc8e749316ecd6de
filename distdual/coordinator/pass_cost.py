"""The declared cost of a pass, in ascent updates of one row, with which a schedule compares it to the ascent.

It follows from the config, the data set and the problem alone, never from the available workers: runs take the same
decisions on any cluster.
"""

from typing import NamedTuple

from distdual.cluster.resources import IN_MEMORY
from distdual.config import SolverConfig
from distdual.data.storage.location import Location
from distdual.data.training_data import TrainingData
from distdual.problems.base import Problem
from distdual.report.number_format import size
from distdual.scan.scan import loaded_bytes

MOST_VISITS = 4  # oracle calls for an example each time it is read; more find little that is new
READ_WORK = 40.0  # updates of a row in the time that reading it takes: memory gives 2 GB/s, a store 50 MB/s


class PassCost(NamedTuple):
    per_example: float  # reading and oracle
    streamed_bytes: int  # of all shards once they are read and prepared; 0 where they stay in memory
    visits: int  # oracle calls for an example that are worth their cost, once it is read
    why: str


def declared_cost(config: SolverConfig, dataset: TrainingData, problem: Problem) -> PassCost:
    """The cost of a pass for `solver.stream`."""
    nbytes = loaded_bytes(dataset, problem)
    streamed, because = is_streamed(config, dataset, nbytes)
    work = problem.oracle_work + (READ_WORK if streamed else 0.0)
    repeats = streamed and problem.many_constraints
    visits = min(MOST_VISITS, 1 + int(READ_WORK / problem.oracle_work)) if repeats else 1
    how = "streamed from storage" if streamed else "kept in memory"
    return PassCost(
        work,
        nbytes if streamed else 0,
        visits,
        f"shards are {how}, {because}: a pass costs {work:g} updates an example",
    )


def is_streamed(config: SolverConfig, dataset: TrainingData, nbytes: int) -> tuple[bool, str]:
    """Whether each pass reads the data set again, and why; `nbytes` are those of its shards in memory."""
    if config.stream != "auto":
        return config.stream == "yes", "as configured"
    if config.mode == "async":
        return False, "or read during the ascent"
    if isinstance(dataset.location, Location) and dataset.location.remote:
        return True, "as they are on remote storage"
    return nbytes > IN_MEMORY, f"as they take {size(nbytes)} against {size(IN_MEMORY)}"
