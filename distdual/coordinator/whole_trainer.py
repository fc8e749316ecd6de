"""The training loop for losses over the whole data set: scores of all examples, then one row (Joachims 2005).

A pass has two phases. Workers send the scores of their examples, from which the coordinator finds the offender, and
with it P(w); then they sum up the rows of their examples with its coefficients.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distdual.certificate.bounds import ShardLoss
from distdual.cluster.whole_oracle import WholeOracle, WholeScores
from distdual.config import SolverConfig
from distdual.coordinator.async_trainer import TRAINERS
from distdual.coordinator.schedule import Pass
from distdual.coordinator.trainer import Trainer
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows, Floats, as_dense
from distdual.problems.base import Constraints, Problem
from distdual.problems.multivariate.problem import Multivariate, Offender
from distdual.scan.loss_error import loss_error
from distdual.scan.scan import Scan, ShardReport
from distdual.scan.whole_data import Cost
from distdual.solver.simplex_qp import best_alpha

STEP = 0.1  # of the way from the best w to the cached optimum: one row describes P only near the w it was found at


def trainer_class(problem: Problem, mode: str) -> type[Trainer]:
    """The loop that trains a problem."""
    return WholeTrainer if isinstance(problem, Multivariate) else TRAINERS[mode]


def check_whole_settings(config: SolverConfig, kind: str) -> None:
    """Refuse what a loop that scans all examples for each constraint cannot do."""
    plain = SolverConfig()
    names = [name for name in ("mode", "stream", "process", "average") if getattr(config, name) != getattr(plain, name)]
    names += ["schedule"] * (config.schedule not in (plain.schedule, "one-pass"))
    if names:
        told = f"solver.{names[0]} = {getattr(config, names[0])!r}"
        raise InputError(
            f"{told} is not possible with a {kind} problem, which scans all examples at once; leave it out"
        )


@dataclass(slots=True)
class WholeTrainer(Trainer):
    """One slack for all examples: the constraint cache has one group, of example 0."""

    def __post_init__(self) -> None:
        check_whole_settings(self.config, self.problem.kind)
        if self.config.slack not in ("auto", "all") or self.config.offender_cache or self.config.start:
            raise InputError(
                f'a {self.problem.kind} problem has one slack for all examples: leave solver.slack at "auto" or "all", '
                "and solver.offender_cache and solver.start out"
            )
        self.config = replace(self.config, slack="example")  # the one example is the whole data set
        Trainer.__post_init__(self)

    def _carry_out(self, plan: Pass) -> None:
        w = self._query(plan)
        found, offender = self._score(w)
        losses = self._losses(found, offender, w)
        done = self._gap() <= self.config.gap
        if not done:
            report = self._report(found, offender, w)
            scan = Scan(0, report.version, self.solver.cache.known(0, 1))
            with self.ascender.timed():
                self.state.totals.kept += len(self.partition.insert(self.solver, [report], [scan]))
                self._solve_cached(plan)
            self.ascender.bound()
        self._end_pass(losses, w)
        self.recorder.record(self.dataset.n_shards, certify=True)
        if not self.solver.should_stop():
            self.between(self)

    def _solve_cached(self, plan: Pass) -> None:
        """Solve the cached problem: exactly, unless the prior bends w."""
        solver = self.solver
        if not solver.prior.plain:
            solver.ascend(plan.last)
            return
        cache, rows = solver.cache, self._rows()
        cache.alpha.view[:] = best_alpha(rows, cache.margin.view, cache.alpha.view, solver.C)

    def _rows(self) -> Floats:
        """The cached rows as a matrix."""
        rows: Any = self.solver.cache.rows
        return as_dense(rows.view, self.solver.cache.n_weights).values

    def change_config(self, config: SolverConfig) -> None:
        self.config = replace(config, slack="example")
        self.partition.tell(f"C is {config.C:g}")
        self.state.forget_bounds()
        with self.ascender.timed():
            self.solver.change_capacity(config.C)
            if len(self.solver.cache) and self.solver.prior.plain:
                cache = self.solver.cache
                cache.alpha.view[:] = best_alpha(self._rows(), cache.margin.view, cache.alpha.view, config.C)
            self.solver.bound()
        self.state.best_w = self.solver.candidate()

    def _certify_last(self) -> None:
        w = self.solver.candidate(averaged=self.config.average)
        self._losses(*self._score(w), w)
        self.recorder.record(self.dataset.n_shards, certify=True)

    def _query(self, plan: Pass) -> Floats:  # noqa: ARG002 - all passes certify
        w = self.solver.candidate()
        return w if self.state.best_version < 0 else self.state.best_w + STEP * (w - self.state.best_w)

    @property
    def _oracle(self) -> WholeOracle:
        problem: Any = self.problem
        assert isinstance(problem, Multivariate)
        return WholeOracle(self.executor, problem, self.dataset.n_shards, self.fold)

    def _score(self, w: Floats) -> tuple[WholeScores, Offender]:
        self.scanner.publish(w)
        begin, oracle = time.perf_counter(), self._oracle
        found = oracle.scores()
        self._count(begin, [each.cost for each in found.shards])
        self.state.totals.oracle_calls += found.n
        self.state.totals.wire_bytes += found.row(0).nbytes
        return found, oracle.offender(found)

    def _losses(self, found: WholeScores, offender: Offender, w: Floats) -> list[ShardLoss]:
        """Certify P(w). The loss is that of the first shard, as all examples have one slack."""
        version = self.state.version - 1
        size = found.magnitude(self._oracle.problem)
        self.solver.meet(size)
        error = loss_error(size, np.ones(1), offender.slack)
        losses = [ShardLoss(0, version, offender.slack, True, *error)]
        losses += [ShardLoss(shard, version, 0.0, True) for shard in range(1, self.dataset.n_shards)]
        self._certify(losses, w, version)
        return losses

    def _report(self, found: WholeScores, offender: Offender, w: Floats) -> ShardReport:
        """The constraint as an offender of example 0."""
        begin = time.perf_counter()
        rows, costs = self._oracle.rows([offender], found)
        self._count(begin, costs)
        self.state.totals.offenders += 1
        self.state.totals.wire_bytes += len(costs) * rows.nbytes + offender.coefficient.nbytes
        key = self._oracle.problem.key_of(w)
        one = Constraints(np.zeros(1, dtype=np.int64), np.ones(1), np.array([offender.margin]), DenseRows(rows), key)
        seconds = sum(cost.compute_seconds for cost in costs)
        return ShardReport(
            0, self.state.version - 1, True, found.n, offender.slack, one, offender.slack, 0, 0.0, seconds
        )

    def _count(self, begin: float, costs: list[Cost]) -> None:
        totals = self.state.totals
        totals.rounds += 1
        totals.wait_seconds += time.perf_counter() - begin
        totals.bytes_read += sum(cost.bytes_read for cost in costs)
        totals.gets += sum(cost.gets for cost in costs)
        totals.read_seconds += sum(cost.read_seconds for cost in costs)
        totals.scan_seconds += sum(cost.compute_seconds for cost in costs)
