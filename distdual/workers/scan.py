"""What does a worker find in one shard at one w? Pure: the same arguments give the same report."""

import time
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from distdual.data.location import Location
from distdual.data.shard import Shard
from distdual.data.store import Dataset, open_once
from distdual.errors import InputError
from distdual.kernel import kernel
from distdual.problems.base import Constraints, Keys, Problem
from distdual.rows import Bools, Floats, Ints, product

Identities = NDArray[np.uint64]


class Readable(Protocol):
    """What scans read from: a data set, in storage or in memory."""

    def read(self, number: int, *, check: bool = True) -> tuple[Shard, int]: ...


class Openable(Protocol):
    """What is sent to where scans run."""

    def open(self) -> Readable: ...


@dataclass(frozen=True, slots=True)
class Source:
    """Which data set to read; `fingerprint` makes sure that all processes read the same one."""

    location: Location
    fingerprint: str

    def open(self) -> Dataset:
        return open_once(self.location, self.fingerprint)


@dataclass(frozen=True, slots=True)
class Scan:
    """Ask for the worst offender of examples begin … end − 1 of one shard at weights `version`."""

    shard: int
    version: int
    known: Identities  # offenders that need not be sent: the coordinator has them
    begin: int = 0
    end: int | None = None  # to the last


class ShardReport(NamedTuple):
    shard: int
    version: int
    exact: bool
    n_examples: int
    loss: float  # Σ_i cost_i ξ_i(w) over the examples scanned
    offenders: Constraints  # violated and not known
    bytes_read: int
    read_seconds: float
    compute_seconds: float


class Loaded(NamedTuple):
    """A shard in a worker's memory, and what it cost to read."""

    shard: Shard
    bytes_read: int
    read_seconds: float


def load_shard(source: Openable, number: int) -> Loaded:
    begin = time.perf_counter()
    shard, n_bytes = source.open().read(number)
    return Loaded(shard, n_bytes, time.perf_counter() - begin)


def scan_shard(problem: Problem, loaded: Loaded, w: Floats, scan: Scan) -> ShardReport:
    """One loss-augmented inference per example; rows are built only for offenders that are new."""
    begin = time.perf_counter()
    shard = loaded.shard
    if (scan.begin, scan.end) != (0, None):
        shard = shard.piece(scan.begin, shard.n_examples if scan.end is None else scan.end)
    found = problem.offenders(w, shard)
    loss = product(problem.costs(shard), found.slack)
    if not np.isfinite(loss):
        row = int(np.argmax(~np.isfinite(found.slack)))
        raise InputError(
            f"shard {shard.number}, row {row}: the loss is {found.slack[row]}; "
            "its features are NaN, infinite or too large"
        )
    violated = np.flatnonzero(found.slack > 0)
    keys = found.keys.take(violated)
    new = np.flatnonzero(are_new(identities(shard.first + violated, keys), scan.known))
    constraints = problem.constraints(shard, violated[new], keys.take(new))
    return ShardReport(
        shard.number,
        scan.version,
        problem.exact,
        shard.n_examples,
        loss,
        constraints,
        loaded.bytes_read,
        loaded.read_seconds,
        time.perf_counter() - begin,
    )


def load_and_scan(source: Openable, problem: Problem, w: Floats, scan: Scan) -> ShardReport:
    """For data that does not fit in memory: read, scan, forget."""
    return scan_shard(problem, load_shard(source, scan.shard), w, scan)


def identities(example: Ints, keys: Keys) -> Identities:
    """64 bits that tell constraints apart. Two that collide would be taken for one: slower, never wrong bounds."""
    out = np.empty(len(example), dtype=np.uint64)
    mix_identities(example, keys.indptr, keys.values, out)
    return out


@kernel
def are_new(ids: Identities, known: Identities) -> Bools:
    """True for each of `ids` that is neither known nor met before in `ids`: a hash table, as ids are hashes already."""
    size = 16
    while size < 2 * (len(ids) + len(known)):
        size *= 2
    mask = np.uint64(size - 1)
    table = np.zeros(size, dtype=np.uint64)
    new = np.zeros(len(ids), dtype=np.bool_)
    for t in range(len(known) + len(ids)):
        wanted = known[t] if t < len(known) else ids[t - len(known)]
        wanted = wanted | np.uint64(1)  # 0 marks an empty place
        at = wanted >> np.uint64(1) & mask
        while table[at] != 0 and table[at] != wanted:
            at = (at + np.uint64(1)) & mask
        if table[at] == 0:
            table[at] = wanted
            if t >= len(known):
                new[t - len(known)] = True
    return new


@kernel
def mix_identities(example: Ints, indptr: Ints, values: NDArray[np.int32], out: Identities) -> None:
    """Fold the example number and the key of each constraint with splitmix64's finaliser; fills `out`."""
    for k in range(len(example)):
        state = np.uint64(example[k]) + np.uint64(0x9E3779B97F4A7C15)
        for j in range(indptr[k], indptr[k + 1] + 1):
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state ^= state >> np.uint64(31)
            if j < indptr[k + 1]:
                state += np.uint64(values[j]) + np.uint64(0x9E3779B97F4A7C15)
        out[k] = state
