"""Claims on a folder: one process at a time writes a data set or a model.

A claim is the file claim.json in the folder. On a disk its holder locks that file, and the lock ends with the process.
Elsewhere the holder renews the file; a claim that was not renewed for LEASE seconds is void, and one whose process ran
on this machine is void as soon as that process has ended.
"""

import contextlib
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Protocol

from distdual.data.storage.conditional import ChangedError, head_object, version_of, write_if
from distdual.data.storage.location import CLAIM, Location, clear_errors
from distdual.errors import InputError, Superseded
from distdual.json_floats import parsed_json

log = logging.getLogger(__name__)

BEAT = 10.0  # seconds between two renewals
LEASE = 60.0  # seconds without one after which a claim is void: several may fail, or the process be stopped
CLAIM_TRIES = 5  # attempts at a claim that others take and release at the same moment


class TakenError(InputError):
    """Another process writes to the folder."""


class Claim(Protocol):
    location: Location

    def check(self) -> None:
        """Raise Superseded if another process has taken the claim over."""

    def release(self) -> None: ...


@contextlib.contextmanager
def claimed(location: Location, owner: str | None = None) -> Iterator[Claim]:
    """Hold the claim on a folder within the block; raise TakenError if another process holds it.

    `owner` names a job: a later attempt at it takes the claim over from an earlier one.
    """
    claim: Claim = LeasedClaim(location, owner) if location.remote else LockedClaim(location, owner)
    try:
        yield claim
    finally:
        claim.release()


class LockedClaim:
    """A claim on a local folder, which it creates if need be and removes again if it stays empty."""

    def __init__(self, location: Location, owner: str | None = None) -> None:
        self.location = location
        folder = Path(location.filesystem()[1])
        self.path = folder / CLAIM
        self.made = [each for each in (folder, *folder.parents) if not each.exists()]
        with clear_errors(location.url):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self.file = self._lock(owner)
            except BaseException:
                self._remove_empty_folders()
                raise

    def _lock(self, owner: str | None) -> int:
        for _ in range(CLAIM_TRIES):
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                if not lock(file):
                    self._check_holder(os.read(file, 1 << 12), owner)
                elif is_at(file, self.path):
                    return self._sign(file, owner)
            except BaseException:
                os.close(file)
                raise
            os.close(file)
        raise TakenError(taken(self.location, {}))

    def _check_holder(self, content: bytes, owner: str | None) -> None:
        holder = parsed(content)
        if owner is None or holder.get("owner") != owner:
            raise TakenError(taken(self.location, holder))
        self.path.unlink(missing_ok=True)  # the file that the earlier attempt has locked is no longer the claim

    def _sign(self, file: int, owner: str | None) -> int:
        """Write down who holds the claim; a full disk is noticed here."""
        try:
            os.ftruncate(file, 0)
            os.write(file, signature(owner))
            os.fsync(file)
        except OSError:
            self.path.unlink(missing_ok=True)
            raise
        return file

    def check(self) -> None:
        if not is_at(self.file, self.path):
            raise Superseded(f"{self.location}: another process has taken over")

    def release(self) -> None:
        with contextlib.suppress(OSError):
            if is_at(self.file, self.path):
                self.path.unlink()
        os.close(self.file)
        self._remove_empty_folders()

    def _remove_empty_folders(self) -> None:
        with contextlib.suppress(OSError):  # not empty
            for folder in self.made:
                folder.rmdir()


