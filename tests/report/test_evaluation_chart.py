"""The chart of scores, and the words about what is trained."""

import re

from distdual.report.evaluation_chart import evaluations
from distdual.report.page import RunView, page
from distdual.report.run_log import About, trained_words
from tests.report.sample import asynchronous


def test_accuracy_is_drawn_as_an_error_on_an_axis_that_fits() -> None:
    first, second, *rest = asynchronous()
    lines = [{**first, "scores": {"accuracy": 0.927}}, {**second, "scores": {"accuracy": 0.93}}, *rest]
    drawn = evaluations(lines)
    assert ">error, %</text>" in drawn
    ticks = [float(tick) for tick in re.findall(r'text-anchor="end">([^<]*)</text>', drawn)]
    assert 6 < min(ticks) <= 7
    assert 7.3 <= max(ticks) < 8


def test_the_page_says_what_is_trained() -> None:
    config = {"problem": {"kind": "binary"}, "solver": {"C": 0.01}, "data": {"url": "s3://a/<b>"}}
    trained = About(config, 60_000, 12, None, 784).trained
    assert trained == "binary · C = 0.01 · s3://a/<b> · 60,000 × 784 in 12 shards"
    assert "s3://a/&lt;b&gt; · 60,000 × 784" in page(RunView(asynchronous(), "run", trained=trained))


def test_what_is_unknown_is_left_out() -> None:
    assert trained_words("chain", None, None, 5, 0, None) == "chain · 5"
