"""The scan of one shard at one w: the worst offender of each example, and the loss. Pure."""

import time
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from distdual.data.dataset import Dataset, open_once
from distdual.data.shard import Shard
from distdual.data.storage.location import Location
from distdual.data.training_data import TrainingData
from distdual.errors import InputError
from distdual.kernels.rows import Bools, Floats, Ints, product
from distdual.problems.base import BiasKinks, Constraints, Magnitude, Offenders, Problem
from distdual.problems.constraint_hash import Identities, are_new, identities
from distdual.problems.latent.base import Completed
from distdual.problems.user.problem import UserProblem
from distdual.scan.cv_folds import Fold
from distdual.scan.group_members_file import Notes
from distdual.scan.loss_error import LossError, checked, loss_error, upper_loss
from distdual.scan.recent_offenders import recent_offenders
from distdual.scan.selection import selected
from distdual.scan.shard_reader import Loaded, Openable, made_lean, streamed
from distdual.scan.slack import EXAMPLE, Slack
from distdual.scan.slack_groups import fingerprints, group_members, group_rows


@dataclass(frozen=True, slots=True)
class DatasetRef:
    """A reference to a data set; `fingerprint` ensures that all processes read the same one."""

    location: Location
    fingerprint: str
    n_shards: int

    @staticmethod
    def of(dataset: Dataset) -> "DatasetRef":
        return DatasetRef(dataset.location, dataset.fingerprint, dataset.n_shards)

    def open(self) -> Dataset:
        return open_once(self.location, self.fingerprint, self.n_shards)


@dataclass(frozen=True, slots=True)
class Scan:
    """A request for the worst offenders of examples begin … end − 1 of one shard, at weights `version`."""

    shard: int
    version: int
    known: Identities  # offenders that the coordinator already has
    begin: int = 0
    end: int | None = None  # None: to the last
    slack: Slack = EXAMPLE  # examples that share a slack; `begin` and `end` cut no group
    notes: Notes | None = None  # where to record the members of each group's row
    recent: tuple[Notes, ...] = ()  # if any, search only these offenders, without inference
    fold: Fold | None = None  # examples to leave out
    pool: int = 1  # of so many neighbours, the nearest to the decision boundary may bring a constraint
    search: int = 0  # kinks of the loss along a free bias to report, at most
    ticket: int = 0  # identifies a pending scan; repeated in its report

    @property
    def nbytes(self) -> int:
        return self.known.nbytes


class ShardReport(NamedTuple):
    shard: int
    version: int
    exact: bool
    n_examples: int  # on which inference ran
    loss: float  # Σ_i cost_i ξ_i(w) over the examples scanned, or an upper bound of it
    offenders: Constraints  # violated and not known
    new_loss: float  # the part of `loss` that these account for
    bytes_read: int
    read_seconds: float
    compute_seconds: float
    ticket: int = 0
    gets: int = 0
    worker: str = ""  # its name; "" for this process
    error: LossError = LossError()  # how far rounding can have put `loss` off
    magnitude: Magnitude = Magnitude()  # of the examples scanned
    relaxed: float = 0.0  # the part of `loss` that inference leaves open: Σ cost_i (bound_i − ξ_i of its output)
    kinks: BiasKinks | None = None  # the loss along a free bias, if asked for


