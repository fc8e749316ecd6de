"""Whoever wrote the files: a command ends with a right result or with one sentence, and never with a crash."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fuzz import mutations
from tests.fuzz.judge import Answer, Worker, apart, fault
from tests.fuzz.kinds import FROM_ROWS, KINDS, NEVER_STARTED, NEVER_SUSPENDED, QUICK_KINDS, SETTINGS, config, make
from tests.fuzz.seeds import FAILED

QUICK, MANY = 7, 100  # cases a kind of problem and target, of which there are three
TWICE = 70  # from this seed on, two things are changed
UNCHANGED = -1  # the seed of no change
TARGETS = ("data", "model", "checkpoint")
MEANS = ("map/*", "prior/*", "problem/*")  # files of a model that change P
CASES = [(kind, at) for kind in KINDS for at in TARGETS if not (kind in NEVER_SUSPENDED and at == "checkpoint")]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as started:
        yield started


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a kind's valid files, which are made when they are first asked for."""
    made: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            make(name, made[name])
        return made[name]

    return of


def written(told: dict[str, Any], file: Path) -> Path:
    lines = [f"{section}.{key} = {json.dumps(value)}" for section, keys in told.items() for key, value in keys.items()]
    file.write_text("\n".join(lines) + "\n")
    return file


class Case:
    """One changed file, and the commands that meet it."""

    def __init__(self, name: str, target: str, seed: int, valid: Path, here: Path, call: Callable[..., Answer]) -> None:
        self.name, self.target, self.seed, self.valid, self.here, self.call = name, target, seed, valid, here, call
        self.kind = SETTINGS[name]["problem"]["kind"]
        self.own = ["--problem", self.kind] if ":" in self.kind else []
        self.latent = self.kind.startswith("latent") or name == "latent_structures"
        self.faults: list[str] = []
        certificate = json.loads((valid / "model" / "certificate.json").read_text())
        self.known = certificate["lower"], certificate["upper"]

    def run(self) -> list[str]:
        folder = {"data": "data", "model": "model", "checkpoint": "half"}[self.target]
        shutil.copytree(self.valid / folder, self.here / folder)
        self.changed = "nothing"
        if self.seed != UNCHANGED:
            rng = np.random.default_rng([self.seed, KINDS.index(self.name), TARGETS.index(self.target)])
            change = getattr(mutations, f"change_{self.target}")
            self.changed = change(rng, self.here / folder)
            with contextlib.suppress(Exception):  # the first change may leave nothing to change
                self.changed += f", {change(rng, self.here / folder)}" if self.seed >= TWICE else ""
        getattr(self, self.target)()
        shutil.rmtree(self.here)
        return self.faults

    def command(self, *arguments: Any) -> Answer:
        answer = self.call(*arguments)
        if wrong := fault(answer):
            self.blame(arguments[0], wrong)
        if self.seed == UNCHANGED and answer.code != 0:
            self.blame(arguments[0], f"refused although nothing is wrong: {answer}")
        return answer

    def blame(self, command: str, wrong: str) -> None:
        self.faults.append(f"{self.name}, {self.target} seed {self.seed} ({self.changed}), {command}: {wrong}")

    def data(self) -> None:
        data, model = self.here / "data", self.valid / "model"
        self.command("info", data)
        self.command("predict", model, data, "--out", self.here / "labels.txt", *self.own)
        self.command("verify", model, "--data", data, *self.own)
        self.prepare_like(data)
        told = config(self.name, self.here, "new")
        trained = self.command("train", written(told, self.here / "run.toml"), "--json")
        if trained.code == 0:
            self.agree(trained, *self.own)
        if self.name in FROM_ROWS:
            self.command("prepare", self.rows, data, "--problem", self.kind, "--append")

    @property
    def rows(self) -> Path:
        """The file of rows that the kind is made from."""
        return self.valid / FROM_ROWS[self.name]

    def prepare_like(self, place: Path) -> None:
        """Make features of raw rows as those of `place`."""
        if self.name in FROM_ROWS:
            self.command("prepare", self.rows, self.here / "again", "--problem", self.kind, "--like", place)

    def agree(self, trained: Answer, *options: Any) -> None:
        """What training certified, `verify` must find as well."""
        answer = self.command("verify", self.here / "new", "--json", *options)
        found = json.loads(trained.out)
        if answer.code != 0 or apart(json.loads(answer.out), found["lower"], found["upper"]):
            self.blame("train", f"certified {found['lower']}, {found['upper']}; verify: {answer}")

    def model(self) -> None:
        model, data = self.here / "model", self.valid / "data"
        self.command("info", model)
        told = ["labels.csv", "--probabilities"] if self.name == "calibrated" else ["labels.txt"]
        self.command("predict", model, data, "--out", self.here / told[0], *self.own, *told[1:])
        if self.name == "table":
            self.command("predict", model, self.rows, "--out", self.here / "labels.txt")
        self.prepare_like(model)
        verified = self.command("verify", model, "--data", data, "--json", *self.own)
        if verified.code == 0 and self.same_problem():
            self.expect("verify", json.loads(verified.out))
        told = config(self.name, self.valid)
        told["output"]["url"] = str(self.here / "new")
        told["solver"] |= {} if self.name in NEVER_STARTED else {"start": str(model)}
        started = self.command("train", written(told, self.here / "run.toml"), "--json")
        if started.code == 0 and self.same_problem():
            self.expect("train", json.loads(started.out))

    def same_problem(self) -> bool:
        """Whether P is that of the valid model: with other costs or latent values, another optimum is right."""
        folders = [folder / "model" for folder in (self.valid, self.here)]
        old, new = (json.loads((folder / "model.json").read_text()) for folder in folders)
        same = all(old[key] == new[key] for key in ("C", "problem", "prior"))
        files = [
            [path.read_bytes() for pattern in MEANS for path in sorted(folder.glob(pattern))] for folder in folders
        ]
        return same and files[0] == files[1] and not self.latent

    def checkpoint(self) -> None:
        self.command("info", self.here / "half")
        told = config(self.name, self.valid)
        told["output"]["url"] = str(self.here / "half")
        resumed = self.command("train", written(told, self.here / "run.toml"), "--resume", "--json")
        if resumed.code == 0:
            self.expect("train --resume", json.loads(resumed.out))

    def expect(self, command: str, found: dict[str, Any]) -> None:
        if not self.latent and apart(found, *self.known):
            self.blame(command, f"proves {found['lower']}, {found['upper']}, but the optimum is in {self.known}")


def cases(name: str, target: str, seeds: Iterable[int], valid: Path, here: Path, worker: Worker) -> list[str]:
    faults = []
    for seed in seeds:
        (here / str(seed)).mkdir()
        faults += Case(name, target, seed, valid, here / str(seed), worker.call).run()
    return faults


@pytest.mark.parametrize(
    ("name", "target"),
    [pytest.param(*case, marks=[] if case[0] in QUICK_KINDS else [pytest.mark.slow]) for case in CASES],
)
def test_a_changed_file_is_refused_or_does_no_harm(name, target, valid, tmp_path, worker):
    assert cases(name, target, (UNCHANGED, *range(QUICK)), valid(name), tmp_path, worker) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "target"), CASES)
def test_no_changed_file_does_harm(name, target, valid, tmp_path, worker):
    assert cases(name, target, range(QUICK, MANY), valid(name), tmp_path, worker) == []


@pytest.mark.parametrize(("name", "target", "seed"), FAILED)
def test_what_failed_once_does_so_no_more(name, target, seed, valid, tmp_path, worker):
    assert cases(name, target, range(seed, seed + 1), valid(name), tmp_path, worker) == []
