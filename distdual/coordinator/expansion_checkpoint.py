"""Checkpoints of runs with an exact kernel: the cached examples and their coefficients.

checkpoint/NUMBER-expansion.npz   the numbers of cached examples, and a row of coefficients for each
checkpoint/NUMBER-state.json      totals, the run log so far, how many searches are done

Features and the kernel matrix follow from the data set, which a resumed run reads again; bounds come from its next
pass.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from distdual.coordinator.checkpoint import Checkpoint, zipped
from distdual.coordinator.checkpoint_schema import EXPANSION_STATE
from distdual.coordinator.expansion_trainer import ExpansionTrainer, Reached
from distdual.coordinator.row_arrays import Arrays
from distdual.data.storage.npy_io import unzip
from distdual.errors import InputError
from distdual.json_floats import parsed_json, with_infinity, without_infinity
from distdual.report.round_log import Round, Totals
from distdual.schema import array, below


@dataclass(slots=True)
class ExpansionCheckpoint(Checkpoint):
    reached: Reached | None = None  # what was read and is not yet restored

    def _contents(self, trainer: ExpansionTrainer) -> tuple[Iterator[tuple[str, bytes]], int]:
        arrays = {"example": trainer.cache.example, "b": trainer.cache.b}
        values = {
            "searched": trainer.searched,
            "version": trainer.version,
            "updates": trainer.cache.updates,
            "inner": trainer.inner,
            "seconds": trainer.seconds,
            "double": trainer.cache.gram.is_double,
            "totals": trainer.totals.as_dict(),
            "history": [asdict(line) for line in trainer.history],
        }
        state = json.dumps(without_infinity(values)).encode()
        return iter([("expansion.npz", zipped(arrays)), ("state.json", state)]), 0

    def _summary(self, trainer: ExpansionTrainer) -> dict[str, Any]:
        line, best = trainer.history[-1], trainer.best
        return {
            "lower": line.lower,
            "upper": best.certificate.upper if best else None,
            "passes": trainer.totals.passes,
            "rounds": trainer.totals.rounds,
            "cache_rows": line.cache_rows,
            "seconds": trainer.seconds,
        }

    def _begun(self, trainer: ExpansionTrainer) -> bool:
        return trainer.totals.rounds > 0

    def _parsed(self, found: dict[str, bytes], head: str, *, more_data: bool) -> None:
        arrays = unzip(found[f"{head}-expansion.npz"])
        values = with_infinity(parsed_json(found[f"{head}-state.json"]))
        with self.naming_damage():
            self.reached = reached_of(arrays, values, more_data=more_data)

    def resume(self, trainer: ExpansionTrainer) -> None:
        """Give a fresh trainer what was read."""
        assert self.reached is not None
        with self.naming_damage():
            trainer.restore(self.reached)
        self.reached = None


def reached_of(arrays: Arrays, values: dict[str, Any], *, more_data: bool) -> Reached:
    """The state of a run, checked as far as that is possible without the data set."""
    EXPANSION_STATE("state.json", values)
    if set(arrays) != {"example", "b"}:
        raise InputError(f"expansion.npz with the arrays {', '.join(sorted(arrays))}")
    example = array("example", arrays["example"], np.int64, (None,), low=0)
    if len(np.unique(example)) != len(example):
        raise InputError("example: a number is there twice")
    below("example", example, np.iinfo(np.int64).max)
    return Reached(
        example,
        array("b", arrays["b"], np.float64, (len(example), None)),
        0 if more_data else values["searched"],
        values["version"],
        values["updates"],
        values["inner"],
        values["seconds"],
        values["double"],
        Totals(**values["totals"]),
        [Round(**line) for line in values["history"]],
    )
