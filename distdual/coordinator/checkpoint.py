"""Checkpoints: the stored state of an unfinished run, and the checks before another run resumes from it.

A checkpoint is a folder inside the model's. Its objects are written first, under a new number, and manifest.json last:
if the run is killed, either the old checkpoint or the new one is complete.

checkpoint/manifest.json          the run, the number, and the SHA-256 of each object
checkpoint/NUMBER-rows.npz        rows of the cached constraints
checkpoint/NUMBER-constraints.npz their α, margins, keys and so on
checkpoint/NUMBER-weights.npz     v, w, the best certified w, the random state
checkpoint/NUMBER-files.npz       the members files
checkpoint/NUMBER-state.json      bounds, totals, the schedule, the run log so far
checkpoint/NUMBER-ledger.bin      .npy arrays, one after another: coalesced rows since the last checkpoint
checkpoint/NUMBER-latent.npz      of a latent problem: latent values, and the best finished restart
checkpoint/NUMBER-latent.json     and the position in its loop

Runs with an exact kernel have other objects: coordinator/expansion_checkpoint.py.
"""

import contextlib
import hashlib
import io
import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from distdual.coordinator.checkpoint_schema import MANIFEST_RULE as SCHEMA
from distdual.coordinator.latent_loop import LatentRun
from distdual.coordinator.latent_snapshot import LatentState, restore_latent
from distdual.coordinator.run_identity import check_data, check_run
from distdual.coordinator.slack_partition import SlackPartition
from distdual.coordinator.snapshot import State, restore, snapshot_of
from distdual.coordinator.trainer import Trainer
from distdual.data.dataset import Dataset
from distdual.data.storage.claim import Claim
from distdual.data.storage.location import Location, StorageError
from distdual.data.storage.npy_io import BAD_ZIP, unzip
from distdual.errors import ClusterError, InputError, Suspended
from distdual.json_floats import parsed_json
from distdual.model.io import CHECKPOINT, MANIFEST, begin_run, check_output, read_json, to_json
from distdual.scan.group_members_file import Notes

log = logging.getLogger(__name__)

CHECKPOINT_FORMAT = 2
ARRAYS = ("rows", "constraints", "weights", "files")
REST = 10.0  # pause after a checkpoint, as a multiple of its duration: at most a tenth of the time goes into them
BAD_CHECKPOINT = (*BAD_ZIP, IndexError, TypeError, AttributeError, ArithmeticError)


class Saved(NamedTuple):
    """A checkpoint that has been read."""

    state: State
    ledger: dict[str, bytes]
    more_data: bool  # whether shards were appended since
    latent: LatentState | None


