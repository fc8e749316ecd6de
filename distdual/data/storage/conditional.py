"""Conditional writes: a file is created only where none is, or replaced only if nobody else has replaced it.

S3 decides by itself (If-None-Match, If-Match). On a disk a link creates a file, and who replaces one holds a claim on
its folder (claim.py). Other storages compare before they write.
"""

import contextlib
import hashlib
import os
import secrets
from typing import Any

from distdual.data.storage.location import PARTIAL, Location, error_code, write_local, write_synced
from distdual.errors import InputError

REFUSED = ("PreconditionFailed", "ConditionalRequestConflict")  # S3's codes for a condition that does not hold


class ChangedError(InputError):
    """The file is not what it was: another process wrote it."""


def version_of(location: Location, name: str) -> str | None:
    """What changes with each write of a file; None if there is no file."""
    fs, path = location.filesystem()

    def look() -> str | None:
        try:
            if location.is_s3:
                return str(head_object(fs, f"{path}/{name}")["ETag"])
            return hashlib.sha256(fs.cat_file(f"{path}/{name}")).hexdigest()
        except FileNotFoundError:
            return None

    return location.patiently(name, look)[0]


def write_if(location: Location, name: str, content: bytes, version: str | None) -> str:
    """Write a file if its version is still this one, or if there is none with None; return its new version.

    Raises ChangedError if the condition does not hold.
    """
    fs, path = location.filesystem()
    store = store_on_s3 if location.is_s3 else store_elsewhere
    try:
        return location.patiently(name, lambda: store(location, fs, f"{path}/{name}", content, version))[0]
    except ChangedError:
        found = version_of(location, name)
        if found is None or location.read(name) != content:
            raise
        return found  # an earlier try succeeded, and only its answer was lost


def store_elsewhere(location: Location, fs: Any, target: str, content: bytes, version: str | None) -> str:
    if version is None:
        create(location, fs, target, content)
    elif version_of(location, target.rpartition("/")[2]) != version:
        raise ChangedError(f"{target}: another process has changed it")
    elif location.remote:
        fs.pipe_file(target, content)
    else:
        write_local(target, content)
    return hashlib.sha256(content).hexdigest()


def store_on_s3(_: Location, fs: Any, target: str, content: bytes, version: str | None) -> str:
    bucket, key, _ = fs.split_path(target)
    condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
    try:
        return str(fs.call_s3("put_object", Bucket=bucket, Key=key, Body=content, **condition)["ETag"])
    except OSError as error:
        if error_code(error) not in REFUSED and not (isinstance(error, FileNotFoundError) and version is not None):
            raise
        raise ChangedError(f"{target}: another process has changed it") from None


def create(location: Location, fs: Any, target: str, content: bytes) -> None:
    try:
        if location.remote:
            fs.pipe_file(target, content, mode="create")
        else:
            create_local(target, content)
    except FileExistsError:
        raise ChangedError(f"{target}: another process has created it") from None


def create_local(target: str, content: bytes) -> None:
    """A link appears with the whole content, or not at all."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    written = f"{target}.{secrets.token_hex(4)}{PARTIAL}"
    try:
        write_synced(written, content)
        os.link(written, target)
    finally:
        with contextlib.suppress(OSError):
            os.remove(written)


def head_object(fs: Any, path: str) -> dict[str, Any]:
    bucket, key, _ = fs.split_path(path)
    found: dict[str, Any] = fs.call_s3("head_object", Bucket=bucket, Key=key)
    return found
