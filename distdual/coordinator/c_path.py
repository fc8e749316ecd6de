"""How does one run go on with another C? With its cache, its α and its shards in memory: a path of C hot all along.

Nothing is rebuilt between two points. α is scaled with C and stays feasible, the cached constraints are those of the
same examples, so the first thing to do at a new C is to ascend on them; a scan then says what is missing.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from distdual.coordinator.schedule import MANY, PATIENCE, SLACK
from distdual.coordinator.trainer import ROUND_WORK, Outcome, Trainer
from distdual.solver.ascent_plan import Ascent


def follow(trainer: Trainer, values: Sequence[float]) -> Iterator[Outcome]:
    """Train at each C in turn. An outcome is good until the next is asked for: they share solver, totals and history.

    solver.max_passes and solver.max_seconds are what each point may take.
    """
    asked = trainer.config
    for C in values:
        seconds = time.perf_counter() - trainer.begin
        trainer.config = replace(
            asked, C=C, max_passes=trainer.totals.passes + asked.max_passes, max_seconds=seconds + asked.max_seconds
        )
        move(trainer, C)
        yield trainer.run()


def move(trainer: Trainer, C: float) -> None:
    """Make C that of the run: what was proven for the old one is forgotten, α is not."""
    trainer.grouping.tell(f"C is {C:g}")
    trainer.best_upper, trainer.best_version, trainer.best_estimate = np.inf, -1, np.inf
    trainer.estimate = trainer.shown = np.inf
    begin = time.perf_counter()
    trainer.solver.change_capacity(C)
    if len(trainer.solver.cache):
        scan = trainer.problem.oracle_work * trainer.dataset.n_examples + ROUND_WORK
        plan = Ascent(SLACK * trainer.config.gap, MANY, patience=PATIENCE)
        trainer.estimate = trainer.solver.ascend(plan, spent=scan)
        trainer.solver.bound()
    trainer.best_w = trainer.solver.candidate()
    trainer.totals.ascent_seconds += time.perf_counter() - begin
