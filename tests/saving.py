"""A program that kills the save of a model at each of its writes, in forks of a process with everything imported.

python -m tests.saving MODEL FOLDER KIND    KIND is new or overwrite; prints, as JSON, the model found after each kill
python -m tests.saving DATA FOLDER sweep    the same for the model that a sweep saves
"""

import dataclasses
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distdual.coordinator.sweep_c import sweep
from distdual.data.storage.location import Location
from distdual.errors import InputError
from distdual.model.io import Model, changed_files, load_model
from tests.killing import ended, start

CALLS = ("replace", "link", "remove")  # of os: all that makes files appear or go


def dying(work: Callable[[], Any], last: int) -> None:
    """Do it, but kill this process before the change of a file after the first `last`."""
    count = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def dying_call(*given: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count > last:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*given, **named)

        return dying_call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    work()


def found_at(place: Location, old: Model, new: Model) -> str:
    try:
        model = load_model(place)
    except InputError:
        return "none"
    assert changed_files(place, model.certificate) == []
    assert model.w.tobytes() in (old.w.tobytes(), new.w.tobytes())
    return "old" if model.w.tobytes() == old.w.tobytes() else "new"


def at_write(old: Model, new: Model, place: Location, last: int, kind: str) -> tuple[bool, str]:
    """Whether the save ended, and the model that is there after it; then save again."""
    shutil.rmtree(place.url, ignore_errors=True)
    if kind == "overwrite":
        old.save(place)
    code = ended(start(lambda: dying(lambda: new.save(place, overwrite=True), last)))
    assert code in (0, -signal.SIGKILL)
    found = found_at(place, old, new)
    old.save(place, overwrite=True)
    assert found_at(place, old, new) == "old"
    names = {path.name for path in Path(place.url).iterdir()}
    assert not [name for name in names if name.startswith("replacement") or name == "claim.json"]
    return code == 0, found


def at_write_of_sweep(data: str, place: Location, last: int) -> tuple[bool, str]:
    """Whether a sweep ended, and which model is there after it; then sweep again."""
    shutil.rmtree(place.url, ignore_errors=True)
    config = {"data": {"url": data}, "problem": {"kind": "binary"}, "output": {"url": place.url}}
    code = ended(start(lambda: dying(lambda: sweep(config, "0.1,1", 2), last)))
    assert code in (0, -signal.SIGKILL)
    found = "none"
    if (Path(place.url) / "model.json").exists():
        assert changed_files(place, load_model(place).certificate) == []
        found = "new"
    config["output"]["overwrite"] = found != "none"  # type: ignore[assignment]
    assert ended(start(lambda: sweep(config, "0.1,1", 2))) == 0
    assert changed_files(place, load_model(place).certificate) == []
    return code == 0, found


def main(model: str, folder: str, kind: str) -> None:
    if kind == "sweep":
        print(json.dumps(until_whole(lambda last: at_write_of_sweep(model, Location(folder), last))))  # noqa: T201
        return
    old = load_model(Location(model))
    certificate = {**old.certificate, "reason": "another"}
    new = dataclasses.replace(old, w=old.w + 1.0, certificate=certificate)
    print(json.dumps(until_whole(lambda last: at_write(old, new, Location(folder), last, kind))))  # noqa: T201


def until_whole(attempt: Callable[[int], tuple[bool, str]]) -> list[str]:
    """What is found after a kill at the first write, the second, and so on until there was none."""
    found: list[str] = []
    whole = False
    while not whole:
        whole, which = attempt(len(found))
        found.append(which)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