class LeasedClaim:
    """A claim on a remote folder, renewed by a thread."""

    def __init__(self, location: Location, owner: str | None = None) -> None:
        self.location = location
        self.owner = owner
        self.token = secrets.token_hex(8)
        self.lost = False
        self.renewing = threading.Lock()
        self.over = threading.Event()
        self.version = self._take()
        self.renewed = now()
        threading.Thread(target=self._keep, name="claim", daemon=True).start()

    def _take(self) -> str:
        for _ in range(CLAIM_TRIES):
            version = version_of(self.location, CLAIM)
            if version is not None:
                self._check_void(parsed(self.location.read(CLAIM)))
            with contextlib.suppress(ChangedError):
                return write_if(self.location, CLAIM, self._content(), version)
        raise TakenError(taken(self.location, {}))

    def _check_void(self, holder: dict[str, Any]) -> None:
        same = self.owner is not None and holder.get("owner") == self.owner
        left = LEASE - age_of(self.location)
        if not (same or has_ended(holder) or left < 0):
            end = f"; if it was killed, its claim ends in {left:.0f} s"
            raise TakenError(taken(self.location, holder) + end)

    def _content(self) -> bytes:
        return signature(self.owner, token=self.token, renewed=time.time())

    def _renew(self, patience: float = 0.0) -> None:
        with self.renewing:
            if self.lost or self.over.is_set():
                return
            try:
                self.version = write_if(self.location.patient(patience), CLAIM, self._content(), self.version)
                self.renewed = now()
            except ChangedError:
                self.lost = True

    def _keep(self) -> None:
        while not self.over.wait(BEAT) and not self.lost:
            try:
                self._renew()
            except InputError as error:
                log.info("the claim could not be renewed: %s", error)

    def check(self) -> None:
        if now() - self.renewed > LEASE / 2:
            self._renew(patience=LEASE)
        if self.lost:
            raise Superseded(f"{self.location}: another process has taken over, as this one was silent for too long")

    def release(self) -> None:
        self.over.set()
        with self.renewing, contextlib.suppress(InputError):  # the claim becomes void by itself
            if not self.lost and version_of(self.location.patient(0), CLAIM) == self.version:
                self.location.patient(0).remove_file(CLAIM)


def lock(file: int) -> bool:
    """Whether this process now holds the lock of an open file."""
    try:
        import fcntl
    except ImportError:  # Windows, where an open file cannot be removed or replaced
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        log.warning("this disk has no locks (%s), so two processes can write to one folder", error.strerror)
    return True


def is_at(file: int, path: Path) -> bool:
    """Whether an open file is the one at this path."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def taken(location: Location, holder: dict[str, Any]) -> str:
    who = "another process"
    if {"pid", "host"} <= holder.keys():
        who = f"process {holder['pid']} on {holder['host']}"
    return f"{location}: {who} is writing there; wait until it has ended, or choose another place"


def signature(owner: str | None, **more: Any) -> bytes:
    """What a claim says of its holder."""
    pid = os.getpid()
    who = {"owner": owner, "pid": pid, "started": started(pid), "host": socket.gethostname(), "machine": machine()}
    return json.dumps({**who, **more}).encode()


def holder_of(location: Location) -> dict[str, Any]:
    """What identifies the holder of the claim on a folder, for other processes that write for it."""
    found = parsed(location.read(CLAIM)) if location.exists(CLAIM) else {}
    return {name: value for name, value in found.items() if name != "renewed"}


def check_holder(location: Location, holder: Mapping[str, Any]) -> None:
    """Raise Superseded if another process has taken the claim over."""
    if holder_of(location) != holder:
        raise Superseded(f"{location}: another process has taken over")


def parsed(content: bytes) -> dict[str, Any]:
    try:
        found = parsed_json(content)
    except ValueError:  # its holder is writing it at this moment
        return {}
    return found if isinstance(found, dict) else {}


def has_ended(holder: dict[str, Any]) -> bool:
    """Whether the process ran on this machine and has ended."""
    pid, begin = holder.get("pid"), holder.get("started")
    return holder.get("machine") == machine() and type(pid) is int and begin is not None and started(pid) != begin


def machine() -> str:
    """This boot of this machine and, in a container, this container: where process numbers mean the same."""
    found = [socket.gethostname()]
    with contextlib.suppress(OSError):
        found += [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")]
    return " ".join(found)


def started(pid: int) -> str | None:
    """When a process began, in the kernel's units; numbers of processes are used again."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return None


def now() -> float:
    """Seconds on a clock that includes the time a machine sleeps, if there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def age_of(location: Location) -> float:
    """Seconds since the claim was written, by the storage's own clock where it tells it."""
    fs, path = location.filesystem()
    try:
        if location.is_s3:
            found, _ = location.patiently(CLAIM, lambda: head_object(fs, f"{path}/{CLAIM}"))
            date = parsedate_to_datetime(found["ResponseMetadata"]["HTTPHeaders"]["date"])
            return float((date - found["LastModified"]).total_seconds())
        return time.time() - float(fs.modified(f"{path}/{CLAIM}").timestamp())
    except (FileNotFoundError, InputError):
        return 0.0  # released just now
