"""Training with an exact kernel: search the data for offenders, ascend on those that are cached, certify.

    stages     pieces of the data in random order, each stage twice as long as all before: search, ascend a little
    a search   of all examples that are not cached, at the b of the last stage
    passes     ascend; then all shards, in float64: both bounds, exact gradients, and further offenders

The published version is the support expansion (rows, b). A search is in single precision, as it only has to find
examples; a pass proves the bounds. P is bounded at several multiples s of w, of which the best is kept: with a large C
a little more than w has far less slack.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distdual.certificate.bounds import Certificate
from distdual.certificate.expansion_bounds import bounds_of_expansion, checked_shards, pieces_of_shards
from distdual.cluster.base import Executor
from distdual.config import SolverConfig
from distdual.coordinator.schedule import INTERRUPTED, Cause, Stop, out_of_time
from distdual.data.shard import join_rows
from distdual.data.training_data import TrainingData
from distdual.errors import InputError
from distdual.expansion.cached_expansion import CachedExpansion
from distdual.expansion.gram import Gram
from distdual.feature_maps.blas import one_blas_thread
from distdual.feature_maps.kernel_function import KernelFunction
from distdual.kernels.rows import DenseRows, Floats, Ints
from distdual.memory import LARGEST_SHARE, memory_limit
from distdual.model.dual import Dual
from distdual.problems.expanded import Expanded
from distdual.problems.expansion_form import expansion_form_of
from distdual.report.round_log import Round, Totals
from distdual.scan.expansion_scan import Checked, Examples, SearchPiece, fetch_examples, search_piece
from distdual.solver.gap import contradiction

FIRST_STAGE = 2000  # examples
STAGE_GAP = 0.05  # of the cached problem, at the end of a stage
SHARE_OF_GAP = 0.2  # of the target: the gap of the cached problem before a pass
MULTIPLES = np.concatenate([[1.0], 1.0 + np.linspace(-0.1, 0.1, 81)])
DRIFT = 0.1  # of the target: what rounded gradients may cost before the kernel matrix is widened


@dataclass(slots=True)
class ExpansionOutcome:
    """What a run, finished or interrupted, has reached."""

    problem: Expanded
    w: Floats  # s β, row by row
    dual: Dual
    certificate: Certificate
    stop: Stop
    seconds: float
    history: list[Round]
    totals: Totals
    cache_rows: int
    cache_bytes: int
    updates: int


@dataclass(slots=True)
class Reached:
    """What a checkpoint keeps of a run."""

    example: Ints
    b: Floats
    searched: int
    version: int
    updates: int
    inner: float
    seconds: float
    double: bool
    totals: Totals
    history: list[Round]


class ExpansionTrainer:
    def __init__(
        self,
        problem: Any,  # one with a form
        function: KernelFunction,
        dataset: TrainingData,
        executor: Executor,
        config: SolverConfig,
        watch: Callable[[Round], None] = lambda _: None,
        interrupted: Callable[[], bool] = lambda: False,
        between: Callable[["ExpansionTrainer"], None] = lambda _: None,
    ) -> None:
        self.problem, self.function, self.dataset, self.executor = problem, function, dataset, executor
        self.config, self.watch, self.interrupted, self.between = config, watch, interrupted, between
        budget = min(config.cache_bytes, LARGEST_SHARE * memory_limit())
        constant = float(np.float32(problem.bias)) ** 2
        gram = Gram(function, constant, problem.n_features, dataset.n_examples, budget)
        self.cache = CachedExpansion(gram, config.C, expansion_form_of(problem))
        self.totals, self.history = Totals(), list[Round]()
        self.begin, self.version = time.perf_counter(), 0
        self.best: ExpansionOutcome | None = None
        self.inner = SHARE_OF_GAP
        self.arrived = list[Examples]()  # offenders that are not cached yet
        self.searched = 0  # stages

    # --- the run

    def run(self) -> ExpansionOutcome:
        with one_blas_thread():
            return self._run()

    def _run(self) -> ExpansionOutcome:
        for pieces in self._stages()[self.searched :]:
            self._search(pieces)
            self._ascend(STAGE_GAP)
            self.searched += 1
            self.between(self)
        self._search(self._pieces())
        while True:
            self._ascend(self.inner * self.config.gap)
            stop = self._certify()
            if stop is not None:
                assert self.best is not None
                return replace(self.best, stop=stop, seconds=self.seconds)
            self.between(self)

    def restore(self, reached: Reached) -> None:
        """Continue where an earlier run was, with the features of its examples from the data set."""
        first, order = self.dataset.first, np.argsort(reached.example)
        ascending = reached.example[order]
        if len(ascending) and ascending[-1] >= self.dataset.n_examples:
            raise InputError(f"example {ascending[-1]} of {self.dataset.n_examples}")
        cuts = np.searchsorted(ascending, first)
        shards = np.flatnonzero(np.diff(cuts))
        local = [ascending[cuts[s] : cuts[s + 1]] - first[s] for s in shards]
        self._publish(self.cache.b)
        self.arrived = list(self.executor.map_shards(fetch_examples, shards.tolist(), local))
        if reached.double:
            self.cache.gram.widen()
        self._insert()
        self.cache.set(reached.b[order])
        self.cache.updates, self.inner, self.searched = reached.updates, reached.inner, reached.searched
        self.version, self.totals, self.history = reached.version, reached.totals, reached.history
        self.begin = time.perf_counter() - reached.seconds

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begin

    def _ended(self) -> bool:
        return self.interrupted() or self.seconds >= self.config.max_seconds

    def _stages(self) -> list[list[tuple[int, SearchPiece]]]:
        """The pieces of all examples in random order, cut into stages."""
        every = self._pieces(FIRST_STAGE)
        order = np.random.default_rng([self.config.seed, 11]).permutation(len(every))
        stages, n = [list[tuple[int, SearchPiece]]()], 0
        for k in order.tolist():
            if n >= FIRST_STAGE * 2 ** (len(stages) - 1):
                stages.append([])
                n = 0
            stages[-1].append(every[k])
            n += every[k][1].end - every[k][1].begin
        return stages

    def _pieces(self, most: int | None = None) -> list[tuple[int, SearchPiece]]:
        nothing = np.empty(0, dtype=np.int64)
        cuts = pieces_of_shards(self.dataset.first, most)
        return [(shard, SearchPiece(begin, end, nothing)) for shard, begin, end in cuts]

    # --- steps

    def _publish(self, columns: Floats) -> Expanded:
        """Make the support expansion what scans use."""
        at = self.cache.support
        nothing = DenseRows(np.empty((0, self.problem.n_features), dtype=np.float32))
        made = Expanded(self.problem, self.function, self.cache.gram.rows.take(at) if len(at) else nothing)
        self.executor.problem = made
        self.version += 1
        self.executor.publish(self.version, columns)
        self.totals.published_bytes += columns.nbytes
        return made

    def _search(self, pieces: list[tuple[int, SearchPiece]]) -> None:
        """Cache the offenders among the examples of these pieces that are not cached."""
        if self._ended():
            return
        self._publish(self.cache.b[self.cache.support])
        known, first = np.sort(self.cache.example), self.dataset.first
        told = [piece._replace(known=within(known, int(first[shard]), piece)) for shard, piece in pieces]
        for found in self.executor.map_shards(search_piece, [shard for shard, _ in pieces], told):
            self.totals.oracle_calls += found.n_searched
            self._take(found.offenders, found.bytes_read, found.gets)
        self._insert()
        self._record(certify=False)

    def _take(self, offenders: Examples, n_bytes: int, gets: int) -> None:
        self.totals.bytes_read += n_bytes
        self.totals.gets += gets
        self.totals.offenders += len(offenders.example)
        if len(offenders.example):
            self.arrived.append(offenders)

    def _insert(self) -> None:
        if self.arrived:
            parts = list(zip(*self.arrived, strict=True))
            rows: Any = join_rows(list(parts[1]))
            example, *others = (np.concatenate(parts[k]) for k in (0, 2, 3, 4, 5))
            self.cache.add(Examples(example, rows, *others))
            self.totals.kept += len(example)
        self.arrived = []

    def _ascend(self, gap: float) -> None:
        begin = time.perf_counter()
        if len(self.cache.b):
            self.cache.ascend(gap, self._ended)
        self.totals.ascent_seconds += time.perf_counter() - begin

    def _certify(self) -> Stop | None:
        """A pass: both bounds at the present b; the reason to stop, or None."""
        at = self.cache.support
        problem = self._publish(self.cache.b[at])
        order = np.argsort(self.cache.example, kind="stable")
        checks = self._checks(order, at)
        self.totals.passes += 1
        self.totals.oracle_calls += self.dataset.n_examples
        bounds = bounds_of_expansion(checks, self.config.C, MULTIPLES)
        found = Certificate(bounds.lower, bounds.upper, self.version, bounds.rounding)
        if self.best is None or found.gap < self.best.certificate.gap:
            self.best = self._reached(problem, at, bounds.multiple, found)
        self._record()
        stop = self._stop(found)
        if stop is None:
            self._learn(checks, order)
        return stop

    def _checks(self, order: Ints, at: Ints) -> list[Checked]:
        """The shards' shares; `order` sorts the cached examples, `at` are those of the support."""
        place = np.full(len(order), -1, dtype=np.int64)
        place[at] = np.arange(len(at))
        return checked_shards(
            self.executor,
            self.dataset,
            self.cache.example[order],
            place[order],
            MULTIPLES,
            self.config.C,
            search=True,
        )

    def _reached(self, problem: Expanded, at: Ints, multiple: float, proven: Certificate) -> ExpansionOutcome:
        order = np.argsort(self.cache.example[at], kind="stable")
        at = at[order]
        beta = self.cache.b[at]
        row, keys, alpha = problem.form.names(beta)
        return ExpansionOutcome(
            Expanded(self.problem, self.function, problem.support.take(order)),
            multiple * beta.ravel(),
            Dual(self.cache.example[at][row], keys, alpha, np.empty(0)),
            proven,
            Stop(Cause.TARGET, ""),
            self.seconds,
            self.history,
            self.totals,
            len(self.cache.b),
            self.cache.gram.nbytes,
            self.cache.updates,
        )

    def _learn(self, checks: list[Checked], order: Ints) -> None:
        """Take exact gradients and further offenders from a pass; widen the matrix where rounding costs too much."""
        exact = np.empty(self.cache.h.shape)
        exact[order] = np.concatenate([check.scores for check in checks])
        largest = self.cache.largest
        free = (largest > 0) & (largest < self.cache.most)
        assert self.best is not None
        allowed = DRIFT * self.config.gap * self.best.certificate.upper
        off = self.cache.correct(self.cache.target - exact)
        for check in checks:
            self._take(check.offenders, check.bytes_read, check.gets)
        stuck = not self.arrived
        self.inner *= 0.25 if stuck else 1.0
        if (stuck or off * float(self.cache.most[free].sum()) > allowed) and not self.cache.gram.is_double:
            self.cache.gram.widen()
        self._insert()

    def _stop(self, proven: Certificate) -> Stop | None:
        if proven.reaches(self.config.gap):
            return Stop(Cause.TARGET, f"gap {proven.gap:.2e} is at most the target {self.config.gap:.2e}")
        if (why := contradiction(proven.lower, proven.upper)) is not None:
            return Stop(Cause.CONTRADICTION, why)
        if self.interrupted():
            return INTERRUPTED
        if self.seconds >= self.config.max_seconds:
            return out_of_time(self.config.max_seconds)
        if self.totals.passes >= self.config.max_passes:
            return Stop(Cause.MAX_PASSES, f"{self.config.max_passes} passes are done")
        return None

    def _record(self, *, certify: bool = True) -> None:
        """A line of the run log."""
        self.totals.rounds += 1
        proven = self.best.certificate if self.best else Certificate(0.0, np.inf, self.version)
        line = Round(
            self.seconds,
            self.version,
            self.dataset.n_shards,
            certify,
            proven.lower,
            proven.upper,
            proven.gap if self.best else np.inf,
            np.inf,
            len(self.cache.b),
            self.cache.gram.nbytes,
            len(self.cache.support),
            self.totals.as_dict(),
        )
        self.history.append(line)
        self.watch(line)


def within(known: Ints, first: int, piece: SearchPiece) -> Ints:
    """The known examples of a piece, by their numbers in the shard; `known` ascends."""
    begin, end = np.searchsorted(known, [first + piece.begin, first + piece.end])
    found: Ints = known[begin:end] - first
    return found
