"""The training loop for losses over the whole data set: some rows of all examples a pass (Joachims 2005).

One row describes P only near the w it was found at, and the optimum of the cached rows jumps from side to side. So a
pass looks at weights on the line from the best w to that optimum, for pairs at several, whose rows workers find
together: the best of them is a line search, and all rows are cached (Franc and Sonnenburg's optimised cutting planes).
"""

import secrets
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from distdual.certificate.bounds import ShardLoss
from distdual.cluster.whole_oracle import WholeFound, WholeOracle, oracle_of
from distdual.config import SolverConfig
from distdual.coordinator.async_trainer import TRAINERS
from distdual.coordinator.schedule import Pass
from distdual.coordinator.trainer import Trainer
from distdual.errors import InputError
from distdual.kernels.rows import DenseRows, Floats, as_dense
from distdual.problems.base import Constraints, Problem
from distdual.problems.multivariate.problem import Multivariate
from distdual.scan.loss_error import loss_error
from distdual.scan.scan import Scan, ShardReport
from distdual.scan.whole_data import Cost, Participants
from distdual.solver.simplex_qp import best_alpha

PAIR_STEPS = (0.05, 0.15, 0.4, 1.0)  # of the way from the best w to the cached optimum
SCORE_STEPS = (0.1,)  # for losses of outputs: further ones on the same line save few passes, and each takes as long


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

    run_name: str = field(init=False, default_factory=partial(secrets.token_hex, 8))

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
        weights = self._line()
        found = self._find(weights)
        losses = self._losses(found, weights)
        done = self._gap() <= self.config.gap
        if not done:
            reports = self._reports(found, weights)
            scan = Scan(0, reports[0].version, self.solver.cache.known(0, 1))
            with self.ascender.timed():
                kept = self.partition.insert(self.solver, reports, [scan] * len(reports))
                self.state.totals.kept += len(kept)
                self._solve_cached(plan)
            self.ascender.bound()
        self._end_pass(losses, self.state.best_w)
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
        weights = self.solver.candidate(averaged=self.config.average)[np.newaxis]
        self._losses(self._find(weights), weights)
        self.recorder.record(self.dataset.n_shards, certify=True)

    def _line(self) -> Floats:
        """The weights to find rows at."""
        w, best = self.solver.candidate(), self.state.best_w
        if self.state.best_version < 0:
            return w[np.newaxis]
        steps = PAIR_STEPS if self._whole.loss == "auc" else SCORE_STEPS
        found: Floats = best + np.array(steps)[:, np.newaxis] * (w - best)
        return found

    @property
    def _whole(self) -> Multivariate:
        problem: Any = self.problem
        assert isinstance(problem, Multivariate)
        return problem

    @property
    def _oracle(self) -> WholeOracle:
        problem = self._whole
        return oracle_of(problem)(
            self.executor,
            problem,
            self.dataset.n_shards,
            self.scanner.publish,
            Participants(self.fold, run=self.run_name),
        )

    def _find(self, weights: Floats) -> WholeFound:
        begin = time.perf_counter()
        found = self._oracle.find(weights)
        self._count(begin, found.costs)
        self.state.totals.oracle_calls += found.n
        return found

    def _losses(self, found: WholeFound, weights: Floats) -> list[ShardLoss]:
        """Certify P(w) at each of the weights; return the losses at the best.

        The loss is that of the first shard, as all examples have one slack.
        """
        version, best = self.state.version - 1, list[ShardLoss]()
        self.solver.meet(found.magnitude)
        for w, slack in zip(weights, found.slack.tolist(), strict=True):
            error = loss_error(found.magnitude, np.ones(1), slack)
            losses = [ShardLoss(0, version, slack, True, *error)]
            losses += [ShardLoss(shard, version, 0.0, True) for shard in range(1, self.dataset.n_shards)]
            known = self.state.best_upper
            self._certify(losses, w, version)
            best = losses if not best or self.state.best_upper < known else best
        return best

    def _reports(self, found: WholeFound, weights: Floats) -> list[ShardReport]:
        """The constraints as offenders of example 0."""
        begin = time.perf_counter()
        rows, costs = found.rows()
        self._count(begin, costs)
        self.state.totals.offenders += len(rows)
        size, one, none = np.ones(1), np.zeros(1, dtype=np.int64), (0, 0.0, 0.0)
        made = []
        for w, slack, margin, row in zip(weights, found.slack.tolist(), found.margin, rows, strict=True):
            key = self._whole.key_of(w)
            constraint = Constraints(one, size, np.array([margin]), DenseRows(row[np.newaxis]), key)
            made.append(ShardReport(0, self.state.version - 1, True, found.n, slack, constraint, slack, *none))
        return made

    def _count(self, begin: float, phases: list[list[Cost]]) -> None:
        totals = self.state.totals
        totals.rounds += 1
        totals.wait_seconds += time.perf_counter() - begin
        for cost in (cost for costs in phases for cost in costs):
            totals.bytes_read += cost.bytes_read
            totals.gets += cost.gets
            totals.read_seconds += cost.read_seconds
            totals.scan_seconds += cost.compute_seconds
            totals.wire_bytes += cost.wire_bytes
