"""The outcome of a run: the best certified weights, the bounds, and the costs."""

from dataclasses import dataclass

import numpy as np

from distdual.certificate.bounds import Certificate
from distdual.coordinator.schedule import Stop
from distdual.coordinator.slack_partition import SlackPartition
from distdual.kernels.rows import Floats
from distdual.report.round_log import Round, Totals
from distdual.solver.solver import Solver


@dataclass(slots=True)
class Outcome:
    """The result of a run, finished or interrupted."""

    w: Floats
    certificate: Certificate
    stop: Stop
    seconds: float
    history: list[Round]
    totals: Totals
    solver: Solver
    partition: SlackPartition
    relaxed: float = 0.0  # the part of `upper` that inference leaves open
    estimate: float = np.inf  # of P(w), where inexact inference proves no `upper`; else infinity
