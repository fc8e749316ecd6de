"""What reading from object storage costs: bytes and requests times their prices."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from distdual.errors import InputError
from distdual.report.number_format import size

GB = 1e9
DEFAULT = "0,0.0004"  # S3 Standard from machines of the same region: bytes are free, requests are not


class Price(NamedTuple):
    """Prices in any one currency."""

    per_gb: float  # read
    per_1000_gets: float

    def cost(self, n_bytes: float, n_gets: float) -> float:
        return self.per_gb * n_bytes / GB + self.per_1000_gets * n_gets / 1000


def parse_price(text: str) -> Price:
    """Parse "0.09,0.0004": a GB read, and 1,000 GETs."""
    try:
        price = Price(*map(float, text.split(",")))
    except (TypeError, ValueError):
        price = Price(math.nan, math.nan)
    if not all(0 <= each < math.inf for each in price):
        raise InputError(
            f"--price {text}: expected the price of a GB and of 1,000 GETs, such as {DEFAULT}; "
            "without prices, put the option after the other arguments"
        )
    return price


def reading_text(totals: Mapping[str, Any], data_bytes: float = 0.0, price: Price | None = None) -> str:
    """What was read, in words: bytes and GETs, how often that is the data set, and the cost if prices are known."""
    n_bytes, n_gets = totals["bytes_read"], totals["gets"]
    times = f" = {n_bytes / data_bytes:.1f} × {size(data_bytes)}" if data_bytes else ""
    cost = f", cost {price.cost(n_bytes, n_gets):.3g}" if price else ""
    return f"{size(n_bytes)}{times} in {totals['passes']:,} passes, {n_gets:,} GETs{cost}"
