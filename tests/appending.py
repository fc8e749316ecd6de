"""A program that kills an append at each of its writes, in forks of a process with everything imported.

python -m tests.appending FOLDER     prints, as JSON, the number of readable examples after each kill
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from zarr.storage import LocalStore

from distdual.data.dataset import open_dataset
from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from tests.killing import ended, start

OLD, NEW, LATER = 20, 12, 7  # examples


def made(seed: int, n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)).astype(np.float32), np.arange(n) % 2


def dying(work: Callable[[], Any], last: int) -> None:
    """Append, but kill this process before the write after the first `writes`."""
    count, put, rename, link = 0, LocalStore.set, os.replace, os.link

    def counted() -> None:
        nonlocal count
        count += 1
        if count > last:
            os.kill(os.getpid(), signal.SIGKILL)

    async def dying_put(store: Any, *given: Any) -> None:
        counted()
        await put(store, *given)

    def dying_rename(*given: Any) -> None:  # how Location writes zarr.json
        counted()
        rename(*given)

    def dying_link(*given: Any) -> None:  # how it creates zarr.json
        counted()
        link(*given)

    LocalStore.set, os.replace, os.link = dying_put, dying_rename, dying_link  # type: ignore[method-assign,assignment]
    work()


def look(place: Location, *parts: tuple[Any, Any]) -> None:
    """Read and check every shard; the data set consists of exactly these parts."""
    data = open_dataset(place)
    found = np.concatenate([data.read(s).shard.x.values for s in range(data.n_shards)])
    np.testing.assert_array_equal(found, np.concatenate([x for x, _ in parts]))


def holds(place: Location, *parts: tuple[Any, Any]) -> bool:
    return ended(start(lambda: look(place, *parts), quiet=True)) == 0


def at_write(place: Location, last: int) -> tuple[bool, int]:
    """Whether the append finished, and the number of examples after it; then append again."""
    old, new, later = made(0, OLD), made(1, NEW), made(2, LATER)
    assert ended(start(lambda: prepare_arrays(*old, place, "binary", shard_bytes=100))) == 0
    code = ended(start(lambda: dying(lambda: prepare_arrays(*new, place, "binary", append=True), last)))
    assert code in (0, -signal.SIGKILL)
    there = [old, new] if holds(place, old, new) else [old]
    assert holds(place, *there)
    assert ended(start(lambda: prepare_arrays(*later, place, "binary", append=True))) == 0
    assert holds(place, *there, later)
    return code == 0, sum(len(y) for _, y in there)


def main(folder: str) -> None:
    found: list[int] = []
    whole = False
    while not whole:
        whole, n_examples = at_write(Location(str(Path(folder) / str(len(found)))), len(found))
        found.append(n_examples)
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
