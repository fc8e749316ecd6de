"""A path of C: one run that continues from each C to the next with its cache, its α and its shards in memory.

Nothing is rebuilt between two points. α is scaled with C and stays feasible, and the cached constraints belong to the
same examples, so a new C begins with an ascent on them; a scan then finds what is missing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from distdual.config import SolverConfig
from distdual.coordinator.outcome import Outcome
from distdual.coordinator.trainer import Trainer


def follow(trainer: Trainer, values: Sequence[float], config: SolverConfig) -> Iterator[Outcome]:
    """Train at each C in turn. An outcome is valid until the next is requested: they share solver, totals and history.

    `config.max_passes` and `config.max_seconds` limit each point by itself.
    """
    for C in values:
        passes, seconds = trainer.state.totals.passes, trainer.state.seconds
        limits = {"max_passes": passes + config.max_passes, "max_seconds": seconds + config.max_seconds}
        trainer.change_config(replace(config, C=C, **limits))  # type: ignore[arg-type]
        yield trainer.run()
