"""Paths and URLs of folders, and reads and writes of the files in them."""

import contextlib
import itertools
import logging
import os
import random
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from typing import Any, TypeVar

import fsspec
from fsspec.utils import get_protocol

from distdual.config import check_url
from distdual.errors import InputError

T = TypeVar("T")

log = logging.getLogger(__name__)

PARTIAL = ".partial"  # ends the name of a local file that is being written
CLAIM = "claim.json"  # in a folder that is being written, see claim.py

# Defaults for S3, which storage_options override. A server that is down is noticed in about a second, one
# that hangs in a minute or two; s3fs and botocore each try twice. `retry_seconds` limits the retries of a run.
S3_PATIENCE = {"connect_timeout": 5, "read_timeout": 10, "retries": {"mode": "standard", "total_max_attempts": 2}}
S3_TRIES = 2
REFUSALS = {  # S3's codes for bad credentials, and their meaning
    "RequestTimeTooSkewed": "the storage refuses the clock of this machine, which is minutes off; set it",
    "InvalidAccessKeyId": "the storage does not know the access key; check the credentials",
    "SignatureDoesNotMatch": "the secret does not belong to the access key; check the credentials",
    "ExpiredToken": "the session token has expired; get new credentials",
    "InvalidToken": "the storage does not know the session token; get new credentials",
}
LIBRARIES = ("botocore", "aiobotocore", "aiohttp", "urllib3")  # their exceptions come from the storage
MOST_REMOVED = 1000  # files in one request
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between two tries; each is about twice the one before
S3_OPTIONS = {"max_concurrency": 1}  # with more, s3fs requests the size of each object before reading it


# Schemes of data that a model may name: folders and object stores. What else fsspec opens, such as web pages, archives
# and hosts by ssh, only the user may name.
NAMED_BY_MODELS = ("file", "local", "memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")


def check_scheme(where: str, url: str) -> None:
    """Refuse to fetch from a URL that a file names, and not the user, unless its scheme is one for data."""
    scheme = url.partition("://")[0] if "://" in url else "file"
    if "::" in url or scheme not in NAMED_BY_MODELS:
        known = ", ".join(NAMED_BY_MODELS)
        raise InputError(f"{where} names {url!r}, which is none of {known}: name the data set yourself with --data")


