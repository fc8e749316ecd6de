"""A program that kills runs at many moments, fast, in forks of a process with everything imported.

python -m tests.killing moments FOLDER SEED…   kill −9 at random moments and resume, then let a run finish
python -m tests.killing writes FOLDER          kill −9 at writes of a first and a second checkpoint, then resume

FOLDER/run.json is the config; runs write to FOLDER/<seed or write>/model. Results are printed as JSON.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distdual.coordinator.checkpoint
from distdual.coordinator.run import train
from distdual.data.storage.location import Location

MOST_KILLS = 3
WRITES = (0, 3, 5, 6, 8, 11, 12, 13)  # of six or seven per checkpoint


def make_config(folder: Path, name: str) -> dict[str, Any]:
    config = json.loads((folder / "run.json").read_text())
    return {**config, "output": {**config["output"], "url": str(folder / name / "model")}}


def start(work: Callable[[], Any], *, quiet: bool = False) -> int:
    """The id of a forked process that does it; `quiet` hides its errors."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        if not quiet:
            traceback.print_exc()
        raise
    finally:
        os._exit(code)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def lower_of(model: str) -> float | None:
    """The lower bound of the checkpoint, or else of the model."""
    for name in ("checkpoint/manifest.json", "certificate.json"):
        if (path := Path(model) / name).exists():
            found = json.loads(path.read_text())
            return float(found.get("summary", found)["lower"])
    return None


def at_moments(folder: Path, seed: int, whole: float) -> dict[str, Any]:
    """Kill at random moments within the time of an uninterrupted run, then let a run finish."""
    rng = random.Random(seed)
    config = make_config(folder, str(seed))
    lowers, killed = [], 0
    for _ in range(rng.randint(1, MOST_KILLS)):
        child = start(lambda: train(config, resume=True))
        time.sleep(rng.uniform(0.0, whole))
        os.kill(child, signal.SIGKILL)
        killed += ended(child) == -signal.SIGKILL
        lowers.append(lower_of(config["output"]["url"]))
    model = Path(config["output"]["url"])
    if not (model / "model.json").exists() or (model / "checkpoint").exists():
        config["output"]["overwrite"] = True  # killed after saving the model, before removing the checkpoint
        assert ended(start(lambda: train(config, resume=True))) == 0
    return {"seed": seed, "killed": killed, "lowers": [*lowers, lower_of(config["output"]["url"])]}


def dying(config: dict[str, Any], last: int) -> None:
    """Train, but kill this process during the write of this number to the checkpoint."""
    count, write = 0, Location.write

    def counted(self: Location, name: str, content: bytes) -> None:
        nonlocal count
        count += self.url.endswith("/checkpoint")
        if self.url.endswith("/checkpoint") and count > last:
            if name != "manifest.json":  # renames are atomic; other writes may be partial
                write(self, name, content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, name, content)

    Location.write = counted  # type: ignore[method-assign]
    distdual.coordinator.checkpoint.REST = 0.0
    train(config, resume=True)


def at_writes(folder: Path) -> list[int]:
    """Kill at writes of the first two checkpoints; return those after which a run resumed."""
    done = []
    for last in WRITES:
        config = make_config(folder, str(last))
        code = ended(start(lambda config=config, last=last: dying(config, last)))
        assert code == -signal.SIGKILL, f"write {last}: {code}"
        config["output"]["checkpoint_every"] = 0.0
        assert ended(start(lambda config=config: train(config, resume=True))) == 0
        done.append(last)
    return done


def main(mode: str, place: str, *seeds: str) -> None:
    folder = Path(place)
    distdual.coordinator.checkpoint.REST = 1.0  # half of the time is writing
    train(make_config(folder, "whole"))  # compiles the kernels before forking
    begin = time.monotonic()
    assert ended(start(lambda: train(make_config(folder, "timed")))) == 0
    whole = time.monotonic() - begin
    done = at_writes(folder) if mode == "writes" else [at_moments(folder, int(seed), whole) for seed in seeds]
    print(json.dumps(done))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