@dataclass(slots=True)
class Checkpoint:
    """The checkpoint of a run: first the one it resumed from, if any, then those it writes."""

    output: Location
    every: float  # seconds; 0 for none except on SIGTERM
    run: dict[str, Any]  # identity of the run; another run cannot resume from it
    terminated: Callable[[], bool] = lambda: False
    claim: Claim | None = None  # of this process on the output
    members: str | None = None  # the folder of members files, inside the model's
    latent: Callable[[], LatentState] | None = None  # the additional state of a latent run
    next: int = 0  # number of the next; never reused, since a failed write may still take effect
    files: dict[str, str] = field(default_factory=dict)  # objects of the last complete checkpoint, with digests
    ledger_bytes: int = 0  # in these objects
    resumed: bool = False  # whether the run continues from an existing checkpoint
    due: float = field(init=False)
    _saved: Saved | None = None  # what was read and is not yet restored

    def __post_init__(self) -> None:
        self.due = time.monotonic() + self.every

    @property
    def folder(self) -> Location:
        return self.output / CHECKPOINT

    @property
    def whole(self) -> bool:
        """Whether a complete checkpoint exists."""
        return bool(self.files)

    def between(self, trainer: Any) -> None:
        """Called after a round: write a checkpoint if one is due; suspend a terminated run."""
        if self.terminated():
            self._suspend(trainer)
        if self.every and time.monotonic() >= self.due:
            begin = time.monotonic()
            try:
                self.write(trainer)
            except (InputError, OSError) as error:
                left = "the one before is kept" if self.whole else "there is none yet"
                log.warning("no checkpoint was written, and training continues; %s: %s", left, error)
            took = time.monotonic() - begin
            self.due = time.monotonic() + max(self.every, REST * took)

    def _suspend(self, trainer: Any) -> NoReturn:
        try:
            self.write(trainer)
        except (InputError, OSError) as error:
            last = "--resume continues from the one before" if self.whole else "there is no earlier one"
            raise Suspended(f"stopped on request; no checkpoint could be written, {last}: {error}") from None
        raise Suspended(f"stopped on request; the checkpoint is in {self.folder}: continue with --resume")

    @contextlib.contextmanager
    def kept(self, current: Callable[[], Any]) -> Iterator[None]:
        """Write a checkpoint, if possible, when the cluster or the storage ends the run within the block.

        What fails is a scan, before anything of its round has been used.
        """
        try:
            yield
        except (ClusterError, StorageError) as error:
            trainer = current()
            if not self._begun(trainer):
                raise
            place = f"the checkpoint is in {self.folder}: continue with --resume"
            try:
                self.terminated()  # raises if another process may have taken over the run
                self.write(trainer)
            except (InputError, OSError, ClusterError):
                place = "--resume continues from the last checkpoint" if self.whole else "there is no checkpoint"
            raise type(error)(f"{error}; {place}") from None

    def write(self, trainer: Any) -> None:
        """Write the objects, then the manifest, then remove the objects of the last checkpoint."""
        if self.claim is not None:
            self.claim.check()
        if not self.whole:
            begin_run(self.output, self.members)
        contents, ledger_bytes = self._contents(trainer)
        number, self.next = self.next, self.next + 1
        files = {name: digest for name, digest in self.files.items() if name.endswith("ledger.bin")}
        for name, content in contents:
            files[f"{number:08d}-{name}"] = hashlib.sha256(content).hexdigest()
            self.folder.write(f"{number:08d}-{name}", content)
        about = {
            "format": CHECKPOINT_FORMAT,
            "number": number,
            "run": self.run,
            "members": self.members,
            "files": files,
        }
        self.folder.write(MANIFEST, to_json({**about, "summary": self._summary(trainer)}))
        old, self.files = self.files, files
        self.ledger_bytes += ledger_bytes
        for name in old.keys() - files.keys():
            self.folder.remove_file(name)

    def _contents(self, trainer: Any) -> tuple[Iterator[tuple[str, bytes]], int]:
        """The objects of a checkpoint by name, and how many bytes they add to the ledger."""
        state, new = snapshot_of(trainer), trainer.partition.ledger.since(self.ledger_bytes)
        return checkpoint_objects(state, new, self.latent and self.latent()), len(new)

    def _summary(self, trainer: Any) -> dict[str, Any]:
        return summary(trainer)

    def _begun(self, trainer: Any) -> bool:
        """Whether there is anything to write."""
        return bool(trainer.state.totals.rounds)

    def _parsed(self, found: dict[str, bytes], head: str, *, more_data: bool) -> None:
        """Keep what was read; raise one of BAD_CHECKPOINT if it is no checkpoint."""
        rows, constraints, weights, files = (unzip(found[f"{head}-{name}.npz"]) for name in ARRAYS)
        values = parsed_json(found[f"{head}-state.json"])
        ledger = {name: content for name, content in found.items() if name.endswith("ledger.bin")}
        self.ledger_bytes = sum(map(len, ledger.values()))
        state = State(rows, constraints, weights, files, values)
        self._saved = Saved(state, ledger, more_data, read_latent(found, head))

    def read(self, dataset: Dataset) -> None:
        """Read the state of a run on this data set, or on its first shards; raise InputError on any mismatch."""
        manifest = read_manifest(self.folder)
        try:
            check_run(self.folder, manifest["run"], self.run)
            more_data = check_data(self.folder, manifest["run"]["data"], dataset)
            found = {name: self._read(name, digest) for name, digest in manifest["files"].items()}
            self._parsed(found, f"{manifest['number']:08d}", more_data=more_data)
        except InputError:
            raise
        except BAD_CHECKPOINT as error:
            raise InputError(f"{self.folder}: not a checkpoint that this version can read: {error}") from None
        self.next, self.files, self.members = manifest["number"] + 1, manifest["files"], manifest["members"]
        self._remove_older()
        self.resumed = True

    def restore(self, trainer: Trainer) -> None:
        """Give a fresh trainer the state that was read."""
        saved, self._saved = self._saved, None  # the cache has a copy
        assert saved is not None
        pieces = (saved.ledger[name] for name in sorted(saved.ledger))
        with self.naming_damage():
            restore(trainer, saved.state, pieces, more_data=saved.more_data)
        check_members(trainer.partition)
        log.info(
            "resume: version=%d lower=%.6g more_data=%s", trainer.state.version, trainer.solver.lower, saved.more_data
        )

    def restore_latent(self, run: LatentRun) -> None:
        """The same for a latent problem, which needs latent values of all examples: no shards may be new."""
        assert self._saved is not None
        latent = self._saved.latent
        if self._saved.more_data:
            raise InputError(
                f"{self.folder}: shards were appended to the data set since; a latent problem has no latent values for "
                "their examples: start again without --resume, with solver.start if there is a model"
            )
        self.restore(run.trainer)
        with self.naming_damage():
            assert latent is not None  # `identity` names the problem: it is the same
            restore_latent(run, latent)

    @contextlib.contextmanager
    def naming_damage(self) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            raise InputError(f"{self.folder}: {error}; the checkpoint is damaged") from None
        except BAD_CHECKPOINT as error:
            raise InputError(f"{self.folder}: not a checkpoint that this version can read: {error}") from None

    def remove(self) -> None:
        """Remove the checkpoint of a finished run."""
        if self.whole:
            self.folder.remove_file(MANIFEST)  # first: without it the checkpoint does not exist
            self.folder.remove()

    def _read(self, name: str, digest: str) -> bytes:
        content = self.folder.read(name)
        if hashlib.sha256(content).hexdigest() != digest:
            raise InputError(f"{self.folder}/{name}: damaged: it is not what was written; start again without --resume")
        return content

    def _remove_older(self) -> None:
        """Remove objects left by a killed run."""
        for name in self.folder.names():
            if name not in self.files and name != MANIFEST:
                self.folder.remove_file(name)