def scan_shard(problem: Problem, loaded: Loaded, w: Floats, scan: Scan) -> ShardReport:
    """Run loss-augmented inference on each example, and build the rows of new offenders."""
    begin = time.perf_counter()
    shard = loaded.shard
    if (scan.begin, scan.end) != (0, None):
        shard = shard.piece(scan.begin, shard.n_examples if scan.end is None else scan.end)
    if not scan.slack.is_example or scan.recent:
        shard = replace(shard, kept=False)  # rows are read or summed here
    shard = problem.prepared(shard)
    found = recent_offenders(problem, shard, w, scan.recent) if scan.recent else problem.offenders(w, shard)
    if isinstance(problem, UserProblem):
        problem.check_offenders(shard, found)
    if scan.fold is not None:
        gone = left_out(shard, scan.fold)
        bound = None if found.bound is None else np.where(gone, 0.0, found.bound)
        found = found._replace(slack=np.where(gone, 0.0, found.slack), bound=bound)
    costs = problem.costs(shard)
    found = checked(problem, shard, found, w)
    loss, relaxed = upper_loss(costs, found)
    if not np.isfinite(loss):
        row = int(np.argmax(~np.isfinite(found.slack)))
        raise InputError(
            f"shard {shard.number}, row {row}: the loss is {found.slack[row]}; "
            "its features are NaN, infinite or too large"
        )
    allowed = selected(problem, w, shard, scan.pool) if scan.pool > 1 else True
    constraints, shown = offending(problem, shard, found, scan, allowed)
    size = problem.magnitude(shard, found)._replace(cost=float(costs.max(initial=0.0)))
    return ShardReport(
        shard.number,
        scan.version,
        problem.exact and not scan.recent,
        0 if scan.recent else shard.n_examples,
        loss,
        constraints,
        product(costs[shown], found.slack[shown]),
        loaded.bytes_read,
        loaded.read_seconds,
        time.perf_counter() - begin,
        scan.ticket,
        loaded.gets,
        error=loss_error(size, costs, loss),
        magnitude=size,
        relaxed=relaxed,
        kinks=problem.bias_kinks(shard, found, kept_costs(costs, shard, scan), scan.search) if scan.search else None,
    )


def left_out(shard: Shard, fold: Fold) -> Bools:
    return fold.holds(np.arange(shard.first, shard.first + shard.n_examples))


def kept_costs(costs: Floats, shard: Shard, scan: Scan) -> Floats:
    """The costs of examples, 0 for those that the fold leaves out."""
    return costs if scan.fold is None else np.where(left_out(shard, scan.fold), 0.0, costs)


def offending(
    problem: Problem, shard: Shard, found: Offenders, scan: Scan, allowed: Bools | bool
) -> tuple[Constraints, Ints]:
    """Return the new violated constraints, one per example or per group, and the examples they cover.

    With slacks of their own, only examples `allowed` bring any.
    """
    if scan.slack.is_example:
        violated = np.flatnonzero((found.slack > 0) & allowed)
        keys = found.keys.take(violated)
        new = np.flatnonzero(are_new(identities(shard.first + violated, keys), scan.known))
        return problem.constraints_of(shard, violated[new], found), violated[new]
    violated = np.flatnonzero((found.slack > 0) & (problem.costs(shard) > 0))
    members = group_members(violated, found.keys.take(violated), scan.slack)
    group, keys = fingerprints(shard.first, members, scan.slack)
    new = np.flatnonzero(are_new(identities(group, keys), scan.known))
    members = members.take(new)
    margin, rows = group_rows(problem, shard, members)
    if scan.notes:
        scan.notes.write(members._replace(example=scan.begin + members.example))
    return Constraints(group[new], np.ones(len(new)), margin, rows, keys.take(new)), members.example


def load_and_scan(source: Openable, problem: Problem, w: Floats, scan: Scan) -> ShardReport:
    """Read a shard, scan it and forget it, for data that does not fit in memory."""
    with streamed(source, scan.shard) as loaded:
        return scan_shard(problem, made_lean(loaded) if wants_lean(problem) else loaded, w, scan)


def loaded_bytes(dataset: TrainingData, problem: Problem) -> int:
    """Bytes of all shards in memory, as scans read them."""
    return problem.loaded_bytes(dataset.nbytes, dataset.n_rows)


def ready(problem: Problem, loaded: Loaded) -> Loaded:
    """A shard that stays in memory as scans read it: mapped, or without its zeros; this counts as reading."""
    if wants_lean(problem):
        return made_lean(loaded)
    begin = time.perf_counter()
    shard = problem.prepared(loaded.shard)
    return loaded._replace(shard=shard, read_seconds=loaded.read_seconds + time.perf_counter() - begin)


def wants_lean(problem: Problem) -> bool:
    """Whether to drop zeros from mostly-zero features, which takes as long as a few inner products.

    A user's own problem gets features as they are stored.
    """
    return is_built_in(problem) and problem.reads_often


def is_built_in(problem: Problem) -> bool:
    """Whether the problem is built in; a user's subclass of a built-in problem is not."""
    inner = problem.problem if isinstance(problem, Completed) else problem
    return type(inner).__module__.startswith("distdual.")
