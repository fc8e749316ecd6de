"""A program that kills `prepare` at each of its writes, in forks of a process with everything imported.

python -m tests.overwriting FOLDER KIND    KIND is new or overwrite; prints, as JSON, the number of readable examples
                                           after each kill
"""

import json
import signal
import sys
from pathlib import Path

from distdual.data.prepare.api import prepare_arrays
from distdual.data.storage.location import Location
from tests.appending import LATER, NEW, OLD, dying, holds, made
from tests.killing import ended, start


def at_write(place: Location, last: int, kind: str) -> tuple[bool, int]:
    """Whether `prepare` finished, and the number of examples that are there after it; then prepare again."""
    old, new, later = made(0, OLD), made(1, NEW), made(2, LATER)
    replaces = kind == "overwrite"
    if replaces:
        assert ended(start(lambda: prepare_arrays(*old, place, "binary", shard_bytes=100))) == 0
    write = lambda: prepare_arrays(*new, place, "binary", shard_bytes=100, overwrite=replaces)  # noqa: E731
    code = ended(start(lambda: dying(write, last)))
    assert code in (0, -signal.SIGKILL)
    is_new = holds(place, new)
    assert is_new or not replaces or holds(place, old)
    again = is_new or replaces
    assert ended(start(lambda: prepare_arrays(*later, place, "binary", overwrite=again))) == 0
    assert holds(place, later)
    return code == 0, NEW if is_new else OLD if replaces else 0


def main(folder: str, kind: str) -> None:
    found: list[int] = []
    whole = False
    while not whole:
        whole, n_examples = at_write(Location(str(Path(folder) / str(len(found)))), len(found), kind)
        found.append(n_examples)
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
