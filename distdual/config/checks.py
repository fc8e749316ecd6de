"""Checks of single values of the configuration."""

import math
import re
from collections.abc import Sequence
from typing import Any

from distdual.errors import InputError

ADDRESS = re.compile(
    r"((?P<protocol>tcp|tls|ws|wss|ucx)://)?(?P<host>\[[\da-fA-F:.]+\]|[^\s/:\[\]]+)(:(?P<port>\d{1,5}))?"
)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_pattern(name: str, value: str, choices: Sequence[str]) -> None:
    """Like check_choice, where a choice such as "idle:N" stands for a word and a positive integer."""
    word, colon, number = value.partition(":")
    fits = any(choice.partition(":")[0] == word and (":" in choice) == bool(colon) for choice in choices)
    if not fits or (colon and not (number.isascii() and number.isdigit() and int(number) > 0)):
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_seconds(name: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise InputError(f"{name} must be a number of seconds, got {value}")


def check_address(name: str, address: str) -> None:
    """Refuse early what Dask would report late or unclearly."""
    if not ADDRESS.fullmatch(address):
        raise InputError(f"{name} {address}: not an address; expected one such as tcp://10.0.0.1:8786")


def index_range(item: Any) -> range:
    """Indices of the weights that `item` names: an index or "first:last"."""
    if isinstance(item, int) and not isinstance(item, bool) and item >= 0:
        return range(item, item + 1)
    found = re.fullmatch(r"(\d+):(\d+)", item) if isinstance(item, str) else None
    if found and int(found[1]) < int(found[2]):
        return range(int(found[1]), int(found[2]))
    raise InputError(f'prior.nonnegative takes numbers from 0 and ranges such as "0:10", got {item!r}')


def check_url(name: str, url: str) -> None:
    """Refuse a URL that is empty or holds credentials, since URLs are displayed and recorded."""
    if not url.strip():
        raise InputError(f"{name} must name a folder, got an empty string")
    for protocol, host in re.findall(r"(\w+)://([^/]*)", url):
        # A secret may itself hold a slash; no bucket but an access point (arn:…) has a colon in its name.
        colon = protocol in ("s3", "s3a") and ":" in host and not host.startswith("arn:")
        if "@" in host or colon:
            raise InputError(
                f"{name} holds credentials before its host or bucket; "
                "give them in storage_options or in the environment instead"
            )