@dataclass(frozen=True, slots=True)
class Location:
    """A folder and how to reach it. Its text form never shows `storage_options`."""

    url: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    retry_seconds: float = 0.0  # how long a failed request to remote storage is retried

    def __post_init__(self) -> None:
        check_url("the location", self.url)
        object.__setattr__(self, "url", self.url.rstrip("/") or "/")

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> "Location":
        return replace(self, url=f"{self.url}/{name}")

    def patient(self, seconds: float) -> "Location":
        """The same folder, whose failed requests are retried for so many seconds."""
        return replace(self, retry_seconds=seconds)

    def absolute(self) -> "Location":
        """The same folder, independent of the working directory: for workers and for records."""
        if self.remote or "://" in self.url:
            return self
        return replace(self, url=os.path.abspath(self.url))

    @property
    def remote(self) -> bool:
        return self._protocol not in ("file", "local")

    @property
    def options(self) -> dict[str, Any]:
        """`storage_options`, and for S3 the defaults that they leave open."""
        told = dict(self.storage_options)
        if not self.is_s3:
            return told
        config = {**S3_PATIENCE, **(told.get("config_kwargs") or {})}
        return {**S3_OPTIONS, **told, "config_kwargs": config}

    def filesystem(self, *, asynchronous: bool = False) -> tuple[Any, str]:
        """The fsspec file system and this folder's path on it."""
        options = {**self.options, "asynchronous": True} if asynchronous else self.options
        fs, path = self.opened(lambda: fsspec.core.url_to_fs(self.url, **options))
        if self.is_s3:
            fs.retries = S3_TRIES
            if not asynchronous:
                self.opened(fs.connect)  # makes the client, without a request: settings it cannot use are found here
        return fs, path

    def opened(self, attempt: Callable[[], T]) -> T:
        """What `attempt` returns; turns what a file system raises about its settings into one sentence."""
        try:
            return attempt()
        except Exception as error:
            if not isinstance(error, ValueError | ImportError | TypeError | KeyError) and not _is_storage_failure(
                error
            ):
                raise
            text = without_secrets(str(error), self.storage_options)
        # Raised out here, or the error with the secrets would stay attached to it.
        raise InputError(f"{self.url}: cannot be opened: {text}")

    def patiently(self, name: str, attempt: Callable[[], T]) -> tuple[T, int]:
        """What `attempt` returns, and how often it was made; what it raises becomes a sentence about the file `name`.

        A failed request is retried, after growing pauses, until `retry_seconds` are over.
        """
        end, pause = time.monotonic() + self.retry_seconds, FIRST_PAUSE
        for n in itertools.count(1):
            try:
                with clear_errors(f"{self.url}/{name}" if name else self.url), self._refusals_explained():
                    return attempt(), n
            except StorageError as error:
                wait = pause * random.uniform(0.5, 1.5)  # or all workers would come back at the same moment
                if not self.remote or time.monotonic() + wait > end:
                    raise
                log.info("%s; next try in %.1f s", error, wait)
            time.sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE)
        raise AssertionError

    @contextlib.contextmanager
    def _refusals_explained(self) -> Iterator[None]:
        """Ask an S3 server why it refuses a request: its answer to a HEAD has no reason in it."""
        try:
            yield
        except PermissionError as error:
            if not self.is_s3 or error_code(error) in REFUSALS:
                raise
            fs, path = self.filesystem()
            try:
                fs.call_s3("list_objects_v2", Bucket=fs.split_path(path)[0], MaxKeys=1)
            except PermissionError as again:
                if error_code(again) in REFUSALS:
                    raise again from again.__cause__
            except Exception as again:
                log.debug("the storage did not say why it refuses: %s", type(again).__name__)
            raise

    def read(self, name: str) -> bytes:
        fs, path = self.filesystem()
        if not self.remote:
            check_regular(f"{path}/{name}")
        return self.patiently(name, lambda: bytes(fs.cat_file(f"{path}/{name}")))[0]

    def write(self, name: str, content: bytes) -> None:
        """Write one file; readers see all of it or nothing."""
        fs, path = self.filesystem()
        target = f"{path}/{name}"
        store = fs.pipe_file if self.remote else write_local
        self.patiently(name, lambda: store(target, content))

    def copy(self, name: str, to: "Location") -> None:
        """Copy one file to another folder of the same storage; readers see all of it or nothing."""
        fs, path = self.filesystem()
        target = f"{to.filesystem()[1]}/{name}"
        store = fs.cp_file if self.remote else copy_local
        self.patiently(name, lambda: store(f"{path}/{name}", target))

    def exists(self, name: str) -> bool:
        fs, path = self.filesystem()
        fs.invalidate_cache()
        return self.patiently(name, lambda: bool(fs.exists(f"{path}/{name}")))[0]

    def is_empty(self) -> bool:
        """True if nothing is there but a claim: no folder, or one without files but those of a killed write.

        A bucket has to exist.
        """
        fs, path = self.filesystem()

        def look() -> bool:
            if self.is_s3:
                return _is_empty_prefix(fs, path)
            if not self.remote:
                return not os.path.isfile(path) and all(is_transient(name) for name in files_below(path))
            fs.invalidate_cache()
            try:
                return all(is_transient(name) for name in fs.ls(path, detail=False))
            except FileNotFoundError:
                return True

        return self.patiently("", look)[0]

    def names(self) -> list[str]:
        """The files of this folder; none if there is no such folder."""
        fs, path = self.filesystem()

        def look() -> list[str]:
            fs.invalidate_cache()
            try:
                return sorted(found.rpartition("/")[2] for found in fs.ls(path, detail=False))
            except FileNotFoundError:
                return []

        return self.patiently("", look)[0]

    def remove(self) -> None:
        """Delete the folder and all that is in it; it need not exist. A bucket is emptied but stays."""
        fs, path = self.filesystem()

        def delete() -> None:
            fs.invalidate_cache()
            with contextlib.suppress(FileNotFoundError):
                if not self.is_s3:
                    fs.rm(path, recursive=True)
                elif names := fs.find(path):
                    fs.rm(names)
                    if not _is_empty_prefix(fs, path):  # s3fs does not report what it was not allowed to delete
                        raise PermissionError(path)

        self.patiently("", delete)

    def clear(self, keep: Callable[[str], bool] = lambda _: False) -> None:
        """Delete the files in the folder and below it, but not a claim and those whose names `keep` takes."""
        fs, path = self.filesystem()

        def unwanted() -> list[str]:
            fs.invalidate_cache()
            names = [name[len(path) + 1 :] for name in fs.find(path)]
            # An empty name is the folder itself, which some servers keep when it has no files.
            return [f"{path}/{name}" for name in names if name and name != CLAIM and not keep(name)]

        def delete() -> None:
            old = unwanted()
            for n in range(0, len(old), MOST_REMOVED):
                fs.rm(old[n : n + MOST_REMOVED])
            if not self.remote:
                remove_empty_folders(path)
            elif old and unwanted():  # s3fs does not report what it was not allowed to delete
                raise PermissionError(path)

        self.patiently("", delete)

    def remove_file(self, name: str) -> None:
        fs, path = self.filesystem()

        def delete() -> None:
            with contextlib.suppress(FileNotFoundError):
                fs.rm_file(f"{path}/{name}")

        self.patiently(name, delete)

    @property
    def _protocol(self) -> str:
        return str(get_protocol(self.url))

    @property
    def is_s3(self) -> bool:
        return self._protocol in ("s3", "s3a")


