"""What reading costs, and how it is told."""

import pytest

from distdual.errors import InputError
from distdual.report.page import RunView, content
from distdual.report.price import DEFAULT, Price, parse_price, reading_text
from tests.report.sample import line

READ = {"passes": 4, "bytes_read": 8_000_000_000, "gets": 6000}


def test_the_cost_is_that_of_bytes_and_requests() -> None:
    assert parse_price("0.09,0.0004").cost(2e9, 5000) == pytest.approx(2 * 0.09 + 5 * 0.0004)
    assert parse_price(DEFAULT).cost(2e9, 5000) == pytest.approx(5 * 0.0004)


@pytest.mark.parametrize("text", ["", "1", "1,2,3", "one,2", "-1,0", "nan,0", "0,inf", "run.toml"])
def test_prices_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected the price of a GB and of 1,000 GETs"):
        parse_price(text)


def test_reading_is_told_as_a_multiple_of_the_data_set() -> None:
    assert reading_text(READ, 2e9) == "8 GB = 4.0 × 2 GB in 4 passes, 6,000 GETs"
    assert reading_text(READ, price=Price(0.5, 1.0)) == "8 GB in 4 passes, 6,000 GETs, cost 10"


def test_the_ledger_of_a_page_tells_what_reading_cost() -> None:
    run = RunView([line(1.0, 2.0, **READ)], "run", price=Price(0.5, 1.0))
    assert "<td>8 GB in 4 passes, 6,000 GETs, cost 10</td>" in content(run)
    assert "<th>reading</th>" not in content(RunView([line(1.0, 2.0)], "old log"))
