"""The state of a run between two rounds: its best certified weights, its costs and its position in the pass."""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from distdual.certificate.bounds import Certificate, ShardLoss
from distdual.coordinator.pass_underway import PassUnderway
from distdual.kernels.rounding import Enclosed
from distdual.kernels.rows import Floats
from distdual.report.round_log import Round, Totals
from distdual.solver.gap import relative_gap
from distdual.solver.solver import Solver


@dataclass(slots=True)
class RunState:
    """A value: `Trainer` updates it through the methods below, `snapshot` saves and restores it."""

    best_w: Floats
    best_upper: float = np.inf
    best_rounding: float = 0.0  # the part of `best_upper` that covers it
    best_relaxed: float = 0.0  # the part of `best_upper` that inference leaves open
    best_found: float = np.inf  # R(w) + C Σ loss of the outputs that inference found, where it leaves something open
    best_version: int = -1  # −1 until an upper bound is certified
    best_estimate: float = np.inf  # of P(w), where inference is inexact
    estimate: float = np.inf  # of the gap, from losses at different weights
    lift: float = np.inf  # by how much the last pass at one w raised the cached problem's loss
    version: int = 0  # of the weights published next
    best_scan: tuple[Floats, list[ShardLoss]] | None = None  # the weights and losses behind `best_upper`
    refuted: str | None = None  # what proves that the oracle is not exact
    underway: PassUnderway | None = None
    totals: Totals = field(default_factory=Totals)
    history: list[Round] = field(default_factory=list)
    begin: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begin

    def certificate(self, solver: Solver) -> Certificate:
        """The best bounds so far."""
        rounding = solver.rounding + self.best_rounding
        return Certificate(solver.lower, self.best_upper, self.best_version, rounding)

    def gap(self, lower: float) -> float:
        """The proven gap; infinity before the first certificate."""
        return Certificate(lower, self.best_upper, 0).gap if self.best_version >= 0 else np.inf

    def closable_gap(self, lower: float) -> float:
        """The gap that training can close; it may close while inference leaves a part of the proven one open."""
        return relative_gap(self.best_found, lower) if np.isfinite(self.best_found) else np.inf

    def inexact_gap(self, lower: float) -> float:
        """The estimate that replaces a proven gap where inference is inexact; it may be negative."""
        return relative_gap(self.best_estimate, lower) if np.isfinite(self.best_estimate) else np.inf

    def offer_upper(self, upper: Enclosed, version: int, w: Floats, relaxed: float = 0.0) -> bool:
        """Keep the weights if their certified upper bound is the lowest so far; `relaxed` is the open part of it."""
        if relaxed > 0:
            self.best_found = min(self.best_found, upper.value - relaxed)
        if upper.high >= self.best_upper:
            return False
        self.best_upper, self.best_version, self.best_w = upper.high, version, w.copy()
        self.best_rounding, self.best_relaxed = upper.high - upper.value, relaxed
        return True

    def offer_estimate(self, estimate: float, w: Floats) -> None:
        """Keep the weights if their estimate of P(w) is the lowest so far; inexact inference bounds nothing."""
        if estimate < self.best_estimate:
            self.best_estimate, self.best_w = estimate, w.copy()

    def next_version(self) -> int:
        version, self.version = self.version, self.version + 1
        return version

    def start_problem(self, w: Floats, upper: float) -> None:
        """Begin another convex problem, of which `upper` ≥ P(w) is proven."""
        self.best_w, self.best_upper, self.best_version, self.best_rounding = w, upper, self.version, 0.0
        self.best_relaxed, self.best_found, self.best_scan = 0.0, np.inf, None
        self.estimate = self.lift = np.inf

    def forget_bounds(self) -> None:
        """Drop what was proven: P changes with C. Weights, costs and history stay."""
        self.best_upper, self.best_version, self.best_estimate = np.inf, -1, np.inf
        self.best_relaxed, self.best_found, self.best_scan = 0.0, np.inf, None
        self.estimate = self.lift = np.inf

    def continue_log(self, earlier: "RunState") -> None:
        """Share the clock and the round log of an earlier restart."""
        self.begin, self.history = earlier.begin, earlier.history

    def packed(self, underway: PassUnderway | None) -> dict[str, Any]:
        """All but `best_w` as values that JSON can hold, apart from infinities."""
        bounds = {
            "best_upper": self.best_upper,
            "best_rounding": self.best_rounding,
            "best_relaxed": self.best_relaxed,
            "best_found": self.best_found,
            "best_version": self.best_version,
            "estimate": self.estimate,
            "lift": self.lift,
            "best_estimate": self.best_estimate,
        }
        return {
            "totals": self.totals.as_dict(),
            "bounds": bounds,
            "version": self.version,
            "seconds": self.seconds,
            "history": [asdict(line) for line in self.history],
            "underway": underway.without_weights() if underway else None,
        }

    def restore_log(self, values: dict[str, Any], w: Floats) -> None:
        """Take over costs, history and clock; bounds stay unknown, as after an append to the data set."""
        self.best_w = w
        self.totals = Totals(**values["totals"])
        self.version = values["version"]
        self.begin = time.perf_counter() - values["seconds"]
        self.history = [Round(**line) for line in values["history"]]

    def restore_bounds(self, bounds: dict[str, Any], best_w: Floats, underway: PassUnderway | None) -> None:
        self.best_upper, self.best_version = bounds["best_upper"], bounds["best_version"]
        self.best_rounding, self.best_relaxed = bounds["best_rounding"], bounds.get("best_relaxed", 0.0)
        self.best_found = bounds.get("best_found", np.inf)
        self.best_estimate, self.estimate, self.lift = bounds["best_estimate"], bounds["estimate"], bounds["lift"]
        self.best_w, self.underway = best_w, underway
