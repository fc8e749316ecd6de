"""Advice after a run that proved too little."""

import pytest

from distdual.cli.options import advice
from distdual.coordinator.schedule import Cause


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (Cause.INTERRUPTED, "the bounds hold; solver.start=m continues"),
        (Cause.ONE_PASS, "solver.schedule=slope makes more passes"),
        (Cause.MAX_PASSES, "raise solver.max_passes or solver.gap"),
        (Cause.VALIDATION, "the model is the best proven so far; eval.patience=0 trains to the gap"),
        (Cause.CONTRADICTION, "correct what the sentence above names"),
        (Cause.MAX_SECONDS, "raise solver.max_seconds or solver.gap"),
    ],
)
def test_the_advice_follows_the_cause(cause, expected):
    certificate = {"estimate": None, "stopped_by": cause.value, "reason": "", "model": "m"}
    assert advice(certificate).startswith(expected)
