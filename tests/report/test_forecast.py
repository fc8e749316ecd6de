"""The forecast of the passes left agrees with recorded runs, or there is none."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.report.forecast import closing_gaps, passes_left, passes_words, recent_rate, recent_workers

# Passes and proven gaps of rounds in which one of them changed. The forecast was designed without those held out.
RUNS: dict[str, Any] = json.loads((Path(__file__).parent / "recorded_runs.json").read_text())


def forecasts(run: Any) -> list[tuple[tuple[int, int], int]]:
    """What is forecast at each round of a recorded run, and the passes that were left."""
    passes, gaps = run["passes"], run["gaps"]
    found = [passes_left(passes[:at], gaps[:at], run["target"]) for at in range(1, len(passes))]
    return [(each, passes[-1] - now) for each, now in zip(found, passes[:-1], strict=True) if each is not None]


@pytest.mark.parametrize("name", RUNS)
def test_forecasts_of_recorded_runs_are_within_a_factor_of_2_or_one_pass(name: str) -> None:
    for (fewest, most), left in forecasts(RUNS[name]):
        assert min(fewest - 1, fewest / 2) <= left <= max(most + 1, 2 * most), (fewest, most, left)


def test_long_recorded_runs_have_forecasts() -> None:
    long = [run for run in RUNS.values() if run["passes"][-1] >= 10]
    shares = [len(forecasts(run)) / len(run["passes"]) for run in long]
    assert len(shares) >= 8
    assert sorted(shares)[len(shares) // 2] >= 0.4


@given(st.floats(0.3, 3.0), st.floats(1.0, 1.5), st.integers(6, 40), st.floats(1.5, 1e4))
def test_the_forecast_fits_a_power_of_the_passes(pace: float, power: float, n: int, further: float) -> None:
    passes = list(range(1, n + 1))
    gaps: list[float | None] = [math.exp(-pace * count**power) for count in passes]
    assert gaps[-1] is not None
    left = ((pace * n**power + math.log(further)) / pace) ** (1 / power) - n
    found = passes_left(passes, gaps, gaps[-1] / further)
    if gaps[-1] > 0.1:
        assert found is None
    else:
        assert found is not None
        assert found[0] / 1.5 - 1 <= left <= 1.5 * found[1] + 1


def test_there_is_no_forecast_while_it_cannot_be_known() -> None:
    steady: list[float | None] = [0.1, 0.01, 1e-3]
    assert passes_left([1, 2, 3], steady, 1e-6) == (3, 4)
    assert passes_left([1, 2, 3, 4], [*steady, 1e-3], 1e-6) == (2, 3)  # the fourth pass may be under way
    assert passes_left([1, 2, 3, 5], [*steady, 1e-3], 1e-6) is None  # stalled
    assert passes_left([1, 2], [0.1, 0.01], 1e-6) is None  # too few proven gaps
    assert passes_left([1, 2, 3], steady, 1e-3) is None  # done
    assert passes_left([1, 2, 3], [0.9, 0.5, 0.2], 1e-6) is None  # too large a gap
    assert passes_left([1, 2, 3, 4], [0.9, 0.8, 0.7, 1e-4], 1e-6) is None  # a sudden fall
    assert passes_left([2, 4, 5, 6], [1e-3, 9e-4, 8e-4, 7e-4], 1e-6) is None  # crawling


def test_restarted_bounds_restart_the_forecast() -> None:
    assert closing_gaps([1, 2, 3, 4, 5], [0.5, 0.1, 0.7, 0.7, 0.6]) == (2, [(3, 0.7), (5, 0.6)])
    assert closing_gaps([1, 2, 3], [0.5, None, 0.7]) == (1, [(3, 0.7)])
    assert closing_gaps([1, 2, 2, 3], [None, 0.5, 0.4, 0.4]) == (0, [(2, 0.4)])
    again = passes_left([9, 10, 11, 12], [1e-6, 0.1, 0.01, 1e-3], 1e-6)
    assert again == passes_left([1, 2, 3], [0.1, 0.01, 1e-3], 1e-6)


def test_throughput_is_recent() -> None:
    seconds = [float(at) for at in range(1, 101)]
    calls = [10.0 * at if at <= 50 else 500 + 40.0 * (at - 50) for at in range(1, 101)]
    assert recent_rate(seconds, calls) == pytest.approx(40.0)
    assert recent_rate([0.5], [100]) == 200.0
    assert recent_rate([0.0], [0]) == 0.0


def test_workers_are_recent() -> None:
    seconds = [float(at) for at in range(1, 101)]
    names = [("a", "lost")] * 80 + [("a",), ("b",), (), ()] * 5
    assert recent_workers(seconds, names) == 2
    assert recent_workers(seconds[:85], names[:85]) == 3
    assert recent_workers([1.0, 50.0], [("a", "b"), ()]) == 2  # none since: the last known workers
    assert recent_workers([1.0], [()]) == 0


def test_passes_left_in_words() -> None:
    assert passes_words(None) == ""
    assert passes_words((2, 3)) == "about 2 to 3 passes left"
