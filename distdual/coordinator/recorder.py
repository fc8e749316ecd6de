"""The run log: one line for each round, with the bounds, the costs and what happened since the last line."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from distdual.coordinator.run_state import RunState
from distdual.coordinator.scanner import Scanner
from distdual.coordinator.slack_partition import SlackPartition
from distdual.kernels.compile_cache import watch as compilations
from distdual.report.number_format import duration
from distdual.report.round_log import Round
from distdual.solver.solver import Solver

log = logging.getLogger(__name__)

LEAST_COMPILATION = 1.0  # seconds that are worth a word


@dataclass(slots=True)
class Recorder:
    """Writes lines into the run's history, the log and `watch`."""

    state: RunState
    solver: Solver
    partition: SlackPartition
    scanner: Scanner
    watch: Callable[[Round], None]
    compiled: float = field(default_factory=lambda: compilations.seconds)  # seconds told so far

    def record(self, n_shards: int, *, certify: bool) -> None:
        """Write a line about a round that scanned `n_shards` shards."""
        self._write(self._line(n_shards, certify=certify), n_shards)

    def _write(self, line: Round, n_shards: int) -> None:
        self.state.history.append(line)
        log.info(
            "round=%d version=%d lower=%.6g upper=%.6g gap=%.2e rows=%d scanned=%d/%d solve=%.1fs scan=%.1fs",
            self.state.totals.rounds,
            line.version,
            line.lower,
            line.upper,
            line.gap,
            line.cache_rows,
            n_shards,
            len(self.scanner.first) - 1,
            self.state.totals.ascent_seconds,
            self.state.totals.wait_seconds,
        )
        self.watch(line)

    def score(self, scores: dict[str, float], version: int) -> None:
        """Write a line about an evaluation of the weights of `version`."""
        said = ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
        self.partition.events.append(f"evaluation of weights v{version}: {said}")
        self._write(replace(self._line(0, certify=False), scores=scores, scored=version), 0)

    def note(self, event: str) -> None:
        """Write a line about an event between two passes."""
        self.partition.events.append(event)
        self.record(0, certify=False)

    def _line(self, n_shards: int, *, certify: bool) -> Round:
        state, solver = self.state, self.solver
        state.totals.coalesced = self.partition.coalesced
        since = self.scanner.take_since()
        return Round(
            state.seconds,
            state.version,
            n_shards,
            certify,
            solver.lower,
            state.best_upper,
            state.gap(solver.lower),
            state.estimate,
            len(solver.cache),
            solver.cache.nbytes,
            solver.n_support,
            state.totals.as_dict(),
            str(self.partition.slack),
            [*self._compilations(), *self.partition.take_events(), *self._faults()],
            since.staleness,
            since.workers,
        )

    def _compilations(self) -> list[str]:
        """What this process compiled since it was last told, which explains a slow first pass."""
        spent = compilations.seconds - self.compiled
        if spent < LEAST_COMPILATION:
            return []
        self.compiled += spent
        return [f"kernels were compiled for {duration(spent)}, once per installation"]

    def _faults(self) -> list[str]:
        """Faults on the cluster since the last line, all of them recovered."""
        executor = self.scanner.executor
        events, executor.events = executor.events, []
        return events