Place = Location | str | os.PathLike[str]


def as_location(where: Place, storage_options: Mapping[str, Any] | None = None) -> Location:
    """The place itself, or the place that a path or URL names, with these options where it is remote."""
    if isinstance(where, Location):
        return where
    plain = Location(os.fspath(where))
    return Location(plain.url, storage_options) if plain.remote and storage_options else plain


@contextlib.contextmanager
def clear_errors(name: str) -> Iterator[None]:
    """Turn what a file system raises into one sentence about `name`, without anything secret in it."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        told = _sentence(name, error)
        if told is None:
            raise
        raise told from None


class StorageError(InputError):
    """A request to the storage failed; the same request may succeed later."""


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse to read a pipe, which may hang, or a device, which may never end."""
    with contextlib.suppress(OSError):  # whoever reads the file finds out what is wrong
        mode = os.stat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise InputError(f"{path}: neither a file nor a folder, but {stat.filemode(mode)}; expected a file")


def files_below(folder: str) -> Iterator[str]:
    return (name for _, _, files in os.walk(folder, onerror=raise_it) for name in files)


def remove_empty_folders(path: str) -> None:
    """Remove the empty folders below this one."""
    for folder, _, _ in os.walk(path, topdown=False):
        if folder != path:
            with contextlib.suppress(OSError):  # not empty
                os.rmdir(folder)


def is_transient(path: str) -> bool:
    """Whether a file is part of nothing: a claim, or what a killed write has left."""
    return path.endswith(PARTIAL) or path.rpartition("/")[2] == CLAIM


def raise_it(error: OSError) -> None:
    """What cannot be listed is not empty; that there is no folder is no error."""
    if not isinstance(error, FileNotFoundError):
        raise error


def write_local(target: str, content: bytes) -> None:
    """Write beside the target, then rename: a crash leaves the old file or the new one."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    partial = target + PARTIAL
    try:
        write_synced(partial, content)
        os.replace(partial, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(partial)
        raise


def copy_local(source: str, target: str) -> None:
    """Copy by a link, which takes no room, where the disk knows links."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    partial = target + PARTIAL
    with contextlib.suppress(FileNotFoundError):
        os.remove(partial)
    try:
        os.link(source, partial)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, partial)
    os.replace(partial, target)


def write_synced(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def without_secrets(text: str, options: Any) -> str:
    """`text` with every string of `options` removed."""
    if isinstance(options, Mapping):
        for value in options.values():
            text = without_secrets(text, value)
    elif isinstance(options, str) and len(options) > 1:
        text = text.replace(options, "***")
    return text


def _sentence(name: str, error: Exception) -> InputError | None:
    """What to tell about `error`, or None if it is no matter of storage."""
    if isinstance(error, FileNotFoundError):
        missing = "there is no such bucket" if error_code(error) == "NoSuchBucket" else "not found"
        return InputError(f"{name}: {missing}")
    if isinstance(error, PermissionError) and (reason := REFUSALS.get(error_code(error) or "")):
        return InputError(f"{name}: no permission: {reason}")
    if isinstance(error, PermissionError):
        return InputError(f"{name}: no permission; check the credentials and the access rights")
    if isinstance(error, IsADirectoryError | NotADirectoryError | FileExistsError):
        return InputError(f"{name}: a file stands where a folder is expected, or the other way round")
    if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
        return InputError(f"{name}: no credentials; give key and secret in storage_options or in the environment")
    if not _is_storage_failure(error):
        return None
    number = error.errno if isinstance(error, OSError) else None
    reason = os.strerror(number) if number else type(error).__name__
    return StorageError(f"{name}: the storage failed ({reason}); is the server up, and is there room?")


def _is_storage_failure(error: Exception) -> bool:
    """What fsspec, aiobotocore and aiohttp raise when a server refuses, hangs or is gone."""
    home = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError | TimeoutError | HTTPException) or home in LIBRARIES


def error_code(error: BaseException) -> str | None:
    """The S3 error code that s3fs translated into `error`."""
    response = getattr(error.__cause__, "response", None) or {}
    code = response.get("Error", {}).get("Code")
    return None if code is None else str(code)


def _is_empty_prefix(fs: Any, path: str) -> bool:
    """One small request, where fs.ls would list the parent folder too. A claim does not count."""
    bucket, key, _ = fs.split_path(path)
    prefix = f"{key.rstrip('/')}/" if key else ""
    found = fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=2)
    return all(each["Key"] == prefix + CLAIM for each in found.get("Contents", ()))
