"""The forecast of the time left agrees with the past, or there is none."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdual.report.forecast import (
    closing_gaps,
    left_words,
    passes_left,
    passes_words,
    recent_rate,
    recent_workers,
    time_left,
)


@given(st.floats(0.05, 5.0), st.integers(4, 60), st.floats(1.5, 1e4))
def test_the_forecast_is_exact_for_an_exponentially_closing_gap(pace: float, n: int, further: float) -> None:
    seconds = [float(at) for at in range(n)]
    gaps: list[float | None] = [math.exp(-pace * at) for at in range(n)]
    assert gaps[-1] is not None
    found = time_left(seconds, gaps, gaps[-1] / further)
    assert found == pytest.approx((math.log(further) / pace,) * 2, rel=1e-6)


def test_there_is_no_forecast_without_enough_agreeing_gaps() -> None:
    assert time_left([1.0, 2.0, 3.0], [None, 0.5, 0.4], 0.1) is None  # too few proven gaps
    assert time_left([1.0, 2.0, 3.0, 4.0], [0.4, 0.3, 0.2, 0.1], 0.1) is None  # done
    stalls: list[float | None] = [10.0**-at for at in range(9)]
    stalls += [1e-8 * (1 - 1e-3 * at) for at in range(1, 7)]
    assert time_left([float(at) for at in range(15)], stalls, 1e-12) is None  # paces that disagree
    assert left_words(None) == ""


def test_there_is_no_forecast_for_a_stalled_gap() -> None:
    seconds, gaps = [1.0, 2.0, 3.0, 4.0], [0.8, 0.4, 0.2, 0.1]
    assert time_left(seconds, gaps, 0.05) == pytest.approx((1.0, 1.0))
    assert time_left([*seconds, 4.5], [*gaps, 0.1], 0.05) == pytest.approx((0.5, 0.5))
    assert time_left([*seconds, 9.0], [*gaps, 0.1], 0.05) is None


def test_restarted_bounds_restart_the_forecast() -> None:
    assert closing_gaps([1, 2, 3, 4, 5], [0.5, 0.1, 0.7, 0.7, 0.6]) == [(3, 0.7), (5, 0.6)]
    assert closing_gaps([1, 2, 3], [0.5, None, 0.7]) == [(3, 0.7)]


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


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ((0.2, 0.3), "about 1 s left"),
        ((7.3, 12.0), "about 7 to 10 s left"),
        ((80.0, 100.0), "about 80 s to 2 min left"),
        ((40 * 60.0, 43 * 60.0), "about 40 to 45 min left"),
        ((3e5, 3e5), "about 80 h left"),
    ],
)
def test_forecasts_have_no_spurious_digits(found: tuple[float, float], words: str) -> None:
    assert left_words(found) == words


def test_two_certified_passes_are_enough_to_forecast_the_rest() -> None:
    assert passes_left([1], [0.1], 1e-3) is None
    assert passes_left([1, 3], [0.1, 0.01], 1e-3) == (2, 2)
    assert passes_left([1, 2], [0.1, 0.0101], 0.01) == (1, 1)  # never none while the gap is above the target
    assert passes_left([1, 2], [0.1, 1e-3], 1e-3) is None


@pytest.mark.parametrize(
    ("found", "words"), [(None, ""), ((1, 1), "about 1 pass left"), ((2, 4), "about 2 to 4 passes left")]
)
def test_passes_left_in_words(found: tuple[int, int] | None, words: str) -> None:
    assert passes_words(found) == words