def check_members(partition: SlackPartition) -> None:
    """Check that the members files exist: they are needed until the model is saved."""
    folder = partition.folder
    if folder is None:
        return
    there = set(folder.names())
    for number in np.flatnonzero(partition.covers):
        if (name := Notes(folder, int(number)).name) not in there:
            raise InputError(f"{folder}/{name}: not found, but the checkpoint needs it")


def resumes_from(checkpoint: Checkpoint, *, overwrite: bool, resume: bool) -> bool:
    """Whether the run resumes from an existing checkpoint; refuse to lose one."""
    output = checkpoint.output
    there = checkpoint.folder.exists(MANIFEST)
    check_output(output, overwrite=overwrite)
    if resume and not there:
        log.warning("there is no checkpoint in %s: training starts from scratch", output)
    if there and not resume and not overwrite:
        raise InputError(
            f"{checkpoint.folder}: a checkpoint of a run that has not ended; continue with --resume, "
            "or set output.overwrite=true to start from scratch"
        )
    return there and resume


NAMES: list[tuple[str, Callable[[State], bytes]]] = [
    ("rows.npz", lambda state: zipped(state.rows)),
    ("constraints.npz", lambda state: zipped(state.constraints)),
    ("weights.npz", lambda state: zipped(state.weights)),
    ("files.npz", lambda state: zipped(state.files)),
    ("state.json", lambda state: json.dumps(state.values).encode()),
]


def checkpoint_objects(state: State, ledger: bytes, latent: LatentState | None = None) -> Iterator[tuple[str, bytes]]:
    """The objects of a checkpoint, one at a time, so that only one is in memory twice."""
    for name, made in NAMES:
        yield name, made(state)
    if ledger:
        yield "ledger.bin", ledger
    if latent:
        yield "latent.npz", zipped(latent.arrays)
        yield "latent.json", json.dumps(latent.values).encode()


def read_latent(found: dict[str, bytes], head: str) -> LatentState | None:
    if f"{head}-latent.npz" not in found:
        return None
    return LatentState(unzip(found[f"{head}-latent.npz"]), parsed_json(found[f"{head}-latent.json"]))


def zipped(arrays: dict[str, NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    named: dict[str, Any] = arrays  # all of numbers; allow_pickle would be one more of them before NumPy 2.2
    np.savez(buffer, **named)
    return buffer.getvalue()


def summary(trainer: Trainer) -> dict[str, Any]:
    """The figures that `distdual info` shows."""
    upper = trainer.state.best_upper
    return {
        "lower": trainer.solver.lower,
        "upper": upper if np.isfinite(upper) else None,
        "passes": trainer.state.totals.passes,
        "rounds": trainer.state.totals.rounds,
        "cache_rows": len(trainer.solver.cache),
        "seconds": trainer.state.seconds,
    }


def read_manifest(folder: Location) -> dict[str, Any]:
    manifest = read_json(folder, MANIFEST)
    version = manifest.get("format")
    if version != CHECKPOINT_FORMAT:
        raise InputError(f"{folder}: checkpoint format {version!r}, this version of distdual reads {CHECKPOINT_FORMAT}")
    SCHEMA(f"{folder}/{MANIFEST}", manifest)
    return manifest


def describe_checkpoint(folder: Location) -> dict[str, Any]:
    """What `distdual info` shows."""
    manifest = read_manifest(folder)
    run = manifest["run"]
    data = run["data"]
    return {
        "what": "checkpoint",
        "problem": run["problem"],
        "solver": run["solver"],
        "data": {"url": data["url"], "examples": data["n_examples"], "shards": len(data["checksum"])},
        **manifest["summary"],
        "number": manifest["number"],
    }
